"""Small helpers for lists and replies, in one place.

- `chunks(items, size)` splits a list, so that one call to Valkey or SQL stays small.
- `pairs(flat)` reads a flat reply `[name, value, name, value, …]`, as Lua, HSCAN and ZSCAN return it.
- `pairs_to_dict(flat)` does the same for a hash.

To loop over SCAN, HSCAN, SSCAN or ZSCAN use `plaza.core.valkey.scan_pages`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of at most `size` items, in order. No item, no list."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def pairs(flat: Sequence[T]) -> list[tuple[T, T]]:
    """Return `[(a, b), (c, d)]` for `[a, b, c, d]`."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def pairs_to_dict(flat: Sequence[T]) -> dict[T, T]:
    """Return `{a: b, c: d}` for `[a, b, c, d]`."""
    return dict(zip(flat[::2], flat[1::2], strict=True))
