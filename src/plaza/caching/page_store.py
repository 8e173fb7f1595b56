"""Reads and writes cached pages in Valkey: each method is one call of the Lua library."""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from plaza.caching.keys import TAG, CacheKeys
from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions

FRESH_SECONDS: Final = 300.0
# How long after that a page may be served while it is renewed.
OLD_SECONDS: Final = 300.0
# Longer than any page takes. If the computing process dies, others wait no longer than this.
LEASE_SECONDS: Final = 20.0
# Only the pages of this many most viewed items are stored.
MAX_POPULAR_ITEMS: Final = 10_000
# XFetch's β: above 1 renews earlier.
BETA: Final = 1.0
PURGE_BATCH: Final = 500
MAX_PAGE_BYTES: Final = 1024 * 1024

_TAG = re.compile(TAG)

Headers = tuple[tuple[str, str], ...]
PageClaim = Literal["yours", "busy", "there"]


class CachedPage(Struct, frozen=True):
    """A page as it is sent. `headers` are its own; the cache adds more."""

    body: bytes
    status: int = 200
    headers: Headers = ()
    tags: tuple[str, ...] = ()
    fresh_seconds: float | None = None  # a shorter time than the cache's own
    etag: str = ""  # the application's own, if it is a strong one


class _PageHead(msgspec.Struct, frozen=True, array_like=True):
    """What is stored of a page beside its body."""

    status: int
    headers: Headers
    etag: str


class ServedPage(Struct, frozen=True):
    """A page, and what the cache did for it."""

    page: CachedPage
    etag: str
    cache_status: str  # the parameters of the `Cache-Status` header
    age: int | None = None  # seconds since it was computed; None for a new page
    personal: bool = False  # for one user only: no other cache may store it

    def headers(self, cache_name: str) -> Headers:
        """Return the page's headers with those of the cache."""
        etag = (("etag", self.etag),) if self.etag else ()
        age = () if self.age is None else (("age", str(self.age)),)
        return (*self.page.headers, *etag, *age, ("cache-status", f"{cache_name}; {self.cache_status}"))


_encode = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(_PageHead).decode


class StoredPage(Struct, frozen=True):
    """A page as Valkey has it. Times are Unix milliseconds."""

    page: CachedPage
    etag: str
    made_ms: float
    fresh_until_ms: float
    cost_ms: float
    read_ms: float  # by Valkey's clock …
    read_monotonic: float  # … and by this process's monotonic clock, in seconds

    @classmethod
    def from_lua(cls, reply: Sequence[Any]) -> StoredPage:
        body, head, made, until, cost, now, is_foreign = reply
        stored = _decode_head(head)
        page = CachedPage(body, stored.status, stored.headers)
        etag = page_etag(page) if is_foreign else stored.etag
        return cls(page, etag, float(made), float(until), float(cost), float(now), monotonic())

    def now_ms(self, clock: Clock | None) -> float:
        return self.read_ms + (monotonic() - self.read_monotonic) * 1000 if clock is None else clock.now_ms()

    @property
    def was_fresh(self) -> bool:
        return self.read_ms <= self.fresh_until_ms

    def should_renew_early(self, now_ms: float, beta: float) -> bool:
        """Decide by XFetch: the nearer the end and the more expensive the page, the likelier."""
        # 1 - random() is never 0, which has no logarithm.
        return now_ms - self.cost_ms * beta * math.log(1.0 - random.random()) >= self.fresh_until_ms

    def as_hit(self, now_ms: float) -> ServedPage:
        ttl = math.floor((self.fresh_until_ms - now_ms) / 1000)
        age = max(0, math.floor((now_ms - self.made_ms) / 1000))
        return ServedPage(self.page, self.etag, f"hit; ttl={ttl}", age)


class PageCacheOptions(Struct, frozen=True):
    """How long pages are stored, and which."""

    fresh_seconds: float = FRESH_SECONDS
    old_seconds: float = OLD_SECONDS
    lease_seconds: float = LEASE_SECONDS
    popular: int = MAX_POPULAR_ITEMS
    beta: float = BETA


class PageStore:
    """Cached pages in Valkey. Without a clock, Valkey's own is used, which all processes share."""

    def __init__(self, functions: Functions, options: PageCacheOptions, clock: Clock | None = None) -> None:
        self.functions = functions
        self.keys = CacheKeys(functions.catalogues["caching"])
        self.options = options
        self.clock = clock

    async def read(self, page: str) -> StoredPage | Literal["pass", "busy", ""]:
        """Return a page; else "pass" if it is not cacheable, "busy" if a request computes it, or "" if none does."""
        # Raw bytes, since a page may have any encoding.
        reply = await self.functions.query("caching_page", self.keys.page(page), self._now(), raw=True)
        if reply[0] is not None:
            return StoredPage.from_lua(reply)
        state: Literal["pass", "busy", ""] = reply[1].decode()
        return state

    async def claim(self, page: str, request: str, *, early: bool = False) -> PageClaim:
        """Ask for the right to compute a page; with `early` also while it is fresh."""
        lease_ms = round(self.options.lease_seconds * 1000)
        args = (request, self._now(), lease_ms, "1" if early else "0")
        claimed: PageClaim = await self.functions.run("caching_claim_page", self.keys.page(page), *args)
        return claimed

    async def store(self, page: str, request: str, computed: CachedPage, etag: str, cost_ms: float) -> bool:
        """Store a computed page. Return False if the claim was lost, the page was purged, or Valkey is unavailable."""
        fresh = self.options.fresh_seconds
        if computed.fresh_seconds is not None:
            fresh = min(fresh, computed.fresh_seconds)
        head = _encode(_PageHead(computed.status, computed.headers, etag))
        times = (self._now(), f"{cost_ms:.3f}", round(fresh * 1000), round(self.options.old_seconds * 1000))
        args = (page, request, computed.body, head, *times, *computed.tags)
        try:
            return bool(await self.functions.run("caching_store_page", self.keys.page(page), *args))
        except Unavailable:
            return False

    async def give_up(self, page: str, request: str, *, not_cacheable: bool) -> None:
        """End a claim without a page."""
        args = (request, "1" if not_cacheable else "0", self._now())
        await self.functions.run("caching_give_up_page", self.keys.page(page), *args)

    async def let_pass(self, page: str, request: str) -> None:
        """Let other requests compute the page while this one does, which still may store it."""
        await self.functions.run("caching_let_pass", self.keys.page(page), request)

    async def is_popular(self, item: str) -> bool:
        rank = await self.functions.valkey.call("ZRANK", self.keys.views(), item)
        return rank is not None and rank < self.options.popular

    async def purge(self, tag: str) -> int:
        """Drop every page with a tag, also one that is being computed. Return the number of stored ones."""
        if not is_tag(tag):
            raise ValueError("Invalid tag. Use 1 to 64 of A-Z, a-z, 0-9, `_`, `.` and `-`.")
        total = 0
        while True:
            args = (tag, self._now(), PURGE_BATCH)
            dropped: int = await self.functions.run("caching_purge", [self.keys.tag(tag)], *args)
            total += dropped
            if dropped < PURGE_BATCH:
                return total

    def _now(self) -> int | str:
        return "" if self.clock is None else self.clock.now_ms()


def page_hash(parts: Iterable[str]) -> str:
    """Return the name of a page: the same for the same request, in every process."""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def page_etag(page: CachedPage) -> str:
    """Return the page's own strong validator, or a hash of its content, which is the same in every process."""
    return page.etag or f'"{hashlib.sha256(page.body).hexdigest()[:32]}"'


def is_tag(text: str) -> bool:
    return _TAG.fullmatch(text) is not None


def is_cacheable(page: CachedPage) -> bool:
    """Return whether a page may be served to other users."""
    if page.status != 200 or len(page.body) > MAX_PAGE_BYTES or not all(map(is_tag, page.tags)):
        return False
    return has_cacheable_headers(page.headers)


def has_cacheable_headers(headers: Iterable[tuple[str, str]]) -> bool:
    """Return whether no header forbids a shared cache."""
    for raw, value in headers:
        name = raw.lower()
        if name == "set-cookie":
            return False
        words = {word.partition("=")[0].strip().lower() for word in value.split(",")}
        # `no-cache` allows storing but demands a check on each use, which this cache does not do.
        if name == "cache-control" and words & {"private", "no-store", "no-cache"}:
            return False
        if name == "vary" and words & {"*", "cookie", "authorization"}:
            return False
    return True


def is_not_modified(etag: str, if_none_match: str | None) -> bool:
    """Return whether the client has this page already, by the weak comparison of RFC 9110, 13.1.2."""
    if not etag or if_none_match is None:
        return False
    known = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in known or etag in known
