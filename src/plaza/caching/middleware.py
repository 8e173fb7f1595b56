"""The page cache in front of any ASGI application: Starlette, FastAPI, or anything else.

    app.add_middleware(PageCacheMiddleware, store="valkey://localhost")

Only GET and HEAD requests are cached, and only responses that allow it: status 200, `text/html`, no `Set-Cookie`, no
`Cache-Control: private`, `no-store` or `no-cache`, and no `Vary` by a header that is not in `vary`. A response may name
what it shows in `Cache-Tag: item-7, sale`; `await cache.purge("item-7")` then drops it in every process.

A request with credentials or a cookie bypasses the cache, unless `personal` decides otherwise. So does a URL with the
parameter `_`, by which scripts ask for an uncached response.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import lru_cache
from time import monotonic
from typing import Any, Final
from urllib.parse import parse_qsl

from plaza.caching.page_cache import PageCache
from plaza.caching.page_store import (
    MAX_PAGE_BYTES,
    CachedPage,
    Headers,
    PageCacheOptions,
    ServedPage,
    has_cacheable_headers,
    is_not_modified,
    page_hash,
)
from plaza.caching.standalone import open_functions
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# After a failed connection attempt, requests bypass the cache for this long.
RECONNECT_SECONDS: Final = 1.0

# Every cached response varies by these: a request that has them bypasses the cache.
_CREDENTIALS_VARY: Final = ("cookie", "authorization")
_CREDENTIALS: Final = frozenset((b"cookie", b"authorization", b"x-api-key"))
_MAX_AGE = re.compile(r"(?:^|[\s,])(s-maxage|max-age)\s*=\s*\"?(\d{1,9})")


def has_credentials(scope: Scope) -> bool:
    """Return whether a request has a cookie or credentials, so that its response may be personal."""
    return not _CREDENTIALS.isdisjoint([name for name, _ in scope["headers"]])


class PageCacheMiddleware:
    """ASGI middleware that caches pages in Valkey.

    `store` is an address, or a connected `Functions`. `item` returns the item that a request shows, if any; its page is
    then stored only while the item is among the most viewed. `applies` selects the requests to cache (default: all),
    `personal` the requests whose response is for one user. `vary` names headers whose values select another page.
    """

    def __init__(
        self,
        app: Application,
        store: str | Functions,
        *,
        options: PageCacheOptions | None = None,
        name: str = "plaza",
        item: Callable[[Scope], str | None] | None = None,
        applies: Callable[[Scope], bool] | None = None,
        personal: Callable[[Scope], bool | Awaitable[bool]] = has_credentials,
        vary: Sequence[str] = (),
    ) -> None:
        self._app = app
        self._store = store
        self._options = options or PageCacheOptions()
        self._name = name
        self._item = item
        self._applies = applies
        self._personal = personal
        self._vary = tuple(sorted(header.lower() for header in vary))
        self._vary_names = [name.encode("latin-1") for name in self._vary]
        self._connecting: asyncio.Task[PageCache] | None = None
        self._retry_at = 0.0
        self._pages: PageCache | None = None if isinstance(store, str) else PageCache(store, self._options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                await self._app(scope, receive, send)
            finally:
                await self.close()
            return
        if (
            scope["type"] != "http"
            or scope["method"] not in ("GET", "HEAD")
            or (self._applies is not None and not self._applies(scope))
        ):
            await self._app(scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        # If a header is repeated, the first one counts.
        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        pages, bypass_reason = self._pages, await self._bypass_reason(scope, headers)
        if bypass_reason:
            pages = None
        elif pages is None:
            try:
                pages = await self._connected()
            except Unavailable:
                bypass_reason = "store-away"
        if pages is None:
            await self._app(scope, receive, self._with_cache_status(send, f"fwd=bypass; detail={bypass_reason}"))
            return

        async def compute(client_waits: bool) -> CachedPage | None:
            to_client = self._with_cache_status(send, "fwd=uri-miss; stored=?0") if client_waits else None
            recorder = ResponseRecorder(to_client, self._vary)
            await self._app(_scope_to_compute(scope), receive if client_waits else recorder.receive, recorder.send)
            return recorder.page()

        item = self._item(scope) if self._item is not None else None
        served = await pages.serve(self._page_hash(scope, headers), compute, item)
        if served is not None:
            await self._send(scope, headers, served, send)

    async def _bypass_reason(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        """Return why a request bypasses the cache, or an empty string."""
        if b"range" in headers:
            return "range"
        if asks_for_uncached(scope["query_string"]):
            return "unwanted"
        personal = self._personal(scope)
        if not isinstance(personal, bool):
            personal = await personal
        return "personal" if personal else ""

    def _page_hash(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        """Return the same hash for equal requests. The host is part of it: a page may contain its own address."""
        path = scope.get("raw_path") or scope["path"].encode()
        parts = [scope.get("scheme", "http").encode(), headers.get(b"host", b""), path, scope["query_string"]]
        parts += [name + b": " + headers.get(name, b"") for name in self._vary_names]
        return _hash_bytes(b"\n".join(parts))

    async def _send(self, scope: Scope, request_headers: dict[bytes, bytes], served: ServedPage, send: Send) -> None:
        headers = list(_raw_headers(served.headers(self._name), self._vary))
        if_none_match = request_headers.get(b"if-none-match")
        status, body = served.page.status, served.page.body
        if (
            if_none_match is not None
            and status == 200
            and is_not_modified(served.etag, if_none_match.decode("latin-1"))
        ):
            status, body = 304, b""
            headers = [pair for pair in headers if pair[0] != b"content-type"]
        else:
            headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _with_cache_status(self, send: Send, status: str) -> Send:
        """Return a `send` that adds the cache's headers to a response that it passes on."""
        added = [
            (b"cache-status", f"{self._name}; {status}".encode()),
            (b"vary", ", ".join(_CREDENTIALS_VARY).encode()),
        ]

        async def send_with_status(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        return send_with_status

    async def purge(self, tag: str) -> int:
        """Drop every page with a tag, in every process. Return how many were stored."""
        return await (await self._connected()).purge(tag)

    async def _connected(self) -> PageCache:
        """Return the cache; the first request connects it. Concurrent requests share that attempt.

        After a failed attempt no request tries for a moment: an unreachable Valkey must not delay every response.
        """
        if self._pages is not None:
            return self._pages
        if self._connecting is None:
            if monotonic() < self._retry_at:
                raise Unavailable("The cache's Valkey did not respond a moment ago.")
            self._connecting = asyncio.create_task(self._connect())
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> PageCache:
        assert isinstance(self._store, str)
        try:
            self._pages = PageCache(await open_functions(self._store), self._options)
        except Unavailable:
            self._retry_at = monotonic() + RECONNECT_SECONDS
            raise
        finally:
            self._connecting = None
        return self._pages

    async def close(self) -> None:
        """Finish renewals; close the connection if the middleware opened it."""
        pages = self._pages
        if pages is None:
            return
        await pages.close()
        if isinstance(self._store, str):
            self._pages = None
            await pages.functions.outbox.drain()
            await pages.functions.valkey.close()


class ResponseRecorder:
    """Records what an application sends. A response that is not cacheable goes straight to the client.

    `receive` serves a computation without a client: it returns a request without a body, and a disconnect once the
    response is complete. Until then it waits, since Starlette listens for a disconnect while it streams.
    """

    def __init__(self, send: Send | None, vary: Sequence[str]) -> None:
        self._send = send
        self._vary = vary
        self._start: Message | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._passing = False
        self._complete = asyncio.Event()
        self._request_sent = False

    async def receive(self) -> Message:
        if not self._request_sent:
            self._request_sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._complete.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            if not self._is_cacheable(message):
                await self._pass()
            return
        if self._passing:
            await self._forward(message)
        else:
            self._chunks.append(message.get("body", b""))
            self._size += len(self._chunks[-1])
            if self._size > MAX_PAGE_BYTES:
                await self._pass(more_body=message.get("more_body", False))
        if not message.get("more_body", False):
            self._complete.set()

    def page(self) -> CachedPage | None:
        """Return the recorded page, or None if it went to the client."""
        if self._passing:
            return None
        assert self._start is not None, "The application sent no response."
        if not self._complete.is_set():
            raise RuntimeError("The application did not complete its response.")
        headers = _decode(self._start["headers"])
        tags = tuple(tag.strip() for name, value in headers if name == "cache-tag" for tag in value.split(","))
        stored = tuple(pair for pair in headers if pair[0] not in ("cache-tag", "content-length", "etag"))
        etag = next((value for name, value in headers if name == "etag" and not value.startswith("W/")), "")
        return CachedPage(b"".join(self._chunks), self._start["status"], stored, tags, _fresh_seconds(stored), etag)

    def _is_cacheable(self, start: Message) -> bool:
        headers = _decode(start["headers"])
        content_type = next((value for name, value in headers if name == "content-type"), "")
        vary = {word.strip().lower() for name, value in headers if name == "vary" for word in value.split(",")}
        return (
            start["status"] == 200
            and content_type.startswith("text/html")
            and vary <= {*self._vary, ""}
            and _fresh_seconds(headers) != 0
            and has_cacheable_headers(headers)
        )

    async def _pass(self, *, more_body: bool = True) -> None:
        self._passing = True
        assert self._start is not None
        await self._forward(self._start)
        if self._chunks:
            await self._forward({"type": "http.response.body", "body": b"".join(self._chunks), "more_body": more_body})
            self._chunks = []

    async def _forward(self, message: Message) -> None:
        if self._send is not None:
            await self._send(message)


@lru_cache(4096)
def _hash_bytes(request: bytes) -> str:
    return page_hash([request.decode("latin-1")])


def _scope_to_compute(scope: Scope) -> Scope:
    """Return the scope for the application: GET also for a HEAD, since the page is computed in both cases.

    Response extensions, such as sending a file by its path, are left out: they would bypass the recorder.
    """
    extensions = scope.get("extensions") or {}
    allowed = {name: value for name, value in extensions.items() if not name.startswith("http.response.")}
    return {**scope, "method": "GET", "extensions": allowed}


def asks_for_uncached(query: bytes) -> bool:
    """Return whether a URL has the parameter `_`, by which scripts ask for an uncached response."""
    if b"_" not in query and b"%5f" not in query.lower():
        return False
    return any(name == "_" for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True))


def _decode(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    return tuple((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers)


def _fresh_seconds(headers: Headers) -> float | None:
    """Return how long a page says that it is fresh: `s-maxage` is for shared caches, `max-age` for all."""
    ages = {
        name: int(seconds)
        for header, value in headers
        if header == "cache-control"
        for name, seconds in _MAX_AGE.findall(value.lower())
    }
    return ages.get("s-maxage", ages.get("max-age"))


@lru_cache(2048)
def _raw_headers(headers: Headers, vary: Sequence[str]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers for the client, with a complete `Vary`, and `no-cache` if the page has no `Cache-Control`."""
    own_vary = [word.strip().lower() for name, value in headers if name == "vary" for word in value.split(",")]
    all_vary = list(dict.fromkeys(word for word in (*own_vary, *vary, *_CREDENTIALS_VARY) if word))
    sent = [pair for pair in headers if pair[0] != "vary"]
    if not any(name == "cache-control" for name, _ in sent):
        sent.append(("cache-control", "no-cache"))
    sent.append(("vary", ", ".join(all_vary)))
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in sent)
