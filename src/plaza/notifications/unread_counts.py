"""How many notifications users have not read: cached in the process, and sent to listeners when it changes.

Valkey tells the process when a key changes that a count was read from. So a page shows the count without a round trip
while it is the same, and a listener costs nothing while nothing happens, however many there are.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from time import monotonic
from typing import Final

from plaza.core.event_hub import MAX_LISTENERS, TooManyListeners
from plaza.core.functions import Functions
from plaza.notifications.keys import NOTIFICATIONS_UNREAD
from plaza.notifications.recorder import Recorder

# About 200 bytes each.
MAX_CACHED: Final = 20_000
# A post that thousands like at once changes its author's notifications all the time.
PAUSE_SECONDS: Final = 0.25
# For a Valkey user that may read keys but not track them.
MAX_WAIT_SECONDS: Final = 30.0
# Then a client connects again, and its access is checked again: it may have signed out or been suspended.
MAX_LISTENING_SECONDS: Final = 300.0
# Browsers and devices of one user.
MAX_PER_USER: Final = 20


class UnreadCounts:
    """The counts of users who are here."""

    def __init__(self, functions: Functions, recorder: Recorder) -> None:
        self._functions = functions
        self._recorder = recorder
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._names: dict[str, str] = {}  # by each key that a cached count depends on
        self._listeners: dict[str, set[asyncio.Event]] = {}
        self._listening = 0
        self._callbacks: list[Callable[[str], None]] = []
        self.close = functions.valkey.on_invalidate(self._invalidate)

    async def get(self, username: str) -> int:
        """Return how many notifications a user has not read. No round trip if it is cached, else one."""
        cached = self._counts.get(username)
        if cached is not None:
            self._counts.move_to_end(username)
            return cached
        keys = self._recorder.keys(username)
        return int(
            await self._functions.query_tracked(
                "notifications_unread", keys, username, store=lambda count: self._store(username, int(count))
            )
        )

    def on_change(self, call: Callable[[str], None]) -> None:
        """Call a function with the username whenever a count may have changed that was read before."""
        self._callbacks.append(call)

    def changes(self, username: str) -> AsyncGenerator[int, None]:
        """Return the count now, then each time it is another one, for five minutes. Raises `TooManyListeners`."""
        if self._listening >= MAX_LISTENERS or len(self._listeners.get(username, ())) >= MAX_PER_USER:
            raise TooManyListeners("Try again later, or read the count instead.")
        return self._follow(username)

    async def _follow(self, username: str) -> AsyncGenerator[int, None]:
        changed = asyncio.Event()
        self._listeners.setdefault(username, set()).add(changed)
        self._listening += 1
        last, end = -1, monotonic() + MAX_LISTENING_SECONDS
        try:
            while monotonic() < end:
                changed.clear()
                count = await self.get(username)
                if count != last:
                    last = count
                    yield count
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), min(MAX_WAIT_SECONDS, max(0.0, end - monotonic())))
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self._listening -= 1
            self._listeners[username].discard(changed)
            if not self._listeners[username]:
                del self._listeners[username]

    def _store(self, username: str, count: int) -> None:
        self._counts[username] = count
        for key in self._keys(username):
            self._names[key] = username
        if len(self._counts) > MAX_CACHED:
            self._drop(next(iter(self._counts)))

    def _keys(self, username: str) -> list[str]:
        return [NOTIFICATIONS_UNREAD(username), *self._recorder.keys(username)[2:]]

    def _drop(self, username: str) -> None:
        self._counts.pop(username, None)
        for key in self._keys(username):
            self._names.pop(key, None)

    def _invalidate(self, keys: list[str] | None) -> None:
        names = list(self._counts) if keys is None else [self._names[key] for key in keys if key in self._names]
        for name in names:
            self._drop(name)
            for call in self._callbacks:
                call(name)
        for name in list(self._listeners) if keys is None else names:
            for listener in self._listeners.get(name, ()):
                listener.set()
