"""A cache of whole pages: `cache:<hash>`, computed once however many ask, renewed before it is too late.

    fresh      it is served, and by XFetch some reader may be picked to renew it early: with `-cost · β · ln(random)`
               reaching the time that is left, the likelier the nearer the end and the dearer the page. That reader
               is served at once, too; the page is computed in the background.
    expired    one reader of all processes gets the right to compute it, the rest are served the old page
    missing    one computes it, the rest wait for it
    purged     something it shows has changed: the old page is not served either

Who computes holds a lease; if that process dies, another may after the lease. A page that turns out not to be for
storing (it sets a cookie, say) is not waited for.

This is the engine. `middleware.py` puts it in front of any ASGI application, and the shop's own pages use it directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import random
import re
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import msgspec
import structlog

from plaza.core import metrics
from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from plaza.core.tracking_cache import TrackingCache
from plaza.shop.keys import ITEM, SHOP_PAGE, SHOP_PAGE_TAG, SHOP_POPULAR, of_page

log = structlog.get_logger("plaza.shop")

FRESH_SECONDS: Final = 300.0
# How long after that the page may still be shown while another computes it.
OLD_SECONDS: Final = 300.0
# Longer than any page takes. If its process dies, others wait no longer than this.
LEASE_SECONDS: Final = 20.0
# How often one process looks whether another has the page ready.
LOOK_SECONDS: Final = 0.02
# Only pages of items that are viewed so often are worth keeping.
POPULAR: Final = 10_000
# XFetch's β: above 1 renews earlier.
BETA: Final = 1.0
PURGE_BATCH: Final = 500
# How many pages a process has at hand: some 10 MB of them.
HOT_PAGES: Final = 1_000
LARGEST_PAGE: Final = 1024 * 1024

_TAG = re.compile(ITEM)

_hits, _old, _computed, _passed = map(metrics.CACHE_PAGES.labels, ("hit", "old", "computed", "passed"))

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it is sent. `headers` are its own; those of the cache are added."""

    body: bytes
    status: int = 200
    headers: Headers = ()
    tags: tuple[str, ...] = ()
    fresh_seconds: float | None = None  # less than the cache's own, if it says so
    etag: str = ""  # the application's own, if it is a strong one


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a page beside its body."""

    status: int
    headers: Headers
    etag: str


@dataclass(frozen=True, slots=True)
class Served:
    """A page and what the cache did for it."""

    page: Page
    etag: str
    how: str  # the parameters of `Cache-Status`
    age: int | None = None  # seconds since it was computed; None if it was just now
    personal: bool = False  # it is somebody's own: no other cache may keep it either

    def headers(self, name: str) -> Headers:
        """The page's headers with the cache's."""
        own = (("etag", self.etag),) if self.etag else ()
        age = () if self.age is None else (("age", str(self.age)),)
        return (*self.page.headers, *own, *age, ("cache-status", f"{name}; {self.how}"))


# Computes a page, told whether a reader waits for it. None: it was sent to that reader already, and is not for storing.
Compute = Callable[[bool], Awaitable[Page | None]]

_encode = msgspec.json.Encoder().encode
_head = msgspec.json.Decoder(Head).decode


@dataclass(frozen=True, slots=True)
class _Found:
    page: Page
    etag: str
    made_ms: float
    until_ms: float
    cost_ms: float
    read_ms: float  # by the store's clock …
    read_at: float  # … and by ours, in seconds since some moment

    @classmethod
    def of(cls, reply: Sequence[Any]) -> _Found:
        body, head, made, until, cost, now = reply
        known = _head(head)
        page = Page(body, known.status, known.headers)
        return cls(page, known.etag, float(made), float(until), float(cost), float(now), monotonic())

    def now_ms(self, clock: Clock | None) -> float:
        return self.read_ms + (monotonic() - self.read_at) * 1000 if clock is None else clock.now_ms()

    def renew_early(self, now_ms: float, beta: float) -> bool:
        # 1 - random() is never 0, whose logarithm there is none.
        return now_ms - self.cost_ms * beta * math.log(1.0 - random.random()) >= self.until_ms

    def served(self, now_ms: float) -> Served:
        left = math.floor((self.until_ms - now_ms) / 1000)
        age = max(0, math.floor((now_ms - self.made_ms) / 1000))
        return Served(self.page, self.etag, f"hit; ttl={left}", age)


@dataclass(frozen=True, slots=True)
class Rules:
    """How pages are kept."""

    fresh_seconds: float = FRESH_SECONDS
    old_seconds: float = OLD_SECONDS
    lease_seconds: float = LEASE_SECONDS
    popular: int = POPULAR
    beta: float = BETA


class Pages:
    """Pages through Valkey."""

    def __init__(self, functions: Functions, rules: Rules | None = None, clock: Clock | None = None) -> None:
        self.functions = functions
        self.rules = rules or Rules()
        self.clock = clock  # None: Valkey's, which all processes share
        self._hot: TrackingCache[_Found] = TrackingCache(functions.valkey, HOT_PAGES)
        self._waiting: dict[str, asyncio.Task[bool]] = {}
        self._renewing: set[asyncio.Task[None]] = set()

    async def serve(self, page: str, compute: Compute, item: str | None = None) -> Served | None:
        """A page by its hash, from the cache or computed. No round trip if this process has it at hand.

        With an `item` it is kept only while that is among the most viewed. None: `compute` has sent it already.
        """
        at_hand = self._hot.get(SHOP_PAGE(page))
        if at_hand is not None:
            now = at_hand.now_ms(self.clock)
            if now <= at_hand.until_ms and not at_hand.renew_early(now, self.rules.beta):
                _hits.inc()
                return at_hand.served(now)
        who = secrets.token_hex(8)
        try:
            found = await self._found_or_claimed(page, who, item)
        except Unavailable:
            found = "fwd=bypass; detail=store-away"  # a page without its cache is better than none
        if isinstance(found, _Found):
            return await self._hit(page, found, compute)
        if found:
            _passed.inc()
            return await self._only_computed(compute, found)
        _computed.inc()
        return await self._computed(page, who, compute, "fwd=uri-miss", attended=True)

    async def _found_or_claimed(self, page: str, who: str, item: str | None) -> _Found | str:
        """The page; or why it is not kept; or, if that is empty, it is ours to compute."""
        while True:
            reply = await self._read(page)
            if reply[0] is not None:
                return await self._kept(page, _Found.of(reply))
            if reply[1] == b"pass":
                return "fwd=miss; stored=?0; detail=not-storable"
            if item is not None and not await self._is_popular(item):
                return "fwd=bypass; detail=unpopular"
            claimed = await self._claim(page, who)
            if claimed == "yours":
                return ""
            if claimed == "busy":
                await self._wait_for(page)

    async def _kept(self, page: str, found: _Found) -> _Found:
        """Have a fresh page at hand from now on, for as long as it does not change."""
        if found.read_ms > found.until_ms or self._hot.get(SHOP_PAGE(page)) is not None:
            return found

        async def read() -> _Found | None:
            reply = await self._read(page)
            again = None if reply[0] is None else _Found.of(reply)
            return again if again is not None and again.read_ms <= again.until_ms else None

        return await self._hot.read(SHOP_PAGE(page), read) or found

    async def _hit(self, page: str, found: _Found, compute: Compute) -> Served:
        now = found.now_ms(self.clock)
        fresh = now <= found.until_ms
        (_hits if fresh else _old).inc()
        if fresh and not found.renew_early(now, self.rules.beta):
            return found.served(now)
        who = secrets.token_hex(8)
        if await self._claim(page, who, early=fresh) == "yours":
            self._in_background(self._renew(page, who, compute))
        return found.served(now)

    async def _renew(self, page: str, who: str, compute: Compute) -> None:
        try:
            await self._computed(page, who, compute, "fwd=stale", attended=False)
        except Exception as error:  # the old page is out already; the next reader tries again
            log.warning("a page could not be renewed", error=str(error))

    async def _computed(self, page: str, who: str, compute: Compute, how: str, *, attended: bool) -> Served | None:
        """Compute a page and store it, under the claim that we hold."""
        begun = monotonic()
        try:
            made = await compute(attended)
        except BaseException:
            await self._give_up(page, who, not_storable=False)
            raise
        if made is None or not storable(made):
            await self._give_up(page, who, not_storable=True)
            return None if made is None else Served(made, "", f"{how}; stored=?0")
        etag = etag_of(made)
        stored = await self._store(page, who, made, etag, (monotonic() - begun) * 1000)
        return Served(made, etag, f"{how}; stored" if stored else f"{how}; stored=?0")

    async def _only_computed(self, compute: Compute, how: str) -> Served | None:
        made = await compute(True)
        return None if made is None else Served(made, etag_of(made) if storable(made) else "", how)

    async def _wait_for(self, page: str) -> None:
        """Until somebody else has the page ready, or has given up. All who wait in this process ask as one."""
        waiting = self._waiting.get(page)
        if waiting is None:
            waiting = self._waiting[page] = asyncio.create_task(self._wait(page))
            waiting.add_done_callback(lambda _: self._waiting.pop(page, None))
        if not await asyncio.shield(waiting):
            raise Unavailable("This page takes very long; try again shortly.")

    async def _wait(self, page: str) -> bool:
        until = monotonic() + 2 * self.rules.lease_seconds
        while monotonic() < until:
            await asyncio.sleep(LOOK_SECONDS)
            reply = await self._read(page)
            if reply[0] is not None or reply[1] != b"busy":
                return True
        return False

    async def _read(self, page: str) -> list[Any]:
        """Bytes, since a page may be in any encoding."""
        reply: list[Any] = await self.functions.query("shop_page", of_page(page), self._now(), raw=True)
        return reply

    async def _claim(self, page: str, who: str, *, early: bool = False) -> str:
        lease_ms = round(self.rules.lease_seconds * 1000)
        claimed: str = await self.functions.run(
            "shop_claim_page", of_page(page), who, self._now(), lease_ms, "1" if early else "0"
        )
        return claimed

    async def _store(self, page: str, who: str, made: Page, etag: str, cost_ms: float) -> bool:
        fresh = self.rules.fresh_seconds
        if made.fresh_seconds is not None:
            fresh = min(fresh, made.fresh_seconds)
        head = _encode(Head(made.status, made.headers, etag))
        times = (self._now(), f"{cost_ms:.3f}", round(fresh * 1000), round(self.rules.old_seconds * 1000))
        try:
            stored = await self.functions.run(
                "shop_store_page", of_page(page), page, who, made.body, head, *times, *made.tags
            )
        except Unavailable:
            return False
        return bool(stored)

    async def _give_up(self, page: str, who: str, *, not_storable: bool) -> None:
        with contextlib.suppress(Unavailable):  # then the lease runs out
            await self.functions.run("shop_give_up_page", of_page(page), who, "1" if not_storable else "0", self._now())

    async def _is_popular(self, item: str) -> bool:
        rank = await self.functions.valkey.call("ZRANK", SHOP_POPULAR(), item)
        return rank is not None and rank < self.rules.popular

    async def purge(self, tag: str) -> int:
        """Drop every page with a tag, also one that is being computed. Returns how many were stored."""
        if _TAG.fullmatch(tag) is None:
            raise ValueError("a tag is 1 to 64 of A-Z, a-z, 0-9, `_`, `.` and `-`")
        dropped = 0
        while True:
            some: int = await self.functions.run("shop_purge", [SHOP_PAGE_TAG(tag)], tag, self._now(), PURGE_BATCH)
            dropped += some
            if some < PURGE_BATCH:
                return dropped

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._renewing.add(task)
        task.add_done_callback(self._renewing.discard)

    async def drain(self) -> None:
        """Wait for pages that are being renewed, before the connection closes."""
        while self._renewing:
            await asyncio.gather(*self._renewing, return_exceptions=True)

    async def close(self) -> None:
        await self.drain()
        self._hot.close()

    def _now(self) -> int | str:
        return "" if self.clock is None else self.clock.now_ms()


def page_hash(parts: Iterable[str]) -> str:
    """The name of a page: the same for the same request, in every process."""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def etag_of(page: Page) -> str:
    """The page's own strong validator, or one from its content: the same in every process and after every restart."""
    return page.etag or f'"{hashlib.sha256(page.body).hexdigest()[:32]}"'


def storable(page: Page) -> bool:
    """Whether a page may be shown to others than the one it was computed for."""
    if page.status != 200 or len(page.body) > LARGEST_PAGE or any(_TAG.fullmatch(tag) is None for tag in page.tags):
        return False
    return storable_headers(page.headers)


def storable_headers(headers: Iterable[tuple[str, str]]) -> bool:
    for raw, value in headers:
        name = raw.lower()
        if name == "set-cookie":
            return False
        words = {word.partition("=")[0].strip().lower() for word in value.split(",")}
        # `no-cache` asks to be asked each time, which is what this cache is there to spare.
        if name == "cache-control" and words & {"private", "no-store", "no-cache"}:
            return False
        if name == "vary" and words & {"*", "cookie", "authorization"}:
            return False
    return True


def not_modified(etag: str, if_none_match: str | None) -> bool:
    """Whether a client has this page already. Comparison is weak, as RFC 9110, 13.1.2 asks."""
    if not etag or if_none_match is None:
        return False
    given = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in given or etag in given
