"""Pictures for the tests, and files that only pretend to be pictures. All are made here."""

from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib
from typing import Any

from PIL import Image

HTML = b"<html><body><script>alert(document.domain)</script></body></html>"
SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)" width="9" height="9"/>'


def drawn(width: int = 64, height: int = 48, seed: int = 0, mode: str = "RGB") -> Image.Image:
    """A picture of soft colours, the same for the same seed."""
    generator = random.Random(seed)
    small = Image.new("RGB", (6, 5))
    small.putdata([tuple(generator.randrange(256) for _ in range(3)) for _ in range(30)])
    return small.resize((width, height), Image.Resampling.BICUBIC).convert(mode)


def encoded(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def picture(width: int = 64, height: int = 48, format: str = "PNG", seed: int = 0, **options: Any) -> bytes:
    return encoded(drawn(width, height, seed), format, **options)


def photo_with_location(width: int = 64, height: int = 48, orientation: int = 1) -> bytes:
    """A JPEG with all that cameras write: place, owner, comment, orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x013B] = "Ana Secret"
    exif.get_ifd(0x8825)[2] = (48.0, 12.0, 30.0)  # latitude
    return picture(width, height, "JPEG", exif=exif, comment=b"secret comment", quality=95)


def animation(frames: int = 4, width: int = 40, height: int = 30) -> bytes:
    images = [drawn(width, height, seed) for seed in range(frames)]
    return encoded(images[0], "GIF", save_all=True, append_images=images[1:], duration=80, loop=0)


def png_of(width: int, height: int, *, extra: bytes = b"") -> bytes:
    """A black PNG of any size, a thousand times smaller than its pixels."""
    rows = zlib.compressobj(9)
    packed = b"".join(rows.compress(b"\0" * (1 + (width + 7) // 8)) for _ in range(min(height, 200))) + rows.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    chunks = _chunk(b"IHDR", header) + extra + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def gif_of(frames: int, width: int = 1, height: int = 1) -> bytes:
    """A GIF of many frames, 40 bytes each."""
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    frame = (
        b"\x21\xf9\x04\x00\x01\x00\x00\x00"  # a hundredth of a second
        + b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    )  # fmt: skip
    return head + frame * frames + b";"


def _archive() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("Evil.class", "cafebabe")
    return stream.getvalue()


def _webp_canvas(width: int, height: int) -> bytes:
    """A WebP that declares a large canvas around a small picture."""
    small = picture(8, 8, "WEBP", lossless=True)
    frame = small[12:]
    vp8x = (
        b"VP8X"
        + struct.pack("<I", 10)
        + b"\0" * 4
        + (width - 1).to_bytes(3, "little")
        + (height - 1).to_bytes(3, "little")
    )
    body = b"WEBP" + vp8x + frame
    return b"RIFF" + struct.pack("<I", len(body)) + body


def hostile_files() -> dict[str, tuple[str, bytes]]:
    """Files that must be refused, each with its name: what it is → (filename, content)."""
    jpeg, png, webp = picture(format="JPEG"), picture(), picture(format="WEBP")
    comment = b"\x21\xfe" + bytes([len(HTML)]) + HTML + b"\0"
    gif = gif_of(1)
    return {
        "nothing": ("a.png", b""),
        "text": ("a.png", b"Hello, I am a picture. Really."),
        "a page": ("a.jpg", HTML),
        "SVG": ("a.svg", SVG),
        "SVG called PNG": ("a.png", SVG),
        "SVG after white space": ("a.png", b"  \n\t" + SVG),
        "a program": ("a.gif", b"\x7fELF\x02\x01\x01" + b"\0" * 200),
        "PDF": ("a.jpg", b"%PDF-1.7\n" + b"\0" * 200),
        "TIFF": ("a.png", encoded(drawn(), "TIFF")),
        "BMP": ("a.png", encoded(drawn(), "BMP")),
        "JPEG called PNG": ("a.png", jpeg),
        "PNG called page": ("a.html", png),
        "JPEG cut in half": ("a.jpg", jpeg[: len(jpeg) // 2]),
        "JPEG without its end": ("a.jpg", jpeg[:-10]),
        "PNG cut in half": ("a.png", png[: len(png) // 2]),
        "PNG without its end": ("a.png", png[:-6]),
        "WebP cut in half": ("a.webp", webp[: len(webp) // 2]),
        "GIF cut in half": ("a.gif", animation()[:600]),
        "AVIF cut in half": ("a.avif", (avif := picture(format="AVIF", speed=10))[: len(avif) // 2]),
        "only a header": ("a.jpg", b"\xff\xd8\xff\xe0\x00\x10JFIF"),
        "noise after a header": ("a.png", png[:33] + random.Random(1).randbytes(2_000) + png[-12:]),
        "a page in a GIF's comment": ("a.gif", gif[:19] + comment + gif[19:]),
        "a page after a GIF": ("a.gif", gif + HTML),
        "a page as a GIF's size": ("a.gif", b"GIF89a/*" + gif[8:-1] + b"*/=1;<script src=a></script>;"),
        "a page after a JPEG": ("a.jpg", jpeg + HTML),
        "a page in a JPEG's comment": ("a.jpg", picture(format="JPEG", comment=HTML)),
        "an archive after a PNG": ("a.png", png + _archive()),
        "an archive after a GIF": ("a.gif", gif + _archive()),
        "50,000 × 50,000 pixels": ("a.png", png_of(50_000, 50_000)),
        "a wide bomb": ("a.png", png_of(2_000_000, 30)),
        "a canvas of 16,000 × 16,000": ("a.webp", _webp_canvas(16_000, 16_000)),
        "10,000 frames": ("a.gif", gif_of(10_000)),
        "few frames of many pixels": ("a.gif", gif_of(40, 2_000, 2_000)),
    }
