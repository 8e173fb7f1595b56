"""What this process has at hand, dropped the moment it changes in Valkey, never merely by age.

A value is kept only if nothing has changed its key since Valkey began to watch it for us: watched first, read second,
and kept unless news came in between. News of a change that this process made itself comes with the reply to it, so that
whoever has awaited the change sees it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from plaza.core.valkey import Valkey

T = TypeVar("T")


class TrackingCache(Generic[T]):
    """Values by the names of their keys, the least used going first."""

    def __init__(self, valkey: Valkey, most: int) -> None:
        self._valkey = valkey
        self._most = most
        self._values: OrderedDict[str, T] = OrderedDict()
        self._coming: dict[str, object] = {}
        self.close = valkey.on_invalidate(self._changed)

    def get(self, key: str) -> T | None:
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
        return found

    def drop(self, key: str) -> None:
        self._values.pop(key, None)
        self._coming.pop(key, None)

    def put(self, key: str, value: T) -> None:
        """Keep a value that was read in the order of the wire (`ask_tracked`)."""
        self._values[key] = value
        if len(self._values) > self._most:
            self._values.popitem(last=False)

    async def read(self, key: str, read: Callable[[], Awaitable[T | None]]) -> T | None:
        """Read a value and keep it. Two round trips, once for as long as it does not change."""
        mark = self._coming[key] = object()
        await self._valkey.tracked("EXISTS", key)
        found = await read()
        if self._coming.get(key) is mark:
            del self._coming[key]
            if found is not None:
                self.put(key, found)
        return found

    def _changed(self, keys: list[str] | None) -> None:
        if keys is None:
            self._values.clear()
            self._coming.clear()
            return
        for key in keys:
            self.drop(key)
