"""The page cache in front of any ASGI application: Starlette, FastAPI, or anything else.

    pages = PageCacheClient("valkey://localhost")
    app.add_middleware(PageCacheMiddleware, store=pages)

Only GET and HEAD requests are cached, and only responses that allow it: status 200, HTML or JSON, no `Set-Cookie`, no
`Cache-Control: private`, `no-store` or `no-cache`, and no `Vary` by a header that does not select pages. A response may
name what it shows in `Cache-Tag: item-7, sale`; `await pages.purge("item-7")` then drops it in every process.

A request with credentials or a cookie bypasses the cache, unless `key` or `personal` decides otherwise. So does a URL
with the parameter `_`, by which scripts ask for an uncached response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl

from plaza.caching.page_cache import Computation
from plaza.caching.page_cache_client import PageCacheClient
from plaza.caching.page_store import CachedPage, Headers, PageCacheOptions, ServedPage, is_not_modified, page_hash
from plaza.caching.request_key import RequestKey, Scope
from plaza.caching.response_recorder import Message, ResponseRecorder, Send
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions

Receive = Callable[[], Awaitable[Message]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

MEDIA_TYPES: Final = ("text/html", "application/json")

# Every cached response varies by these: a request that has them bypasses the cache, or gets a page of its own.
_CREDENTIALS_VARY: Final = ("cookie", "authorization")


class PageCacheMiddleware:
    """ASGI middleware that caches pages in Valkey.

    `store` is a `PageCacheClient`, or an address or a connected `Functions`, with `options`. `key` decides which parts
    of a request select a page; `vary` is short for a key with these headers. `item` returns the item that a request
    shows, if any; its page is then stored only while the item is among the most viewed. `applies` selects the requests
    to cache (default: all), `media_types` the responses, `personal` the requests whose response is for one user.
    """

    def __init__(
        self,
        app: Application,
        store: str | Functions | PageCacheClient,
        *,
        options: PageCacheOptions | None = None,
        name: str = "plaza",
        item: Callable[[Scope], str | None] | None = None,
        applies: Callable[[Scope], bool] | None = None,
        personal: Callable[[Scope], bool | Awaitable[bool]] | None = None,
        key: RequestKey | None = None,
        vary: Sequence[str] = (),
        media_types: Sequence[str] = MEDIA_TYPES,
    ) -> None:
        if key is not None and vary:
            raise ValueError("Give `vary` to the RequestKey, not to the middleware.")
        if options is not None and isinstance(store, PageCacheClient):
            raise ValueError("Give `options` to the PageCacheClient, not to the middleware.")
        self._app = app
        self._client = store if isinstance(store, PageCacheClient) else PageCacheClient(store, options)
        self._name = name
        self._item = item
        self._applies = applies
        self._personal = personal
        self._key = key or RequestKey(vary=vary)
        self._media_types = tuple(media_types)
        self._known_vary = frozenset((*self._key.vary, "accept-encoding", *self._cookie_vary()))
        self.purge = self._client.purge
        self.close = self._client.close

    def _cookie_vary(self) -> tuple[str, ...]:
        return ("cookie",) if self._key.selects_by_cookie else ()

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

    async def _serve(self, original: Scope, receive: Receive, send: Send) -> None:
        scope = self._key.normalized(original)
        pages, bypass_reason = self._client.pages, await self._bypass_reason(original, scope)
        if bypass_reason:
            pages = None
        elif pages is None:
            try:
                pages = await self._client.connected()
            except Unavailable:
                bypass_reason = "store-away"
        if pages is None:
            await self._app(original, receive, self._with_cache_status(send, f"fwd=bypass; detail={bypass_reason}"))
            return
        was_sent = False

        async def compute(computation: Computation) -> CachedPage | None:
            nonlocal was_sent
            forward = (lambda status: self._with_cache_status(send, status)) if computation.client_waits else None
            recorder = ResponseRecorder(computation, forward, self._media_types, self._known_vary)
            receiving = receive if computation.client_waits else recorder.receive
            await self._app(_scope_to_compute(scope), receiving, recorder.send)
            was_sent = was_sent or recorder.was_sent
            return recorder.page()

        # If a header is repeated, the first one counts.
        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        item = self._item(scope) if self._item is not None else None
        served = await pages.serve(_hash_bytes(self._key.text(scope, headers)), compute, item)
        if served is not None and not was_sent:
            await self._send(scope, headers, served, send)

    async def _bypass_reason(self, original: Scope, scope: Scope) -> str:
        """Return why a request bypasses the cache, or an empty string."""
        if any(name == b"range" for name, _ in scope["headers"]):
            return "range"
        if asks_for_uncached(scope["query_string"]):
            return "unwanted"
        personal = self._key.is_personal(scope) if self._personal is None else self._personal(original)
        if not isinstance(personal, bool):
            personal = await personal
        return "personal" if personal else ""

    async def _send(self, scope: Scope, request_headers: dict[bytes, bytes], served: ServedPage, send: Send) -> None:
        headers = list(_raw_headers(served.headers(self._name), self._key.vary))
        if_none_match = request_headers.get(b"if-none-match")
        status, body = served.page.status, served.page.body
        if (
            if_none_match is not None
            and status == 200
            and is_not_modified(served.etag, if_none_match.decode("latin-1"))
        ):
            status, body = 304, b""
            headers = [pair for pair in headers if pair[0] not in (b"content-type", b"content-encoding")]
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
