"""Caches HTML fragments by everything they show, so a cached fragment is never stale and needs no invalidation.

`functools.lru_cache` limits the number of entries, but users decide how long a fragment is: 4,000 of the longest would
fill the memory of a process. This cache limits bytes. It has two halves: an entry that is read is in, or moves to, the
young half. When the young half is full, it becomes the old half, and the entries of the previous old half are dropped.
A hit costs one dictionary lookup.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from typing import Any, Final, TypeVar, TypeVarTuple

from msgspec import Struct
from msgspec.structs import astuple

T = TypeVar("T")
Key = TypeVarTuple("Key")

# Per kind of fragment: about 5,000 fragments of the usual size, one kilobyte.
MAX_BYTES: Final = 8_000_000


_CACHES: Final[list[Any]] = []


def clear_fragments() -> None:
    """Drop all cached fragments, because something that all of them depend on has changed."""
    for cache in _CACHES:
        cache.reset()


class FragmentCache(dict[tuple[*Key], T]):
    """Fragments by their key, built by a function of the key alone. A dictionary, since a page reads it 50 times."""

    __slots__ = ("_build", "_bytes", "_half_bytes", "_old")

    def __init__(self, build: Callable[[*Key], T], max_bytes: int) -> None:
        self._build = build
        self._half_bytes = max_bytes // 2
        self._old: dict[tuple[*Key], T] = {}
        self._bytes = 0  # of the young half, which is this dictionary itself
        _CACHES.append(self)

    def reset(self) -> None:
        """Drop everything."""
        self.clear()
        self._old, self._bytes = {}, 0

    def __missing__(self, key: tuple[*Key]) -> T:
        value = self._old.pop(key, None) or self._build(*key)
        size = _size(key) + _size(value)
        if self._bytes + size > self._half_bytes:
            self._old, self._bytes = dict(self), 0
            self.clear()
        if size <= self._half_bytes:
            self[key] = value
            self._bytes += size
        return value


def cached_fragment(max_bytes: int = MAX_BYTES) -> Callable[[Callable[[*Key], T]], FragmentCache[*Key, T]]:
    """Decorate a function that builds a fragment. Read it with `function[argument, …]`."""
    return lambda build: FragmentCache(build, max_bytes)


def _size(value: Any) -> int:
    """The bytes that a value takes, with everything in it."""
    if isinstance(value, Struct):
        value = astuple(value)
    return getsizeof(value) + (sum(map(_size, value)) if isinstance(value, tuple) else 0)
