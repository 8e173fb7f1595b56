"""Blurred previews of pictures, which are seen until a picture is loaded. They need no script and no request."""

from __future__ import annotations

import base64
import struct
import zlib
from functools import lru_cache
from typing import Final

import blurhash

# Enough for a soft preview; the browser smooths it when it is enlarged.
_WIDTH, _HEIGHT = 6, 4
# A grey pixel, for a picture without a preview.
_GREY: Final = "data:image/gif;base64,R0lGODlhAQABAIAAAMDAwAAAACH5BAAAAAAALAAAAAABAAEAAAICRAEAOw=="


@lru_cache(4096)
def blurred(text: str) -> str:
    """Return the preview of a blurhash as the address of a PNG with its pixels in it."""
    try:
        rows = blurhash.decode(text, _WIDTH, _HEIGHT)
    except (ValueError, IndexError, KeyError, ZeroDivisionError):
        return _GREY  # another service may have written it
    data = b"".join(b"\0" + bytes(int(value) for pixel in row for value in pixel) for row in rows)
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, content)
        for kind, content in (
            (b"IHDR", struct.pack(">IIBBBBB", _WIDTH, _HEIGHT, 8, 2, 0, 0, 0)),
            (b"IDAT", zlib.compress(data, 9)),
            (b"IEND", b""),
        )
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
