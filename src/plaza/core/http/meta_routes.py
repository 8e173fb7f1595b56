"""What can be read about the application: its OpenAPI document, the page that shows it, its numbers."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from plaza.core import metrics
from plaza.core.errors import NotFound
from plaza.core.http.access import PUBLIC
from plaza.core.http.headers import PAGE_POLICY
from plaza.core.http.request import Request
from plaza.core.http.responses import JSON, Response, encode
from plaza.core.http.routes import Routes

route = Routes("system")


class Document:
    """Bytes that are made once and change only with a new version: browsers may keep them and ask if they changed."""

    def __init__(self, body: bytes, media_type: str, *headers: tuple[str, str]) -> None:
        self.body = body
        self.media_type = media_type
        self.etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        self.headers = (("etag", self.etag), ("cache-control", "no-cache"), *headers)

    def answer(self, request: Request) -> Response[bytes]:
        seen = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self.etag in seen or "*" in seen:
            return Response(status=304, headers=self.headers)
        return Response(self.body, headers=self.headers, media_type=self.media_type)


_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def _document(file: Traversable) -> Document:
    kind = "." + file.name.rpartition(".")[2]
    policy = [("content-security-policy", PAGE_POLICY)] if kind == ".html" else []
    return Document(file.read_bytes(), _TYPES[kind], *policy)


class Documents:
    """The OpenAPI document and the page that shows it."""

    def __init__(self, describe: Callable[[], dict[str, Any]]) -> None:
        self._describe = describe
        self.files = {file.name: _document(file) for file in (files("plaza.web") / "docs").iterdir() if file.is_file()}
        self.page = self.files.pop("index.html")

    @cached_property
    def openapi(self) -> Document:
        return Document(encode(self._describe()), JSON)


@route.get("/metrics", access=PUBLIC, limit=None, media_type=metrics.CONTENT_TYPE)
async def show_metrics() -> Response[str]:
    """Numbers for Prometheus."""
    # Adding up the files of many processes takes a while, and others should not wait for it.
    return Response(await asyncio.to_thread(metrics.exposition))


@route.get("/openapi.json", access=PUBLIC, limit=None)
async def openapi(request: Request, documents: Documents) -> Response[Any]:
    """This document."""
    return documents.openapi.answer(request)


@route.get("/docs", access=PUBLIC, limit=None, listed=False, any_query=True)
async def docs(request: Request, documents: Documents) -> Response[bytes]:
    """A page that shows the OpenAPI document and lets one try it."""
    return documents.page.answer(request)


@route.get("/docs/{name}", access=PUBLIC, limit=None, listed=False)
async def docs_asset(request: Request, name: str, documents: Documents) -> Response[bytes]:
    """A script or style of that page."""
    file = documents.files.get(name)
    if file is None:
        raise NotFound("No such file.")
    return file.answer(request)
