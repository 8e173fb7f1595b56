"""A queue in which callers take turns, so that a caller with many requests does not delay the others."""

from __future__ import annotations

import asyncio
from collections import deque

from plaza.core.errors import Unavailable

Waiting = dict[str, deque[asyncio.Future[None]]]


class FairQueue:
    """Lets `slots` callers in at once. Others wait, each caller in an own line, and the lines take turns.

    If `limit` requests wait, the longest line loses its last one to a caller with a shorter line. Preferred callers
    have lines that are served first.
    """

    def __init__(self, slots: int, limit: int, refusal: str) -> None:
        self._free = slots
        self._limit = limit
        self._refusal = refusal
        self._count = 0
        self._preferred: Waiting = {}
        self._others: Waiting = {}

    async def enter(self, caller: str, *, preferred: bool = False) -> None:
        """Wait for a slot, or raise `Unavailable`. Call `leave` afterwards."""
        if self._free:
            self._free -= 1
            return
        lines = self._preferred if preferred else self._others
        if self._count >= self._limit:
            self._make_room(0 if preferred else len(lines.get(caller, ())))
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lines.setdefault(caller, deque()).append(place)
        self._count += 1
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.leave()  # it got its slot and was cancelled at the same moment
            else:
                self._remove(lines, caller, place)
            raise

    def leave(self) -> None:
        """Give the slot to the next line."""
        for lines in (self._preferred, self._others):
            while lines:
                caller, line = next(iter(lines.items()))
                place = line.popleft()
                self._count -= 1
                del lines[caller]
                if line:
                    lines[caller] = line  # behind the others
                if not place.done():
                    place.set_result(None)
                    return
        self._free += 1

    def _make_room(self, own: int) -> None:
        longest = max(self._others.values(), key=len, default=deque())
        if len(longest) <= max(own, 1):
            raise Unavailable(self._refusal, retry_after=2)
        longest.pop().set_exception(Unavailable(self._refusal, retry_after=2))
        self._count -= 1

    def _remove(self, lines: Waiting, caller: str, place: asyncio.Future[None]) -> None:
        line = lines.get(caller)
        if line is not None and place in line:
            line.remove(place)
            self._count -= 1
            if not line:
                del lines[caller]
