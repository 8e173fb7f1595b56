"""The style sheets and scripts of the pages. Their path contains a hash of all files, so browsers cache them
permanently and a new version has another address. Scripts import each other by relative path and stay in one version.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final

from plaza.core.errors import NotFound
from plaza.core.http.responses import Response

_TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_CACHE_PERMANENTLY: Final = [("cache-control", "public, max-age=31536000, immutable")]

_FILES: Final = {
    file.name: file.read_bytes() for file in sorted((files("plaza.web") / "assets").iterdir(), key=lambda f: f.name)
}
VERSION: Final = hashlib.sha256(b"".join(_FILES.values())).hexdigest()[:12]
PREFIX: Final = f"/app/assets/{VERSION}"


def serve_asset(version: str, name: str) -> Response[bytes]:
    """Return a file. For another version it is the current file, which must not be cached under that address."""
    body = _FILES.get(name)
    if body is None:
        raise NotFound("There is no such file.")
    headers = _CACHE_PERMANENTLY if version == VERSION else [("cache-control", "no-cache")]
    return Response(body, headers=headers, media_type=_TYPES[name.rpartition(".")[2]])
