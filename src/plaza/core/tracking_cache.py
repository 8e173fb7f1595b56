"""A cache in the process whose entries are dropped when their key changes in Valkey, not by age.

Valkey starts to track a key before its value is read, and the value is cached unless an invalidation arrived in
between. The invalidation of this process's own change arrives with its reply, so a caller that awaited the change sees
it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from plaza.core.valkey import Valkey

T = TypeVar("T")


class TrackingCache(Generic[T]):
    """Values by key. When it is full, the least recently used values are dropped.

    `entry_of` is for values that are read from several keys: it returns the entry that an invalidated key is part of.
    `size_of` is for values of different sizes; without it each has the size 1.
    """

    def __init__(
        self,
        valkey: Valkey,
        max_size: int,
        entry_of: Callable[[str], str] = str,
        size_of: Callable[[T], int] = lambda _: 1,
    ) -> None:
        self._valkey = valkey
        self._max_size = max_size
        self._entry_of = entry_of
        self._size_of = size_of
        self._size = 0
        self._values: OrderedDict[str, T] = OrderedDict()
        self._loading: dict[str, object] = {}
        self.close = valkey.on_invalidate(self._invalidate)

    def get(self, key: str) -> T | None:
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
        return found

    def get_all(self, keys: Iterable[str]) -> list[T] | None:
        """Return the values of these keys; None if one is not cached."""
        values, found = self._values, list[T]()
        for key in keys:
            value = values.get(key)
            if value is None:
                return None
            values.move_to_end(key)
            found.append(value)
        return found

    def drop(self, key: str) -> None:
        dropped = self._values.pop(key, None)
        if dropped is not None:
            self._size -= self._size_of(dropped)
        self._loading.pop(key, None)

    def put(self, key: str, value: T) -> None:
        """Cache a value in reply order, from the `store` callback of a tracked read."""
        replaced = self._values.pop(key, None)
        self._values[key] = value
        self._size += self._size_of(value) - (0 if replaced is None else self._size_of(replaced))
        while self._size > self._max_size:
            _, dropped = self._values.popitem(last=False)
            self._size -= self._size_of(dropped)

    async def load(self, key: str, read: Callable[[], Awaitable[T | None]]) -> T | None:
        """Read and cache a value. Two round trips, once until it changes."""
        marker = self._loading[key] = object()
        try:
            await self._valkey.tracked("EXISTS", key)
            found = await read()
        finally:
            is_current = self._loading.get(key) is marker
            if is_current:
                del self._loading[key]
        if is_current and found is not None:
            self.put(key, found)
        return found

    def _invalidate(self, keys: list[str] | None) -> None:
        if keys is None:
            self._values.clear()
            self._size = 0
            self._loading.clear()
            return
        for key in map(self._entry_of, keys):
            self.drop(key)
