"""Pieces of pages that are kept by what they say: all that a piece says is in its key, so one that is found is always
right, and nothing has to be told of changes.

`functools.lru_cache` counts pieces, and people decide how long a piece is: four thousand of the longest would take what
a process has. Here bytes are counted. There are two halves: what is asked for is, or moves, in the younger one; when
that is full it becomes the older one, and what nobody has asked for since the last time is forgotten. To find a piece
is a lookup in a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from typing import Any, Final, TypeVar, TypeVarTuple

from msgspec import Struct
from msgspec.structs import astuple

T = TypeVar("T")
What = TypeVarTuple("What")

# Of each kind of piece: some five thousand of a usual size, which is a kilobyte.
ROOM: Final = 8_000_000


class Kept(dict[tuple[*What], T]):
    """Pieces by what they say, made by a function of that alone. A dictionary, since pages ask it fifty times each."""

    __slots__ = ("_half", "_make", "_old", "_weight")

    def __init__(self, make: Callable[[*What], T], room: int) -> None:
        self._make = make
        self._half = room // 2
        self._old: dict[tuple[*What], T] = {}
        self._weight = 0  # of the younger half, which is this dictionary itself

    def __missing__(self, what: tuple[*What]) -> T:
        made = self._old.pop(what, None) or self._make(*what)
        weight = _weight(what) + _weight(made)
        if self._weight + weight > self._half:
            self._old, self._weight = dict(self), 0
            self.clear()
        if weight <= self._half:
            self[what] = made
            self._weight += weight
        return made


def kept(room: int = ROOM) -> Callable[[Callable[[*What], T]], Kept[*What, T]]:
    """For a function that makes a piece: it is then asked for by `piece[what, it, says]`."""
    return lambda make: Kept(make, room)


def _weight(value: Any) -> int:
    """What a value takes, with all that is in it."""
    if isinstance(value, Struct):
        value = astuple(value)
    return getsizeof(value) + (sum(map(_weight, value)) if isinstance(value, tuple) else 0)
