"""Rate limits by user and by address. One atomic function call per request; `rate_limits.lua` counts.

Every request counts against its address, and against its user if it has one. On one server that is a single step. On
a cluster the two keys are on different nodes: both are called at once, and if one refuses, the other gets its request
back. In between, others may see one request too many, so a limit may be a little too strict, never too lax.

API keys are not limited, because they belong to trusted servers. Refused requests are not counted, so a client that
keeps trying is accepted as soon as one that waits. Each process remembers refusals and repeats them without Valkey.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

import msgspec
from msgspec import Struct

from plaza.core.auth import API_NAME
from plaza.core.clock import Clock
from plaza.core.errors import TooFast
from plaza.core.functions import Functions, Library
from plaza.core.keys import CATALOGUE, LIMIT_ADDRESS, LIMIT_USER

LIBRARY: Final = Library.read("limits", CATALOGUE, "plaza.core", "rate_limits")


class Quota(Struct, frozen=True):
    """A number of requests in a time. They may be used at once, and come back evenly."""

    count: int
    seconds: int


class Policy(Struct, frozen=True):
    """The quotas of one kind of request, for a user and for an address. None: addresses are not counted."""

    user: Quota
    address: Quota | None


# An address may be an office, a school or a mobile carrier, so it gets several times a user's quota.
POLICIES: Final[Mapping[str, Policy]] = {
    # A page makes a few dozen reads at once. A script that needs twenty a second should use larger pages.
    "read": Policy(user=Quota(1_200, 60), address=Quota(6_000, 60)),
    # No user likes, votes or posts twice a second for a minute.
    "write": Policy(user=Quota(120, 60), address=Quota(600, 60)),
    # Against guessing passwords (`sign_in_limits.py`): attempts per username from all addresses. The quota can be
    # used up at once and comes back within the hour, so an hour has at most a hundred. An address gets more, because a
    # class may sign in together, but on average one in five seconds. A success is not counted.
    "auth": Policy(user=Quota(50, 3_600), address=Quota(120, 600)),
    # The same for a username at one address, and for a username in a browser where the user has signed in before.
    "guess": Policy(user=Quota(10, 1_800), address=None),
    "device": Policy(user=Quota(10, 600), address=None),
    # A report costs an admin's time.
    "report": Policy(user=Quota(20, 3_600), address=Quota(100, 3_600)),
    # A class may register together.
    "register": Policy(user=Quota(10, 600), address=Quota(120, 600)),
    # A mail costs its sender's reputation and its reader's patience: a few an hour are enough for any user.
    "mail": Policy(user=Quota(5, 3_600), address=Quota(60, 3_600)),
    # All data of a user, from every domain.
    "export": Policy(user=Quota(5, 3_600), address=Quota(60, 3_600)),
    # Each is stored for a week. Many guests may share an address, but not this many in every hour.
    "session": Policy(user=Quota(30, 600), address=Quota(3_000, 3_600)),
    # One heartbeat in 30 s for each of a few tabs and devices. Many viewers may share an address.
    "heartbeat": Policy(user=Quota(30, 60), address=Quota(6_000, 60)),
    # Each token is another anonymous viewer. Many may come from one address at once, but not again every minute.
    "viewer": Policy(user=Quota(30, 600), address=Quota(300, 600)),
    # A request to the proxy may have many commands. One that writes also counts as a write.
    "proxy": Policy(user=Quota(600, 60), address=Quota(3_000, 60)),
}


class LimitState(msgspec.Struct, frozen=True):
    """A caller's quota, for the `RateLimit` headers: the user's or the address's, whichever has fewer requests left."""

    kind: str
    quota: Quota
    left: int
    seconds: int  # until the quota is full again; after a refusal, until the next request is accepted

    def headers(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """`RateLimit-Policy` and `RateLimit`, as in draft-ietf-httpapi-ratelimit-headers-10."""
        return (
            ("ratelimit-policy", f'"{self.kind}";q={self.quota.count};w={self.quota.seconds}'),
            ("ratelimit", f'"{self.kind}";r={self.left};t={self.seconds}'),
        )


class RateLimited(TooFast):
    """429 with the caller's quota."""

    def __init__(self, limit: LimitState, retry_after: float) -> None:
        wait = f"{retry_after:.0f} s" if retry_after < 120 else f"{math.ceil(retry_after / 60)} min"
        super().__init__(f"Too many requests in a short time. Try again in {wait}.", retry_after=retry_after)
        self.limit = limit


# Refusals that a process remembers, so that a client that keeps trying costs no round trip and no work.
MAX_REMEMBERED_REFUSALS: Final = 20_000

# What a request counts against: the key of a user or an address, and its quota.
Subject = tuple[str, Quota]

# The reply for a subject: requests left, ms until its quota is full again, ms to wait.
SubjectState = list[int]


class Limiter:
    """Counts requests by kind."""

    def __init__(
        self,
        functions: Functions,
        *,
        on: bool = True,
        policies: Mapping[str, Policy] = POLICIES,
        clock: Clock | None = None,
    ) -> None:
        self._functions = functions
        self._on = on
        self._policies = policies
        self._clock = clock  # None: Valkey's clock, which all processes share
        self._refused_until: dict[str, float] = {}  # by key, in seconds of `_local_time`

    async def take(self, kind: str, name: str | None, address: str | None, requests: int = 1) -> LimitState | None:
        """Count a request, or raise `RateLimited`. None if the request is not limited. One round trip.

        For `auth`, `name` is the username that was tried, whether it exists or not. A request that is much work counts
        as several `requests`; one that needs more than the whole quota needs the whole quota.
        """
        if not self._limits(name):
            return None
        subjects = self._subjects(kind, name, address)
        self._require_not_refused(kind, subjects)
        states = await self._count(subjects, requests)
        (_, quota), (left, full_ms, wait_ms) = _scarcest(subjects, states)
        if wait_ms:
            if requests == 1:  # a request that is less work may be accepted
                self._remember_refusals(subjects, states)
            seconds = -(-wait_ms // 1000)
            raise RateLimited(LimitState(kind, quota, 0, seconds), seconds)
        return LimitState(kind, quota, left, -(-full_ms // 1000))

    def require_not_refused(self, kind: str, name: str | None, address: str | None) -> None:
        """Raise `RateLimited` if this process knows that the request is one too many. No I/O."""
        if self._refused_until and self._limits(name):
            self._require_not_refused(kind, self._subjects(kind, name, address))

    def _require_not_refused(self, kind: str, subjects: list[Subject]) -> None:
        if not self._refused_until:
            return
        now = self._local_time()
        for key, quota in subjects:
            wait = self._refused_until.get(key, now) - now
            if wait > 0:
                seconds = math.ceil(wait)
                raise RateLimited(LimitState(kind, quota, 0, seconds), seconds)

    def _remember_refusals(self, subjects: list[Subject], states: list[SubjectState]) -> None:
        if len(subjects) > 1 and self._functions.valkey.clustered:
            return  # it may be due to a request that is about to be given back
        now = self._local_time()
        if len(self._refused_until) >= MAX_REMEMBERED_REFUSALS:
            self._refused_until = {key: until for key, until in self._refused_until.items() if until > now}
        if len(self._refused_until) >= MAX_REMEMBERED_REFUSALS:
            self._refused_until.clear()
        for (key, _), (_, _, wait_ms) in zip(subjects, states, strict=True):
            if wait_ms:
                self._refused_until[key] = now + wait_ms / 1000

    def _limits(self, name: str | None) -> bool:
        return self._on and not (name is not None and name.startswith(API_NAME))

    def _local_time(self) -> float:
        return time.monotonic() if self._clock is None else self._clock.now_ms() / 1000

    async def give_back(self, kind: str, name: str) -> None:
        """Undo the count of a user's request, for instance because the password was right."""
        if self._on:
            await self._give_back((LIMIT_USER(kind, user_subject(name)), self._policies[kind].user))

    def _subjects(self, kind: str, name: str | None, address: str | None) -> list[Subject]:
        policy, subjects = self._policies[kind], []
        if name is not None:
            subjects.append((LIMIT_USER(kind, user_subject(name)), policy.user))
        if address is not None and policy.address is not None:
            subjects.append((LIMIT_ADDRESS(kind, address_subject(address)), policy.address))
        assert subjects, "a request has a user or an address"
        return subjects

    async def _count(self, subjects: list[Subject], requests: int) -> list[SubjectState]:
        if len(subjects) == 1 or not self._functions.valkey.clustered:
            return await self._spend(subjects, requests)
        answers = await asyncio.gather(*(self._spend([subject], requests) for subject in subjects))
        states = [answer[0] for answer in answers]
        if any(wait_ms for _, _, wait_ms in states):
            counted = [s for s, (_, _, wait_ms) in zip(subjects, states, strict=True) if not wait_ms]
            await asyncio.gather(*(self._give_back(subject, requests) for subject in counted))
        return states

    async def _spend(self, subjects: list[Subject], requests: int) -> list[SubjectState]:
        keys, args = [], [self._now(), requests]
        for key, quota in subjects:
            keys.append(key)
            args += (quota.count, quota.seconds * 1000)
        states: list[SubjectState] = await self._functions.run("limits_spend", keys, *args)
        return states

    async def _give_back(self, subject: Subject, requests: int = 1) -> None:
        key, quota = subject
        self._refused_until.pop(key, None)
        await self._functions.run("limits_give_back", [key], self._now(), requests, quota.count, quota.seconds * 1000)

    def _now(self) -> str | int:
        return "" if self._clock is None else self._clock.now_ms()


def _scarcest(subjects: list[Subject], states: list[SubjectState]) -> tuple[Subject, SubjectState]:
    """The subject that must wait longest; if none must, the one with the fewest requests left."""
    pairs = zip(subjects, states, strict=True)
    return min(pairs, key=lambda pair: (-pair[1][2], pair[1][0]))


_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,64}")


@lru_cache(4096)
def user_subject(name: str) -> str:
    """A username as part of a key. A text that is not a valid name is hashed, because it is only counted."""
    return name if _PLAIN.fullmatch(name) else _hashed(name)


@lru_cache(4096)
def address_subject(address: str) -> str:
    """An address as part of a key. For IPv6 it is the /64 network, because a client has all of its addresses."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return _hashed(address)
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped) if parsed.ipv4_mapped else parsed.packed[:8].hex()
    return str(parsed)


def _hashed(text: str) -> str:
    # No username or address starts with a tilde.
    return "~" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
