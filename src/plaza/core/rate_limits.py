"""How often one may ask: by user, and by address. One function call a request, atomic; `limits.lua` does the counting.

Every request counts against its address, and against its user if it has one. On one server that is a single step. On
a cluster the two keys live on different nodes: they are asked at once, and if one refuses, the other gets its request
back. In between, others may see one request too many, so a limit is at worst a little too strict, never too lax.

The API key is not limited: it is our own servers'. Refused requests are not counted, so a client that keeps knocking is
let in as soon as one that waits.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

import msgspec

from plaza.core.auth import API_NAME
from plaza.core.clock import Clock
from plaza.core.errors import TooFast
from plaza.core.functions import Functions, Library
from plaza.core.keys import CATALOGUE, LIMIT_ADDRESS, LIMIT_USER

LIBRARY: Final = Library.read("limits", CATALOGUE, "plaza.core", "rate_limits")


@dataclass(frozen=True, slots=True)
class Quota:
    """So many requests in so many seconds: all at once if one likes, then one by one as they come back."""

    count: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Policy:
    """What one kind of request allows a user, and an address."""

    user: Quota
    address: Quota


# An address may be an office, a school or a mobile carrier, so it gets several times what one person needs.
POLICIES: Final[Mapping[str, Policy]] = {
    # A page of the site makes a few dozen reads at once; twenty a second is a script that should use larger pages.
    "read": Policy(user=Quota(1_200, 60), address=Quota(6_000, 60)),
    # Nobody likes, votes or posts twice a second for a minute.
    "write": Policy(user=Quota(120, 60), address=Quota(600, 60)),
    # Guessing passwords must not pay: ten tries at one name, whoever tries, then one a minute. From one address more,
    # since a class may register together, but in the long run one in five seconds. A success gives the try back.
    "auth": Policy(user=Quota(10, 600), address=Quota(120, 600)),
    # A mail costs its sender's reputation and its reader's patience: a few an hour are enough for any user.
    "mail": Policy(user=Quota(5, 3_600), address=Quota(60, 3_600)),
    # One beat in 30 s for each of a few tabs and devices. A hall full of viewers may share one address.
    "heartbeat": Policy(user=Quota(30, 60), address=Quota(6_000, 60)),
    # A token makes a stranger a viewer who counts. A hall full of them may come at once, but not again every minute.
    "viewer": Policy(user=Quota(30, 600), address=Quota(300, 600)),
    # A call to the proxy may hold many commands. One that writes counts as a write besides.
    "proxy": Policy(user=Quota(600, 60), address=Quota(3_000, 60)),
}


class LimitState(msgspec.Struct, frozen=True):
    """Where a caller stands, for the `RateLimit` headers: the scarcer of what its user and its address have left."""

    kind: str
    quota: Quota
    left: int
    seconds: int  # until the quota is whole again; after a refusal, until the next request may come

    def headers(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """`RateLimit-Policy` and `RateLimit`, as draft-ietf-httpapi-ratelimit-headers-10 has them."""
        return (
            ("ratelimit-policy", f'"{self.kind}";q={self.quota.count};w={self.quota.seconds}'),
            ("ratelimit", f'"{self.kind}";r={self.left};t={self.seconds}'),
        )


class RateLimited(TooFast):
    """429, with where the caller stands."""

    def __init__(self, limit: LimitState, retry_after: float) -> None:
        super().__init__("Too many requests of this kind. Wait a little.", retry_after=retry_after)
        self.limit = limit


# Whom a request counts against: its key, and what it may.
Subject = tuple[str, Quota]

# What the function says of a subject: requests left, ms until its quota is whole again, ms to wait.
Standing = list[int]


class Limiter:
    """Counts requests by kind. Switched off, it costs nothing."""

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
        self._clock = clock  # None: the server's, which all processes share

    async def take(self, kind: str, name: str | None, address: str | None) -> LimitState | None:
        """Count one request, or raise `RateLimited`. None if nothing is limited. One round trip.

        For `auth`, `name` is the one that was tried, whether anybody has it or not.
        """
        if not self._on or (name is not None and name.startswith(API_NAME)):
            return None
        subjects = self._subjects(kind, name, address)
        (_, quota), (left, whole_ms, wait_ms) = _scarcest(subjects, await self._ask(subjects))
        if wait_ms:
            seconds = -(-wait_ms // 1000)
            raise RateLimited(LimitState(kind, quota, 0, seconds), seconds)
        return LimitState(kind, quota, left, -(-whole_ms // 1000))

    async def give_back(self, kind: str, name: str) -> None:
        """Uncount a user's request: the password was right, so this was no guess."""
        if self._on:
            await self._give_back((LIMIT_USER(kind, user_subject(name)), self._policies[kind].user))

    def _subjects(self, kind: str, name: str | None, address: str | None) -> list[Subject]:
        policy, subjects = self._policies[kind], []
        if name is not None:
            subjects.append((LIMIT_USER(kind, user_subject(name)), policy.user))
        if address is not None:
            subjects.append((LIMIT_ADDRESS(kind, address_subject(address)), policy.address))
        assert subjects, "a request is somebody's or comes from somewhere"
        return subjects

    async def _ask(self, subjects: list[Subject]) -> list[Standing]:
        if len(subjects) == 1 or not self._functions.valkey.clustered:
            return await self._spend(subjects)
        answers = await asyncio.gather(*(self._spend([subject]) for subject in subjects))
        standings = [answer[0] for answer in answers]
        if any(wait_ms for _, _, wait_ms in standings):
            counted = [s for s, (_, _, wait_ms) in zip(subjects, standings, strict=True) if not wait_ms]
            await asyncio.gather(*map(self._give_back, counted))
        return standings

    async def _spend(self, subjects: list[Subject]) -> list[Standing]:
        keys, args = [], [self._now()]
        for key, quota in subjects:
            keys.append(key)
            args += (quota.count, quota.seconds * 1000)
        standings: list[Standing] = await self._functions.run("limits_spend", keys, *args)
        return standings

    async def _give_back(self, subject: Subject) -> None:
        key, quota = subject
        await self._functions.run("limits_give_back", [key], self._now(), quota.count, quota.seconds * 1000)

    def _now(self) -> str | int:
        return "" if self._clock is None else self._clock.now_ms()


def _scarcest(subjects: list[Subject], standings: list[Standing]) -> tuple[Subject, Standing]:
    """Who must wait longest; if nobody must, who has least left."""
    pairs = zip(subjects, standings, strict=True)
    return min(pairs, key=lambda pair: (-pair[1][2], pair[1][0]))


_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,64}")


@lru_cache(4096)
def user_subject(name: str) -> str:
    """A name as part of a key. What cannot be a name is only counted, so its hash will do."""
    return name if _PLAIN.fullmatch(name) else _hashed(name)


@lru_cache(4096)
def address_subject(address: str) -> str:
    """An address as part of a key. Of IPv6 the network: who has one address there has 2^64."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return _hashed(address)
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped) if parsed.ipv4_mapped else parsed.packed[:8].hex()
    return str(parsed)


def _hashed(text: str) -> str:
    # The tilde keeps it apart from any name or address.
    return "~" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
