"""Records what an ASGI application sends, so that it can be stored, and passes on what others must not wait for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final

from plaza.caching.page_cache import Computation
from plaza.caching.page_store import MAX_PAGE_BYTES, CachedPage, Headers, has_cacheable_headers

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

_MAX_AGE: Final = re.compile(r"(?:^|[\s,])(s-maxage|max-age)\s*=\s*\"?(\d{1,9})")


class ResponseRecorder:
    """Records a response. One that is not cacheable, and a stream, go to the client as they come.

    A stream is a response that comes in parts without a `Content-Length`; it may never end. It is stored if it does.
    `forward(cache_status)` returns the client's `send`; None if no client waits. `receive` serves a computation without
    a client: it returns a request without a body, and a disconnect once the response is complete. Until then it waits,
    since Starlette listens for a disconnect while it streams.
    """

    def __init__(
        self,
        computation: Computation,
        forward: Callable[[str], Send] | None,
        media_types: Sequence[str],
        vary: frozenset[str],
    ) -> None:
        self._computation = computation
        self._forward = forward
        self._media_types = tuple(media_types)
        self._vary = vary
        self._start: Message = {}
        self._chunks: list[bytes] = []
        self._size = 0
        self._recording = True
        self._send: Send | None = None  # the client's, once it gets the response as it comes
        self._complete = asyncio.Event()
        self._request_sent = False

    @property
    def was_sent(self) -> bool:
        """Whether the client got the response already."""
        return self._send is not None

    async def receive(self) -> Message:
        if not self._request_sent:
            self._request_sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._complete.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            if not self._is_cacheable(_decode(message["headers"]), message["status"]):
                await self._stop_recording()
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._recording and self._size + len(body) > MAX_PAGE_BYTES:
            await self._stop_recording()
        elif self._recording and more and not self._has_length() and not self.was_sent:
            await self._send_as_it_comes("fwd=uri-miss", not_cacheable=False)
        if self._recording:
            self._chunks.append(body)
            self._size += len(body)
        if self._send is not None:
            await self._send(message)
        if not more:
            self._complete.set()

    def page(self) -> CachedPage | None:
        """Return the recorded page, or None if it is not cacheable."""
        if not self._recording or (self.was_sent and not self._complete.is_set()):
            return None
        assert self._start, "The application sent no response."
        if not self._complete.is_set():
            raise RuntimeError("The application did not complete its response.")
        headers = _decode(self._start["headers"])
        tags = tuple(tag.strip() for name, value in headers if name == "cache-tag" for tag in value.split(","))
        kept = tuple(pair for pair in headers if pair[0] not in ("cache-tag", "content-length", "etag"))
        etag = next((value for name, value in headers if name == "etag" and not value.startswith("W/")), "")
        return CachedPage(
            b"".join(self._chunks), self._start["status"], self._known(kept), tags, fresh_seconds(kept), etag
        )

    def _is_cacheable(self, headers: Headers, status: int) -> bool:
        content_type = next((value for name, value in headers if name == "content-type"), "")
        vary = {word.strip().lower() for name, value in headers if name == "vary" for word in value.split(",")}
        return (
            status == 200
            and content_type.startswith(self._media_types)
            and vary <= {*self._vary, ""}
            and fresh_seconds(headers) != 0
            and has_cacheable_headers(self._known(headers))
        )

    def _known(self, headers: Headers) -> Headers:
        """Return headers without a `Vary` by what selects pages: the cache adds its own."""
        return tuple(pair for pair in headers if pair[0] != "vary" or "cookie" not in self._vary)

    def _has_length(self) -> bool:
        return any(name.lower() == b"content-length" for name, _ in self._start["headers"])

    async def _stop_recording(self) -> None:
        self._recording = False
        await self._send_as_it_comes("fwd=uri-miss; stored=?0", not_cacheable=True)
        self._chunks.clear()

    async def _send_as_it_comes(self, cache_status: str, *, not_cacheable: bool) -> None:
        """Let other requests go on, and send the client what there is."""
        await self._computation.let_others_pass(not_cacheable=not_cacheable)
        if self.was_sent or self._forward is None:
            return
        self._send = self._forward(cache_status)
        await self._send(self._start)
        if self._chunks:
            await self._send({"type": "http.response.body", "body": b"".join(self._chunks), "more_body": True})


def _decode(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    return tuple((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers)


def fresh_seconds(headers: Headers) -> float | None:
    """Return how long a page says that it is fresh: `s-maxage` is for shared caches, `max-age` for all."""
    ages = {
        name: int(seconds)
        for header, value in headers
        if header == "cache-control"
        for name, seconds in _MAX_AGE.findall(value.lower())
    }
    return ages.get("s-maxage", ages.get("max-age"))
