"""HTTP responses with pictures: caching, ranges, and the way the bytes take."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Final

import structlog

from plaza.caching.page_store import is_not_modified
from plaza.core.auth import Actor
from plaza.core.http.problem_details import RangeNotSatisfiable
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.streams import started
from plaza.media.delivery import PictureDelivery, PictureFile
from plaza.media.object_store import SIGNED_SECONDS, MediaStore, MissingFile
from plaza.media.pictures import no_picture

log = structlog.get_logger("plaza.media")

# A picture never changes under its address. Only the client keeps it: a cache between would still send a picture whose
# post was banned.
KEEP: Final = ("cache-control", "private, max-age=31536000, immutable")
KEEP_ADDRESS: Final = ("cache-control", f"private, max-age={SIGNED_SECONDS // 2}")
NO_STORE: Final = ("cache-control", "no-store")
# Pages of other sites may show public pictures. Nothing in a picture may run or load.
_COMMON: Final = (
    ("content-security-policy", "default-src 'none'; sandbox; frame-ancestors 'none'"),
    ("cross-origin-resource-policy", "cross-origin"),
    ("vary", "accept"),
)

_RANGE: Final = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")


class PictureResponses:
    """Answers requests for pictures."""

    def __init__(self, delivery: PictureDelivery, store: MediaStore, *, redirects: bool) -> None:
        self._delivery = delivery
        self._store = store
        self._redirects = redirects

    async def respond(self, viewer: Actor | None, id: str, variant: str, request: Request) -> Response[bytes]:
        """Return a variant of a picture for a caller, as a whole, a range, a redirect or 304."""
        file = await self._delivery.find(viewer, id, variant, request.headers.get("accept"))
        headers = [*_COMMON, ("etag", file.etag), KEEP if file.is_public else NO_STORE]
        if is_not_modified(file.etag, request.headers.get("if-none-match")):
            return Response(None, status=304, headers=headers)
        if self._redirects and file.is_public and (url := await self._store.signed_url(file.path)):
            return Response(None, status=302, headers=[*_COMMON, KEEP_ADDRESS, ("location", url)])
        try:
            return await self._send(file, headers, request)
        except MissingFile:
            log.error("picture_file_missing", picture=id, path=file.path)
            raise no_picture(id) from None

    async def _send(self, file: PictureFile, headers: list[tuple[str, str]], request: Request) -> Response[bytes]:
        start, end = _range(request, file)
        status = 200 if end - start == file.bytes else 206
        headers.append(("accept-ranges", "bytes"))
        if status == 206:
            headers.append(("content-range", f"bytes {start}-{end - 1}/{file.bytes}"))
        body: bytes | AsyncIterator[Any] | None = self._store.read_small(file.path, start, end)
        if body is None:
            headers.append(("content-length", str(end - start)))
            body = await started(self._store.read(file.path, start, end))
        return Response(body, status=status, headers=headers, media_type=f"image/{file.format}")


def _range(request: Request, file: PictureFile) -> tuple[int, int]:
    """Return the part of a file that a request asks for. Several ranges, or an unknown unit, mean the whole file."""
    found = _RANGE.fullmatch(request.headers.get("range", ""))
    condition = request.headers.get("if-range")
    if found is None or found.groups() == ("", "") or (condition is not None and condition != file.etag):
        return 0, file.bytes
    first, last = found.groups()
    if not first:
        start, end = max(0, file.bytes - int(last)), file.bytes
    else:
        start, end = int(first), min(file.bytes, int(last) + 1) if last else file.bytes
    if start >= end:
        raise RangeNotSatisfiable(f"The file has {file.bytes} bytes.", size=file.bytes)
    return start, end
