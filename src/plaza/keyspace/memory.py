"""What takes how much memory, by family: keys, bytes, what never expires, and the biggest.

Every name is looked at once (`SCAN`, on a cluster on all nodes), so keys are counted, not estimated. What a key takes
is asked of Valkey for each one, or with `sample` for the first few of each family, for all that are long, and then for
some, taken by chance: the sum is then an estimate, and says how far off it may be. A few people have more than all
others together, and chance would miss them, in the sum and in what is said of its error; so every key is asked how long
it is, which costs Valkey next to nothing. Nothing is kept of a key but its part in a sum, so memory does not grow with
the keyspace.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from plaza.core.keyspace import Access, Catalogue, Key, KeyType
from plaza.core.valkey import Valkey
from plaza.keyspace.families import Families

# Names to a page, and so commands sent together: Valkey serves others in between.
NAMES: Final = 200
# Of each family so many are always measured: most families with few keys are the ones with a large one.
CERTAIN: Final = 50
# What has so many members, or bytes of a string, is long.
LONG: Final = 100
LONG_TEXT: Final = 4_096
BIGGEST: Final = 3
# Valkey weighs so many members of a large key and takes the others for alike.
MEMBERS: Final = 20
# How often the truth is within the error that is stated: 95 times of 100.
Z: Final = 1.96
UNKNOWN: Final = "unknown"

_LENGTH: Final[Mapping[KeyType, str]] = {
    "hash": "HLEN",
    "list": "LLEN",
    "set": "SCARD",
    "stream": "XLEN",
    "string": "STRLEN",
    "zset": "ZCARD",
}


@dataclass(slots=True)
class Spread:
    """Sum and variance of what was measured, one value at a time (Welford)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    lasting: int = 0  # those without expiry

    def add(self, value: float, *, lasting: bool) -> None:
        self.count += 1
        self.lasting += lasting
        delta = value - self.mean
        self.mean += delta / self.count
        self.squares += delta * (value - self.mean)

    @property
    def total(self) -> float:
        return self.mean * self.count

    @property
    def variance(self) -> float:
        return self.squares / (self.count - 1) if self.count > 1 else 0.0


@dataclass(slots=True)
class Usage:
    """What a family takes."""

    pattern: str
    domain: str
    key: Key | None = None
    keys: int = 0
    short: int = 0  # of the keys, those that are not long
    long: Spread = field(default_factory=Spread)
    certain: Spread = field(default_factory=Spread)  # the first of the short ones
    chosen: Spread = field(default_factory=Spread)  # of the rest, by chance
    biggest: list[tuple[int, str]] = field(default_factory=list)

    def see(self, *, long: bool, chance: Callable[[], bool]) -> Spread | None:
        """Count a key. Where it belongs if it is to be measured, else None."""
        self.keys += 1
        if long:
            return self.long
        self.short += 1
        if self.short <= CERTAIN:
            return self.certain
        return self.chosen if chance() else None

    def add(self, name: str, size: int, spread: Spread, *, lasting: bool) -> None:
        spread.add(size, lasting=lasting)
        item = (size, self._shown(name))
        if len(self.biggest) < BIGGEST:
            heapq.heappush(self.biggest, item)
        else:
            heapq.heappushpop(self.biggest, item)

    def lose(self, spread: Spread) -> None:
        """A key has gone since it was counted."""
        self.keys -= 1
        self.short -= spread is not self.long

    def _shown(self, name: str) -> str:
        """A name that is itself a secret, or holds a session's token, is not for a screen."""
        secret = self.key is not None and (self.key.read is Access.NOBODY or "token" in self.key.parts)
        return self.pattern if secret else name

    @property
    def measured(self) -> int:
        return self.long.count + self.certain.count + self.chosen.count

    @property
    def rest(self) -> int:
        """Keys beyond those that are measured for certain."""
        return self.short - self.certain.count

    @property
    def bytes(self) -> int:
        return round(self.long.total + self.certain.total + self.rest * self._typical.mean)

    @property
    def _typical(self) -> Spread:
        return self.chosen if self.chosen.count else self.certain

    @property
    def error(self) -> float:
        """Bytes by which the sum may be off. None of it where every key was measured."""
        unmeasured = self.rest - self.chosen.count
        if unmeasured <= 0:
            return 0.0
        few = self.chosen.count < 2  # then the others are as good a guess as any
        variance, count = (self.certain.variance, 1) if few else (self.chosen.variance, self.chosen.count)
        return Z * self.rest * math.sqrt(variance / count * (unmeasured / self.rest))

    @property
    def share_lasting(self) -> float:
        """Of its keys, those that never expire."""
        typical = self._typical.lasting / self._typical.count if self._typical.count else 0.0
        return (self.long.lasting + self.certain.lasting + self.rest * typical) / self.keys if self.keys else 0.0


@dataclass(slots=True)
class Memory:
    """All families, the largest first."""

    usages: list[Usage]
    complete: bool

    @property
    def keys(self) -> int:
        return sum(usage.keys for usage in self.usages)

    @property
    def bytes(self) -> int:
        return sum(usage.bytes for usage in self.usages)

    @property
    def error(self) -> float:
        return math.sqrt(sum(usage.error**2 for usage in self.usages))

    def record(self) -> dict[str, Any]:
        """For programs."""
        return {
            "complete": self.complete,
            "keys": self.keys,
            "bytes": self.bytes,
            "error_bytes": round(self.error),
            "families": [
                {
                    "domain": usage.domain,
                    "pattern": usage.pattern,
                    "keys": usage.keys,
                    "measured": usage.measured,
                    "bytes": usage.bytes,
                    "error_bytes": round(usage.error),
                    "share_without_expiry": round(usage.share_lasting, 4),
                    "biggest": [{"key": name, "bytes": size} for size, name in sorted(usage.biggest, reverse=True)],
                }
                for usage in self.usages
            ],
        }


class Survey:
    """One look at all keys. `sample` is how many are to be measured, about; None for all."""

    def __init__(
        self, valkey: Valkey, catalogues: Sequence[Catalogue], *, sample: int | None = None, seed: int | None = None
    ) -> None:
        self._valkey = valkey
        self._families = Families(catalogues, valkey.layout)
        self._sample = sample
        self._random = random.Random(seed)
        self._found: dict[str, Usage] = {}

    async def run(self, progress: Callable[[int, int], None] = lambda done, total: None) -> Memory:
        """Look; `progress` hears how many keys of how many are done."""
        total = sum([int(await node.call("DBSIZE")) for node in self._valkey.primaries()])
        chance = 1.0 if self._sample is None else min(1.0, self._sample / max(total, 1))
        done = 0
        for node in self._valkey.primaries():
            async for names in _pages(node):
                await self._look(node, names, chance)
                done += len(names)
                progress(done, total)
        usages = sorted(self._found.values(), key=lambda usage: -usage.bytes)
        return Memory(usages, all(usage.measured == usage.keys for usage in usages))

    async def _look(self, node: Valkey, names: list[bytes], chance: float) -> None:
        usages = [self._usage(name.decode(errors="replace")) for name in names]
        # Where all are measured it does not matter which are long.
        longs = await _are_long(node, names, usages) if chance < 1.0 else [False] * len(names)
        chosen: list[tuple[Usage, bytes, Spread]] = []
        for usage, name, long in zip(usages, names, longs, strict=True):
            spread = usage.see(long=long, chance=lambda: self._random.random() < chance)
            if spread is not None:
                chosen.append((usage, name, spread))
        sizes = await node.batch([("MEMORY", "USAGE", name, "SAMPLES", MEMBERS) for _, name, _ in chosen], raw=True)
        lives = await node.batch([("PTTL", name) for _, name, _ in chosen], raw=True)
        for (usage, name, spread), size, life in zip(chosen, sizes, lives, strict=True):
            if size is None:
                usage.lose(spread)
            else:
                usage.add(name.decode(errors="replace"), size, spread, lasting=life == -1)

    def _usage(self, name: str) -> Usage:
        match = self._families.match(name)
        pattern, domain = (match[0].key.pattern, match[0].domain) if match else (UNKNOWN, UNKNOWN)
        if pattern not in self._found:
            self._found[pattern] = Usage(pattern, domain, match[0].key if match else None)
        return self._found[pattern]


async def _are_long(node: Valkey, names: Sequence[bytes], usages: Sequence[Usage]) -> list[bool]:
    """Of each key whether it is long. One that nobody knows, or that is not of its family's type, may be anything."""
    types = [usage.key.type if usage.key else "string" for usage in usages]
    asked = [(_LENGTH[type_], name) for type_, name in zip(types, names, strict=True)]
    lengths = await node.batch(asked, raw=True, return_errors=True)
    return [
        not isinstance(length, int) or length >= (LONG_TEXT if type_ == "string" else LONG)
        for type_, length in zip(types, lengths, strict=True)
    ]


async def _pages(node: Valkey) -> AsyncIterator[list[bytes]]:
    cursor = b"0"
    while True:
        cursor, names = await node.call("SCAN", cursor, "COUNT", NAMES, raw=True)
        yield names
        if cursor == b"0":
            return
