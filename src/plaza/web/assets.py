"""The style sheets, scripts and fonts of the pages. Their path contains a hash of all files, so browsers cache them
permanently and a new version has another address. Files name each other by relative path and stay in one version.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import lru_cache
from importlib.resources import files
from typing import Final

from plaza.core.errors import NotFound
from plaza.core.http.responses import Response

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
    "woff2": "font/woff2",
}
_CACHE_PERMANENTLY: Final = [("cache-control", "public, max-age=31536000, immutable")]

_FILES: Final = {
    file.name: file.read_bytes() for file in sorted((files("plaza.web") / "assets").iterdir(), key=lambda f: f.name)
}
VERSION: Final = hashlib.sha256(b"".join(_FILES.values())).hexdigest()[:12]
PREFIX: Final = f"/app/assets/{VERSION}"


def serve_asset(version: str, name: str, accepted_encodings: str = "") -> Response[bytes]:
    """Return a file. For another version it is the current file, which must not be cached under that address.

    Text is compressed for clients that accept it: unlike a page, it has no secret that its length could betray.
    """
    body = _FILES.get(name)
    if body is None:
        raise NotFound("There is no such file.")
    headers = list(_CACHE_PERMANENTLY if version == VERSION else [("cache-control", "no-cache")])
    media_type = _TYPES[name.rpartition(".")[2]]
    if media_type.startswith("text/"):
        headers.append(("vary", "accept-encoding"))
        if "gzip" in [encoding.strip() for encoding in accepted_encodings.split(",")]:
            headers.append(("content-encoding", "gzip"))
            body = _compressed(name)
    return Response(body, headers=headers, media_type=media_type)


@lru_cache
def _compressed(name: str) -> bytes:
    return gzip.compress(_FILES[name], mtime=0)
