"""The page cache in front of any ASGI application: Starlette, FastAPI, or anything else.

    app.add_middleware(PageCache, store="valkey://localhost")

Only GET and HEAD are looked at, and only answers that say nothing against it are kept: status 200, `text/html`, no
`Set-Cookie`, no `Cache-Control: private`, `no-store` or `no-cache`, no `Vary` by a header that is not in `vary`. An
answer may name what it shows in `Cache-Tag: item-7, sale`; `await cache.purge("item-7")` then drops it everywhere.

A request with credentials or a cookie is taken for a person's own and passes by, unless `personal` knows better. A URL
with a parameter `_` (how scripts say "not from a cache") passes by, too.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import lru_cache
from time import monotonic
from typing import Any, Final
from urllib.parse import parse_qsl

from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from plaza.shop.pages import (
    LARGEST_PAGE,
    Headers,
    Page,
    Pages,
    Rules,
    Served,
    not_modified,
    page_hash,
    storable_headers,
)
from plaza.shop.store import opened

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# After the store could not be reached, requests go without it for so long before one tries again.
AWAY_SECONDS: Final = 1.0

# What the answer to a cached page depends on whatever the application says: whether it is somebody's own.
_OWN_VARY: Final = ("cookie", "authorization")
_CREDENTIALS: Final = frozenset((b"cookie", b"authorization", b"x-api-key"))
_AGE = re.compile(r"(?:^|[\s,])(s-maxage|max-age)\s*=\s*\"?(\d{1,9})")


def has_credentials(scope: Scope) -> bool:
    """Whether a request may be somebody's own: it brings a cookie or credentials."""
    return not _CREDENTIALS.isdisjoint([name for name, _ in scope["headers"]])


class PageCache:
    """ASGI middleware that keeps pages in Valkey.

    `store` is an address, or functions that are already connected. `item` gives the item that a request shows, if
    it shows one: its page is then kept only while the item is among the most viewed. `applies` says which requests are
    looked at (all by default), `personal` which are somebody's own. `vary` names headers whose values make another
    page, beside the URL.
    """

    def __init__(
        self,
        app: Application,
        store: str | Functions,
        *,
        rules: Rules | None = None,
        name: str = "plaza",
        item: Callable[[Scope], str | None] | None = None,
        applies: Callable[[Scope], bool] | None = None,
        personal: Callable[[Scope], bool | Awaitable[bool]] = has_credentials,
        vary: Sequence[str] = (),
    ) -> None:
        self._app = app
        self._store = store
        self._rules = rules or Rules()
        self._name = name
        self._item = item
        self._applies = applies
        self._personal = personal
        self._vary = tuple(sorted(header.lower() for header in vary))
        self._vary_names = [name.encode("latin-1") for name in self._vary]
        self._opening: asyncio.Task[Pages] | None = None
        self._away_until = 0.0
        self._pages: Pages | None = None if isinstance(store, str) else Pages(store, self._rules)

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
        # Read once; of a header that came twice the first counts.
        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        pages, why = self._pages, await self._bypass(scope, headers)
        if why:
            pages = None
        elif pages is None:
            try:
                pages = await self._open()
            except Unavailable:
                why = "store-away"
        if pages is None:
            await self._app(scope, receive, self._stamped(send, f"fwd=bypass; detail={why}"))
            return

        async def compute(attended: bool) -> Page | None:
            outward = self._stamped(send, "fwd=uri-miss; stored=?0") if attended else None
            recorder = Recorder(outward, self._vary)
            await self._app(_to_compute(scope), receive if attended else recorder.receive, recorder.send)
            return recorder.page()

        item = self._item(scope) if self._item is not None else None
        served = await pages.serve(self._hash_of(scope, headers), compute, item)
        if served is not None:
            await self._send(scope, headers, served, send)

    async def _bypass(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        """Why a request is not for the cache, or nothing."""
        if b"range" in headers:
            return "range"
        if asks_for_new(scope["query_string"]):
            return "unwanted"
        personal = self._personal(scope)
        if not isinstance(personal, bool):
            personal = await personal
        return "personal" if personal else ""

    def _hash_of(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        """What makes a request the same as another. The host is part of it: a page may hold its own address."""
        path = scope.get("raw_path") or scope["path"].encode()
        parts = [scope.get("scheme", "http").encode(), headers.get(b"host", b""), path, scope["query_string"]]
        parts += [name + b": " + headers.get(name, b"") for name in self._vary_names]
        return _hash_of_bytes(b"\n".join(parts))

    async def _send(self, scope: Scope, asked: dict[bytes, bytes], served: Served, send: Send) -> None:
        headers = list(_raw_headers(served.headers(self._name), self._vary))
        wanted = asked.get(b"if-none-match")
        status, body = served.page.status, served.page.body
        if wanted is not None and status == 200 and not_modified(served.etag, wanted.decode("latin-1")):
            status, body = 304, b""
            headers = [pair for pair in headers if pair[0] != b"content-type"]
        else:
            headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _stamped(self, send: Send, how: str) -> Send:
        """Sends an answer as it is, but for what the cache says of it."""

        async def stamped(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = [(b"cache-status", f"{self._name}; {how}".encode()), (b"vary", ", ".join(_OWN_VARY).encode())]
                message = {**message, "headers": [*message["headers"], *ours]}
            await send(message)

        return stamped

    async def purge(self, tag: str) -> int:
        """Drop every page with a tag, in every process. Returns how many there were."""
        return await (await self._open()).purge(tag)

    async def _open(self) -> Pages:
        """The cache, connected by the first who needs it. All who come meanwhile wait for that one attempt, and for a
        moment after it failed nobody tries: a store that does not answer must not keep readers in a queue."""
        if self._pages is not None:
            return self._pages
        if self._opening is None:
            if monotonic() < self._away_until:
                raise Unavailable("The store did not answer a moment ago.")
            self._opening = asyncio.create_task(self._connect())
        return await asyncio.shield(self._opening)

    async def _connect(self) -> Pages:
        assert isinstance(self._store, str)
        try:
            self._pages = Pages(await opened(self._store), self._rules)
        except Unavailable:
            self._away_until = monotonic() + AWAY_SECONDS
            raise
        finally:
            self._opening = None
        return self._pages

    async def close(self) -> None:
        """End what is being renewed; and the connection, if it is our own."""
        pages = self._pages
        if pages is None:
            return
        await pages.close()
        if isinstance(self._store, str):
            self._pages = None
            await pages.functions.outbox.drain()
            await pages.functions.valkey.close()


class Recorder:
    """Takes down what an application sends; what is not for keeping goes straight on to the reader.

    `receive` is what an application hears that computes for nobody in particular: a request without a body, and once
    it has answered that the reader is gone. Until then it waits: Starlette listens for the end while it streams.
    """

    def __init__(self, send: Send | None, vary: Sequence[str]) -> None:
        self._send = send
        self._vary = vary
        self._start: Message | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._passing = False
        self._complete = asyncio.Event()
        self._asked = False

    async def receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._complete.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            if not self._may_keep(message):
                await self._pass()
            return
        if self._passing:
            await self._forward(message)
        else:
            self._chunks.append(message.get("body", b""))
            self._size += len(self._chunks[-1])
            if self._size > LARGEST_PAGE:
                await self._pass(more_body=message.get("more_body", False))
        if not message.get("more_body", False):
            self._complete.set()

    def page(self) -> Page | None:
        if self._passing:
            return None
        assert self._start is not None, "the application sent nothing"
        if not self._complete.is_set():
            raise RuntimeError("the application broke off its answer")
        headers = _decoded(self._start["headers"])
        tags = tuple(tag.strip() for name, value in headers if name == "cache-tag" for tag in value.split(","))
        kept = tuple(pair for pair in headers if pair[0] not in ("cache-tag", "content-length", "etag"))
        strong = next((value for name, value in headers if name == "etag" and not value.startswith("W/")), "")
        return Page(b"".join(self._chunks), self._start["status"], kept, tags, _fresh_seconds(kept), strong)

    def _may_keep(self, start: Message) -> bool:
        headers = _decoded(start["headers"])
        kind = next((value for name, value in headers if name == "content-type"), "")
        varies = {word.strip().lower() for name, value in headers if name == "vary" for word in value.split(",")}
        return (
            start["status"] == 200
            and kind.startswith("text/html")
            and varies <= {*self._vary, ""}
            and _fresh_seconds(headers) != 0
            and storable_headers(headers)
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
def _hash_of_bytes(request: bytes) -> str:
    return page_hash([request.decode("latin-1")])


def _to_compute(scope: Scope) -> Scope:
    """The request that an application gets: for a HEAD, too, the page is computed, only its body is not sent.

    What a server lets applications send beyond plain messages, such as a file by its path, would go past the recorder.
    """
    offered = scope.get("extensions") or {}
    plain = {name: value for name, value in offered.items() if not name.startswith("http.response.")}
    return {**scope, "method": "GET", "extensions": plain}


def asks_for_new(query: bytes) -> bool:
    """Whether a URL has the parameter `_`, by which scripts ask for a page of their own."""
    if b"_" not in query and b"%5f" not in query.lower():
        return False
    return any(name == "_" for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True))


def _decoded(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    return tuple((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers)


def _fresh_seconds(headers: Headers) -> float | None:
    """How long a page says that it is good: `s-maxage` is meant for caches like this one, `max-age` for all."""
    said = {
        word: int(seconds)
        for name, value in headers
        if name == "cache-control"
        for word, seconds in _AGE.findall(value.lower())
    }
    return said.get("s-maxage", said.get("max-age"))


@lru_cache(2048)
def _raw_headers(headers: Headers, vary: Sequence[str]) -> tuple[tuple[bytes, bytes], ...]:
    """The headers with what later caches must know: what the page depends on, and that they should ask again."""
    said = [word.strip().lower() for name, value in headers if name == "vary" for word in value.split(",")]
    words = list(dict.fromkeys(word for word in (*said, *vary, *_OWN_VARY) if word))
    kept = [pair for pair in headers if pair[0] != "vary"]
    if not any(name == "cache-control" for name, _ in kept):
        kept.append(("cache-control", "no-cache"))
    kept.append(("vary", ", ".join(words)))
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in kept)
