"""Decodes one uploaded picture and writes it again in several sizes, in a process of its own with hard limits.

    python -I -m plaza.media.image_process '{"filename": …, "max_pixels": …, …}' < upload > result

A decoder is a large C library that reads hostile bytes. So it runs in a process that has little memory and time, cannot
write files, and knows no secret: the parent starts it with an empty environment. Whatever happens here, the parent sees
a result, a refusal, or a process that has ended.

The result is one line of JSON and then the files, in the order in which the line lists them.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import sys
from typing import Any, Final

from plaza.core.picture_variants import VARIANT_WIDTHS, variant_size
from plaza.media.image_checks import RefusedImage, check_file

# Animations cost as much as all their frames, for every variant. Most have fewer than 200.
MAX_FRAMES: Final = 500

# A photo at 80 looks like the original; above, files grow quickly. Effort 4 is libwebp's default: 2 saves a third of
# the CPU and makes files 8% larger, which every reader pays for.
WEBP_QUALITY, WEBP_EFFORT, ANIMATION_EFFORT = 80, 4, 2
JPEG_QUALITY: Final = 82

# The picture of which the blurhash is computed is this wide. It shows a dozen soft colours, so no detail is lost.
BLURHASH_PIXELS: Final = 32

# The only decoders that run, by the names that libvips has for them.
LOADERS: Final = ("Jpeg", "Png", "Webp", "Nsgif", "Heif")

WHITE: Final = [255, 255, 255]


def main() -> None:
    arguments = json.loads(sys.argv[1])
    restrict(arguments["memory_bytes"], arguments["cpu_seconds"])
    bodies: list[bytes] = []
    try:
        result = process(arguments["filename"], arguments["max_pixels"], bodies)
    except RefusedImage as refusal:
        result, bodies = {"refused": str(refusal)}, []
    send_result(result, bodies)


def send_result(result: dict[str, Any], bodies: list[bytes]) -> None:
    """Write a result to standard output."""
    sys.stdout.buffer.write(json.dumps(result).encode() + b"\n")
    for body in bodies:
        sys.stdout.buffer.write(body)


def restrict(memory_bytes: int, cpu_seconds: int) -> None:
    """Limit this process for good: memory, CPU, no files, no core dump, and less CPU than the API when both want it."""
    for kind, limit in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    os.nice(10)


def process(filename: str, max_pixels: int, bodies: list[bytes]) -> dict[str, Any]:
    """Return the description of the picture on standard input; its files are added to `bodies`."""
    with mmap.mmap(0, 0, access=mmap.ACCESS_READ) as data:
        check_file(data, filename)
    vips = _load_vips()
    try:
        width, height, frames = _read_header(vips, max_pixels)
        image = _decode(vips, *variant_size(width, height, "large"), frames)
        return write_variants(image, (width, height), bodies, is_animated=frames > 1)
    except vips.Error:
        raise RefusedImage(
            "The picture is damaged or incomplete. Send it again, or save it in another format."
        ) from None


def _load_vips() -> Any:
    """Import libvips, after the limits are set. One thread: several would multiply the memory, and share the CPU."""
    os.environ["VIPS_CONCURRENCY"] = "1"
    import pyvips

    pyvips.cache_set_max(0)
    pyvips.operation_block_set("VipsForeignLoad", True)
    for name in LOADERS:
        pyvips.operation_block_set(f"VipsForeignLoad{name}", False)
    return pyvips


def _read_header(vips: Any, max_pixels: int) -> tuple[int, int, int]:
    """Return the width and height as the picture is shown, and the number of frames. Nothing is decoded."""
    image = vips.Image.new_from_source(vips.Source.new_from_descriptor(0), "", access="sequential")
    # `get_n_pages` says 1 for an animation of 10,000 frames or more.
    frames = image.get("n-pages") if image.get_typeof("n-pages") else 1
    width, height = image.width, image.height
    if frames > MAX_FRAMES:
        raise RefusedImage(f"The animation has {frames:,} frames. Send one with at most {MAX_FRAMES}.")
    if width * height * frames > max_pixels:
        size = f"{width:,} × {height:,} pixels" + (f" in {frames} frames" if frames > 1 else "")
        raise RefusedImage(f"The picture has {size}. Send one with at most {max_pixels / 1e6:g} megapixels.")
    is_turned = image.get_typeof("orientation") and image.get("orientation") >= 5
    return (height, width, frames) if is_turned else (width, height, frames)


def write_variants(
    image: Any, size: tuple[int, int], bodies: list[bytes], *, is_animated: bool = False
) -> dict[str, Any]:
    """Encode the variants from the largest, which is given, to the smallest, each made from the one before.

    Returns the description of a picture of this size; its files are added to `bodies`.
    """
    width, height = size
    files: list[dict[str, Any]] = []
    last_size, encoded = (0, 0), []
    for variant in sorted(VARIANT_WIDTHS, key=VARIANT_WIDTHS.__getitem__, reverse=True):
        size = variant_size(width, height, variant)
        if size != last_size:  # variants of a small picture are equal
            image = _scale(image, *size)
            last_size, encoded = size, _encode(image, is_animated=is_animated)
        for kind, body in encoded:
            files.append({"variant": variant, "format": kind, "bytes": len(body)})
            bodies.append(body)
    return {"width": width, "height": height, "blurhash": _blurhash(_first_frame(image)), "files": files}


def _decode(vips: Any, width: int, height: int, frames: int) -> Any:
    """Decode the picture at this size, turned as its metadata says. Decoders skip what is not needed."""
    options = "fail-on=truncated" + (",n=-1" if frames > 1 else "")
    image = vips.Image.thumbnail_source(
        vips.Source.new_from_descriptor(0),
        width,
        height=height,
        size="force",
        option_string=options,
    )
    return _to_srgb(image).copy_memory()


def _to_srgb(image: Any) -> Any:
    """Convert a picture with another colour profile, as phones write them. The files have none, which means sRGB.

    It takes as long as the rest, so it is only done where it changes something.
    """
    if image.get_typeof("icc-profile-data") and b"sRGB" not in image.get("icc-profile-data"):
        return image.icc_transform("srgb")
    return image


def _scale(image: Any, width: int, height: int) -> Any:
    if (image.width, _page_height(image)) == (width, height):
        return image
    return image.thumbnail_image(width, height=height, size="force").copy_memory()


def _encode(image: Any, *, is_animated: bool) -> list[tuple[str, bytes]]:
    """Return the picture as JPEG, and as WebP unless the JPEG is smaller and shows the same."""
    first = _first_frame(image)
    jpeg = first.jpegsave_buffer(Q=JPEG_QUALITY, optimize_coding=True, interlace=True, background=WHITE, keep="none")
    effort = ANIMATION_EFFORT if is_animated else WEBP_EFFORT
    webp = image.webpsave_buffer(Q=WEBP_QUALITY, effort=effort, keep="none")
    if len(jpeg) <= len(webp) and not is_animated and not image.hasalpha():
        return [("jpeg", jpeg)]
    return [("webp", webp), ("jpeg", jpeg)]


def _first_frame(image: Any) -> Any:
    return image.crop(0, 0, image.width, _page_height(image))


def _page_height(image: Any) -> int:
    """Return the height of one frame. libvips holds the frames of an animation above each other."""
    return int(image.get("page-height") if image.get_typeof("page-height") else image.height)


def _blurhash(image: Any) -> str:
    """Return the text that stands for a blurred picture, with more detail along the longer side."""
    import blurhash

    small = image.thumbnail_image(BLURHASH_PIXELS, height=BLURHASH_PIXELS, size="force").colourspace("srgb")
    if small.hasalpha():
        small = small.flatten(background=WHITE)
    data = small.extract_band(0, n=3).cast("uchar").write_to_memory()
    pixels = [data[at : at + 3] for at in range(0, len(data), 3)]
    rows = [pixels[at : at + BLURHASH_PIXELS] for at in range(0, len(pixels), BLURHASH_PIXELS)]
    across, down = (4, 3) if image.width >= image.height else (3, 4)
    return str(blurhash.encode(rows, across, down))


if __name__ == "__main__":
    main()
