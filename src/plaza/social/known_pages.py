"""Remembers pages that many readers have in common, such as the first of explore, until a key that they show changes.

What a page shows of its posts and their authors is the same for all viewers, but for likes, bookmarks and hidden users.
So it is looked up and put together once, and not for each reader.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

from plaza.core.valkey import Valkey

T = TypeVar("T")

# At least so many pages fit, however large they are: larger ones are not remembered.
PAGES_BY_BYTES: Final = 16


class KnownPages(Generic[T]):
    """Pages by what identifies them. When there are too many, or too many bytes, the least recently used are dropped.

    `entry_of` is as in `TrackingCache`. Valkey must track the keys of a page when it is put here, which is so for what
    `TrackingCache` has: this cache is as new as that one.
    """

    def __init__(self, valkey: Valkey, max_pages: int, max_bytes: int, entry_of: Callable[[str], str] = str) -> None:
        self._max_pages = max_pages
        self._max_bytes = max_bytes
        self._entry_of = entry_of
        self._bytes = 0
        self._pages: OrderedDict[Hashable, tuple[T, int, tuple[str, ...]]] = OrderedDict()
        self._names_by_key: dict[str, set[Hashable]] = {}
        self._asked: OrderedDict[Hashable, bool] = OrderedDict()  # False for a page that was too large
        valkey.on_invalidate(self._invalidate)

    def get(self, name: Hashable) -> T | None:
        found = self._pages.get(name)
        if found is None:
            return None
        self._pages.move_to_end(name)
        return found[0]

    def is_wanted(self, name: Hashable) -> bool:
        """Whether a page has been asked for lately: to remember one that is read once costs more than it saves."""
        is_wanted = self._asked.get(name)
        if is_wanted is not None:
            return is_wanted
        self._asked[name] = True
        if len(self._asked) > self._max_pages:
            self._asked.popitem(last=False)
        return False

    def put(self, name: Hashable, page: T, size: int, keys: Iterable[str]) -> None:
        """Remember a page of this many bytes that depends on these keys, unless it takes the place of many others."""
        if name in self._pages:
            self._drop(name)
        if size > self._max_bytes // PAGES_BY_BYTES:
            self._asked[name] = False
            return
        unique = tuple(dict.fromkeys(keys))
        self._pages[name] = page, size, unique
        self._bytes += size
        for key in unique:
            self._names_by_key.setdefault(key, set()).add(name)
        while len(self._pages) > self._max_pages or self._bytes > self._max_bytes:
            self._drop(next(iter(self._pages)))

    def _drop(self, name: Hashable) -> None:
        _, size, keys = self._pages.pop(name)
        self._bytes -= size
        for key in keys:
            names = self._names_by_key[key]
            names.discard(name)
            if not names:
                del self._names_by_key[key]

    def _invalidate(self, keys: list[str] | None) -> None:
        if keys is None:
            self._pages.clear()
            self._bytes = 0
            self._names_by_key.clear()
            return
        for key in map(self._entry_of, keys):
            for name in list(self._names_by_key.get(key, ())):
                self._drop(name)
