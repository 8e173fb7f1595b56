"""Revocations: users whose tokens issued before a time are void, because they were deleted, renamed or suspended.

Every process holds the whole list in memory, so a check costs no round trip. Valkey notifies the process when the list
changes (a tracked read), and the process reads what is new: the list is sorted by time, so that is its end. The whole
list is read again, in pages, at start, after a lost connection, when the sizes differ, and once an hour in case a wrong
clock put a new entry elsewhere than at the end.

While Valkey is unreachable no revocation can be stored. The list in memory stays, and is read again on reconnection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import structlog

from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.keys import ENDED_SESSIONS, TOKEN_CUTOFFS
from plaza.core.keyspace import Key
from plaza.core.number_parsing import MAX_TIME_MS
from plaza.core.sequences import pairs
from plaza.core.tokens import ACCESS_TOKEN_SECONDS, MAX_CLOCK_SKEW_SECONDS, MAX_TOKEN_AGE_SECONDS
from plaza.core.valkey import ReplyError, Valkey, scan_pages

NOT_REVOKED: Final = -1

# `<username>@tokens` revokes access tokens only, after a role or password change or a logout. Sessions stay: they read
# the current role. No username contains `@`.
TOKENS_ONLY: Final = "@tokens"

# Entries per read. A thousand take Valkey a fraction of a millisecond.
PAGE_SIZE: Final = 1_000

# How far the clocks of writers may differ.
MAX_SKEW_MS: Final = 60_000

FULL_READ_SECONDS: Final = 3_600.0
RETRY_SECONDS: Final = 0.2

# Access tokens of ended sessions are Plaza's own and expire soon, so this list stays short.
ENDED_SESSION_SECONDS: Final = ACCESS_TOKEN_SECONDS + MAX_CLOCK_SKEW_SECONDS + MAX_SKEW_MS // 1000

log = structlog.get_logger("plaza.auth")


class Revocations:
    """The revocations of all users, or of ended sessions. Without a Valkey the list is empty, for programs that only
    issue tokens."""

    def __init__(
        self,
        valkey: Valkey | None = None,
        *,
        clock: Clock | None = None,
        key: Key = TOKEN_CUTOFFS,
        kept_seconds: int = MAX_TOKEN_AGE_SECONDS,
        page_size: int = PAGE_SIZE,
        full_read_seconds: float = FULL_READ_SECONDS,
    ) -> None:
        self._valkey = valkey
        self._clock = clock or Clock()
        self._key = key
        self._kept_seconds = kept_seconds
        self._page_size = page_size
        self._full_read_seconds = full_read_seconds
        self._revoked_ms: dict[str, int] = {}
        self._own: dict[str, int] = {}  # revocations by this process during a full read
        self._read_ms = 0  # when the list was last read
        self._changed = asyncio.Event()
        self._needs_full_read = False
        self._task: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None] = lambda: None

    def revoked_ms(self, username: str) -> int:
        """The Unix time in milliseconds up to which a user's tokens are void, or `NOT_REVOKED`. No I/O."""
        return self._revoked_ms.get(username, NOT_REVOKED)

    def token_revoked_ms(self, username: str) -> int:
        """As `revoked_ms`, for access tokens. No I/O."""
        revoked = self._revoked_ms
        return max(revoked.get(username, NOT_REVOKED), revoked.get(username + TOKENS_ONLY, NOT_REVOKED))

    def __len__(self) -> int:
        return len(self._revoked_ms)

    async def start(self) -> None:
        """Read the list and follow its changes until `close`."""
        assert self._valkey is not None
        self._stop_listening = self._valkey.on_invalidate(self._invalidated)
        try:
            await self._read_all()
        except BaseException:
            self._stop_listening()
            raise
        self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        self._stop_listening()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def revoke(self, username: str) -> int:
        """Make all tokens and sessions that a user has now void, in every process. One round trip."""
        return await self.add(username, self.next_ms(username))

    def next_ms(self, username: str) -> int:
        """The time of a revocation now: no token of the user is later. No I/O.

        A token issued after the last revocation may be dated just after that. If the clock was set back, the tokens
        issued before are dated later than now.
        """
        return max(self._clock.latest_ms(), self.token_revoked_ms(username) + 1)

    async def revoke_access_tokens(self, username: str, at_ms: int) -> int:
        """Make the access tokens that were issued up to a time void, in every process. One round trip."""
        return await self.add(username + TOKENS_ONLY, at_ms)

    async def add(self, member: str, at: int) -> int:
        """Make what was issued to a member up to a time void, in every process. One round trip."""
        assert self._valkey is not None
        await self._valkey.call("ZADD", self._key(), "GT", at, member)
        self._own[member] = at
        _put(self._revoked_ms, member, at)
        return at

    def _invalidated(self, keys: list[str] | None) -> None:
        if keys is None or self._key() in keys:
            self._needs_full_read = self._needs_full_read or keys is None
            self._changed.set()

    async def _follow(self) -> None:
        failing = False
        while True:
            try:
                async with asyncio.timeout(self._full_read_seconds):
                    await self._changed.wait()
            except TimeoutError:
                self._needs_full_read = True
            try:
                await self._refresh()
                failing = False
            except (Unavailable, ReplyError) as error:
                if not failing:  # log once, not at every attempt
                    log.warning("revocations_unreadable", error=str(error), retry_seconds=RETRY_SECONDS)
                failing = self._needs_full_read = True
                self._changed.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _refresh(self) -> None:
        self._changed.clear()
        if not self._needs_full_read:
            size = await self._read_end()
            # Sizes differ if entries were removed, or added with a time long past. If the list has changed again, the
            # next iteration finds out.
            if size != len(self._revoked_ms) and not self._changed.is_set():
                self._needs_full_read = True
        if self._needs_full_read:
            await self._read_all()

    async def _read_end(self) -> int:
        """Read the revocations since the last read. Returns the size of the whole list."""
        assert self._valkey is not None
        since, self._read_ms = self._read_ms - MAX_SKEW_MS, self._clock.now_ms()
        # Tracked, and before the rest: a change after it causes a notification.
        size: int = await self._valkey.tracked("ZCARD", self._key())
        offset, found = 0, self._page_size
        while found == self._page_size:
            page = ("LIMIT", offset, self._page_size, "WITHSCORES")
            rows = await self._valkey.call("ZRANGE", self._key(), since, "+inf", "BYSCORE", *page)
            for username, score in rows:
                _put(self._revoked_ms, username, _as_ms(score))
            offset, found = offset + self._page_size, len(rows)
        return size

    async def _read_all(self) -> None:
        assert self._valkey is not None
        self._needs_full_read = False  # before reading: a connection lost during the read sets it again
        self._own, fresh = {}, {}
        self._read_ms = self._clock.now_ms()
        oldest = self._read_ms - self._kept_seconds * 1000
        try:
            await self._valkey.call("ZREMRANGEBYSCORE", self._key(), "-inf", oldest)
            await self._valkey.tracked("ZCARD", self._key())
            async for page in scan_pages(self._valkey, "ZSCAN", self._key(), count=self._page_size):
                for username, score in pairs(page):
                    fresh[username] = _as_ms(score)
        except BaseException:
            self._needs_full_read = True
            raise
        for username, at in self._own.items():
            _put(fresh, username, at)
        self._revoked_ms = fresh


def _put(into: dict[str, int], username: str, at: int) -> None:
    into[username] = max(at, into.get(username, NOT_REVOKED))


def _as_ms(score: str | float) -> int:
    """Return a score as a time. An operator may write `+inf`, which revokes a name permanently."""
    return int(min(max(float(score), 0), MAX_TIME_MS))


def ended_sessions(valkey: Valkey, clock: Clock) -> Revocations:
    """Return the list of API sessions that have ended."""
    return Revocations(valkey, clock=clock, key=ENDED_SESSIONS, kept_seconds=ENDED_SESSION_SECONDS)
