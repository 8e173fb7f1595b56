"""Names whose earlier tokens are void: those deleted, renamed or suspended, each with the moment.

A token cannot be taken back, so what it is checked against must be at hand: each process mirrors the whole list and a
check costs no round trip. Valkey tells when the list changes (a tracked read), and the process then reads what is new:
cut-offs are noted with the time, so that is the end of the list. Everything is read again, in pages, at start, after a
lost connection, when the sizes differ, and once an hour in case a clock was so wrong that the end was not the end.

While Valkey is away no news can come, and none can be made either. The mirror stays as it was, and is read anew before
the process hears of anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

import structlog

from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.keys import TOKEN_CUTOFFS
from plaza.core.tokens import MAX_TOKEN_AGE_SECONDS
from plaza.core.valkey import ReplyError, Valkey

NEVER: Final = -1

# Names a read. A thousand take Valkey a fraction of a millisecond.
PAGE: Final = 1_000

# How far the clocks of those who note cut-offs may be apart.
SKEW_MS: Final = 60_000

ANEW_SECONDS: Final = 3_600.0
RETRY_SECONDS: Final = 0.2

log = structlog.get_logger("plaza.auth")


class Revocations:
    """`of(name)` is the Unix time in milliseconds up to which that name's tokens are void.

    Without a Valkey it is an empty list, for who only issues tokens.
    """

    def __init__(
        self,
        valkey: Valkey | None = None,
        *,
        clock: Clock | None = None,
        page: int = PAGE,
        anew_seconds: float = ANEW_SECONDS,
    ) -> None:
        self._valkey = valkey
        self._clock = clock or Clock()
        self._page = page
        self._anew_seconds = anew_seconds
        self._ms: dict[str, int] = {}
        self._noted: dict[str, int] = {}  # by this process, while it was reading everything
        self._read_ms = 0  # when the list was last read
        self._changed = asyncio.Event()
        self._unsure = False  # about everything, not only about the end
        self._following: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], None] = lambda: None

    def of(self, username: str) -> int:
        """The latest cut-off of a name, or `NEVER`. No I/O."""
        return self._ms.get(username, NEVER)

    def __len__(self) -> int:
        return len(self._ms)

    async def start(self) -> None:
        """Read the list, and follow it from now on."""
        assert self._valkey is not None
        self._unlisten = self._valkey.on_invalidate(self._invalidated)
        try:
            await self._read_all()
        except BaseException:
            self._unlisten()
            raise
        self._following = asyncio.create_task(self._follow())

    async def close(self) -> None:
        self._unlisten()
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following

    async def note(self, username: str) -> int:
        """Void all tokens this name has now, everywhere. One round trip."""
        assert self._valkey is not None
        # Later than any token of the name: one issued since its last cut-off may be dated just after that.
        at = max(self._clock.now_ms(), self.of(username) + 1)
        await self._valkey.call("ZADD", TOKEN_CUTOFFS(), "GT", at, username)
        self._noted[username] = at
        self._put(self._ms, username, at)
        return at

    def _invalidated(self, keys: list[str] | None) -> None:
        if keys is None or TOKEN_CUTOFFS() in keys:
            self._unsure = self._unsure or keys is None
            self._changed.set()

    async def _follow(self) -> None:
        failing = False
        while True:
            try:
                async with asyncio.timeout(self._anew_seconds):
                    await self._changed.wait()
            except TimeoutError:
                self._unsure = True
            try:
                await self._refresh()
                failing = False
            except (Unavailable, ReplyError) as error:
                if not failing:  # once, not at every try
                    log.warning("cut-offs cannot be read; trying until they can", error=str(error))
                failing = self._unsure = True
                self._changed.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _refresh(self) -> None:
        self._changed.clear()
        if not self._unsure:
            size = await self._read_end()
            # Sizes differ if names were removed, or noted with a time long past. If the list has changed again, the
            # next round will tell.
            if size != len(self._ms) and not self._changed.is_set():
                self._unsure = True
        if self._unsure:
            await self._read_all()

    async def _read_end(self) -> int:
        """Take in what was noted since the last reading; says how many names there are in all."""
        assert self._valkey is not None
        since, self._read_ms = self._read_ms - SKEW_MS, self._clock.now_ms()
        # Tracked, and before the rest: what changes after it will be told.
        size: int = await self._valkey.tracked("ZCARD", TOKEN_CUTOFFS())
        offset, found = 0, self._page
        while found == self._page:
            page = ("LIMIT", offset, self._page, "WITHSCORES")
            rows = await self._valkey.call("ZRANGE", TOKEN_CUTOFFS(), since, "+inf", "BYSCORE", *page)
            for username, score in rows:
                self._put(self._ms, username, int(score))
            offset, found = offset + self._page, len(rows)
        return size

    async def _read_all(self) -> None:
        assert self._valkey is not None
        self._unsure = False  # before reading: what is lost from here on makes us unsure again
        self._noted, fresh, cursor = {}, {}, "0"
        self._read_ms = self._clock.now_ms()
        oldest = self._read_ms - MAX_TOKEN_AGE_SECONDS * 1000
        try:
            await self._valkey.call("ZREMRANGEBYSCORE", TOKEN_CUTOFFS(), "-inf", oldest)
            await self._valkey.tracked("ZCARD", TOKEN_CUTOFFS())
            while True:
                cursor, flat = await self._valkey.call("ZSCAN", TOKEN_CUTOFFS(), cursor, "COUNT", self._page)
                for username, score in _pairs(flat):
                    fresh[username] = int(float(score))
                if cursor in ("0", 0):
                    break
        except BaseException:
            self._unsure = True
            raise
        for username, at in self._noted.items():
            self._put(fresh, username, at)
        self._ms = fresh

    @staticmethod
    def _put(into: dict[str, int], username: str, at: int) -> None:
        into[username] = max(at, into.get(username, NEVER))


def _pairs(flat: list[Any]) -> list[tuple[str, Any]]:
    # ZSCAN answers one flat list, whatever the protocol.
    return list(zip(flat[::2], flat[1::2], strict=True))
