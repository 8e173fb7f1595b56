"""The style and the scripts. Their folder carries a hash of everything in it: browsers keep them for ever, and a new
version is another address. Scripts import each other by relative names and so stay in one version.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final

from plaza.core.errors import NotFound
from plaza.core.http.responses import Response

_TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_FOREVER: Final = [("cache-control", "public, max-age=31536000, immutable")]

_FILES: Final = {
    file.name: file.read_bytes() for file in sorted((files("plaza.web") / "assets").iterdir(), key=lambda f: f.name)
}
VERSION: Final = hashlib.sha256(b"".join(_FILES.values())).hexdigest()[:12]
PREFIX: Final = f"/app/assets/{VERSION}"


def asset(version: str, name: str) -> Response[bytes]:
    """A file; of another version the present one, which must not be kept under that name."""
    body = _FILES.get(name)
    if body is None:
        raise NotFound("No such file.")
    headers = _FOREVER if version == VERSION else [("cache-control", "no-cache")]
    return Response(body, headers=headers, media_type=_TYPES[name.rpartition(".")[2]])
