"""Routes about the application itself: OpenAPI document, documentation page, metrics."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from msgspec.structs import replace

from plaza.core import metrics
from plaza.core.errors import NotFound
from plaza.core.http.access import ADMIN, PUBLIC
from plaza.core.http.headers import PAGE_POLICY
from plaza.core.http.request import Request
from plaza.core.http.responses import JSON, Response, encode
from plaza.core.http.routes import Routes
from plaza.core.root_path import ROOT_PATH
from plaza.core.settings import MetricsAccess

METRICS_PATH = "/metrics"
METRICS_SECONDS = 1.0

route = Routes("system")


class CachedFile:
    """A file that changes only with a new version. Browsers cache it and revalidate it by its ETag."""

    def __init__(self, body: bytes, media_type: str, *headers: tuple[str, str]) -> None:
        self.body = body
        self.media_type = media_type
        self.etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        self.headers = (("etag", self.etag), ("cache-control", "no-cache"), *headers)

    def response(self, request: Request) -> Response[Any]:
        """The file, or 304 if the client has this version."""
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self.etag in known or "*" in known:
            return Response(status=304, headers=self.headers)
        return Response(self.body, headers=self.headers, media_type=self.media_type)


_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def _cached_file(file: Traversable) -> CachedFile:
    kind = "." + file.name.rpartition(".")[2]
    policy = [("content-security-policy", PAGE_POLICY)] if kind == ".html" else []
    return CachedFile(file.read_bytes(), _TYPES[kind], *policy)


class ApiDocs:
    """The OpenAPI and AsyncAPI documents, and the page that shows the first, with its scripts and styles."""

    def __init__(self, describe: Callable[[], dict[str, Any]], describe_events: Callable[[], dict[str, Any]]) -> None:
        self._describe = describe
        self._openapi: dict[str, CachedFile] = {}
        self._describe_events = describe_events
        folder = files("plaza.web") / "docs"
        self.files = {file.name: _cached_file(file) for file in folder.iterdir() if file.is_file()}
        self.page = self.files.pop("index.html")

    @property
    def openapi(self) -> CachedFile:
        """The OpenAPI document, which contains the root path."""
        root = ROOT_PATH.get()
        if root not in self._openapi:
            self._openapi = {root: CachedFile(encode(self._describe()), JSON)}
        return self._openapi[root]

    @cached_property
    def asyncapi(self) -> CachedFile:
        return CachedFile(encode(self._describe_events()), JSON)


class MetricsCache:
    """The text of `/metrics`, computed at most once a second: adding up the files of many processes takes time."""

    def __init__(self) -> None:
        self._text = b""
        self._expires_s = 0.0
        self._lock = asyncio.Lock()

    async def text(self) -> bytes:
        async with self._lock:  # of concurrent requests, one computes
            if time.monotonic() >= self._expires_s:
                self._text = await asyncio.to_thread(metrics.exposition)  # the event loop must not wait for it
                self._expires_s = time.monotonic() + METRICS_SECONDS
            return self._text


@route.get(METRICS_PATH, access=PUBLIC, limit=None, media_type=metrics.CONTENT_TYPE)
async def get_metrics(cache: MetricsCache) -> Response[str]:
    """Get the metrics in the Prometheus text format."""
    return Response(await cache.text())


def routes_for(metrics_access: MetricsAccess) -> Routes:
    """The routes, with the access to metrics that the settings say."""
    routes = Routes(route.tag)
    access = {"public": PUBLIC, "admin": ADMIN}[metrics_access]
    routes.routes = [replace(each, access=access) if each.template == METRICS_PATH else each for each in route.routes]
    return routes


@route.get("/openapi.json", access=PUBLIC, limit=None)
async def get_openapi(request: Request, documents: ApiDocs) -> Response[dict[str, Any]]:
    """Get this OpenAPI document."""
    return documents.openapi.response(request)


@route.get("/asyncapi.json", access=PUBLIC, limit=None)
async def get_asyncapi(request: Request, documents: ApiDocs) -> Response[dict[str, Any]]:
    """Get the AsyncAPI document: every event type with its data."""
    return documents.asyncapi.response(request)


@route.get("/docs", access=PUBLIC, limit=None, in_openapi=False, ignores_unknown_query=True)
async def get_docs_page(request: Request, documents: ApiDocs) -> Response[bytes]:
    """Show the API documentation as a page."""
    return documents.page.response(request)


@route.get("/docs/{name}", access=PUBLIC, limit=None, in_openapi=False)
async def get_docs_file(request: Request, name: str, documents: ApiDocs) -> Response[bytes]:
    """Get a script or style of the documentation page."""
    file = documents.files.get(name)
    if file is None:
        raise NotFound("No such file.")
    return file.response(request)
