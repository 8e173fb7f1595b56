"""Checks an uploaded file before it is decoded: its format, its name, its end, and whether it is also something else.

Everything here reads bytes only. It runs in the process that decodes images, never in the API's.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

# The accepted formats, each with the file extensions that it may have.
EXTENSIONS: Final = {
    "jpeg": ("jpg", "jpeg", "jpe", "jfif"),
    "png": ("png",),
    "webp": ("webp",),
    "avif": ("avif",),
    "gif": ("gif",),
}
ACCEPTED: Final = "JPEG, PNG, WebP, AVIF or GIF"

# Not the end of "holiday 12.05" or "v1.2 final".
_EXTENSION: Final = re.compile(r"[^.]\.([a-z][a-z0-9]{1,4})$")

# A file that is an image and a page (or a program) at once serves to get one past filters as the other. Pictures are
# written again, so it would do no harm here; but no camera makes such a file.
_MARKUP: Final = re.compile(rb"<(?:script|html|body|iframe|svg|!doctype|\?php)[\s>/]|%PDF-", re.IGNORECASE)
# Archives are read from their end: this record is in the last 64 KiB.
_ARCHIVE_END, _ARCHIVE_END_BYTES = b"PK\x05\x06", 65_557

_PNG_END: Final = b"IEND\xaeB`\x82"
_GIF_END: Final = b";"


class RefusedImage(Exception):
    """The file is not accepted. The text says why, and what to do."""


class Bytes(Protocol):
    """Bytes or a mapped file."""

    def __getitem__(self, part: slice) -> bytes: ...

    def __len__(self) -> int: ...

    def rfind(self, what: bytes, start: int = ...) -> int: ...


def check_file(data: Bytes, filename: str) -> str:
    """Return the format of an uploaded file, or raise `RefusedImage`."""
    found = detect_format(data[:64])
    if found is None:
        raise RefusedImage(f"This is not a picture. Send a {ACCEPTED} file.")
    _require_extension(found, filename)
    _require_end(found, data)
    if _MARKUP.search(data) or data.rfind(_ARCHIVE_END, max(0, len(data) - _ARCHIVE_END_BYTES)) >= 0:  # type: ignore[call-overload]
        raise RefusedImage("The file contains more than a picture. Save it again as a plain picture.")
    return found


def detect_format(head: bytes) -> str | None:
    """Return the format that the first bytes of a file declare; None if it is not an accepted one."""
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    brands = head[8 : int.from_bytes(head[:4], "big")]
    if head[4:8] == b"ftyp" and (b"avif" in brands or b"avis" in brands):
        return "avif"
    return None


def _require_extension(found: str, filename: str) -> None:
    extension = _EXTENSION.search(filename.lower())
    if extension is None or extension[1] in EXTENSIONS[found]:
        return
    raise RefusedImage(f"The file contains a {found.upper()} picture, which its name does not say. Rename it.")


def _require_end(found: str, data: Bytes) -> None:
    """The decoders of these formats accept a file whose end is missing. Zeros may follow the end."""
    if found == "png" and data.rfind(_PNG_END) < 0:
        raise RefusedImage("The picture is incomplete. Send it again.")
    if found == "gif" and not data[-1024:].rstrip(b"\0").endswith(_GIF_END):
        raise RefusedImage("The picture is incomplete. Send it again.")
