"""What takes how much memory, by family: keys, bytes, what never expires, and the biggest.

Every name is looked at once (`SCAN`, on a cluster on all nodes), so keys are counted, not estimated. What a key takes
is asked of Valkey for each one, or with `sample` for the first few of each family and then for some, taken by chance:
the sum is then an estimate, and says how far off it may be. Nothing is kept of a key but its part in a sum, so memory
does not grow with the keyspace.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from plaza.core.keys import Access, Catalogue, Key
from plaza.core.wire import Valkey
from plaza.keyspace.audit.families import Families

# Names to a page, and so commands sent together: Valkey serves others in between.
NAMES: Final = 200
# Of each family so many are always measured: most families with few keys are the ones with a large one.
CERTAIN: Final = 50
BIGGEST: Final = 3
# Valkey weighs so many members of a large key and takes the others for alike.
MEMBERS: Final = 20
# How often the truth is within the error that is stated: 95 times of 100.
Z: Final = 1.96
UNKNOWN: Final = "unknown"


@dataclass(slots=True)
class Spread:
    """Sum and variance of what was measured, one value at a time (Welford)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
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
    certain: Spread = field(default_factory=Spread)
    chosen: Spread = field(default_factory=Spread)  # of the rest, by chance
    lasting: int = 0  # of the measured: without expiry
    biggest: list[tuple[int, str]] = field(default_factory=list)

    def add(self, name: str, size: int, *, certain: bool, lasting: bool) -> None:
        (self.certain if certain else self.chosen).add(size)
        self.lasting += lasting
        item = (size, self._shown(name))
        if len(self.biggest) < BIGGEST:
            heapq.heappush(self.biggest, item)
        else:
            heapq.heappushpop(self.biggest, item)

    def _shown(self, name: str) -> str:
        """A name that is itself a secret, or holds a session's token, is not for a screen."""
        secret = self.key is not None and (self.key.read is Access.NOBODY or "token" in self.key.parts)
        return self.pattern if secret else name

    @property
    def measured(self) -> int:
        return self.certain.count + self.chosen.count

    @property
    def rest(self) -> int:
        """Keys beyond those that are measured for certain."""
        return self.keys - self.certain.count

    @property
    def bytes(self) -> int:
        return round(self.certain.total + self.rest * self._mean)

    @property
    def _mean(self) -> float:
        return self.chosen.mean if self.chosen.count else self.certain.mean

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
        return self.lasting / self.measured if self.measured else 0.0


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
        chosen: list[tuple[Usage, bytes, bool]] = []
        for name in names:
            usage = self._usage(name.decode(errors="replace"))
            usage.keys += 1
            certain = usage.keys <= CERTAIN
            if certain or self._random.random() < chance:
                chosen.append((usage, name, certain))
        sizes = await node.batch([("MEMORY", "USAGE", name, "SAMPLES", MEMBERS) for _, name, _ in chosen], raw=True)
        lives = await node.batch([("PTTL", name) for _, name, _ in chosen], raw=True)
        for (usage, name, certain), size, life in zip(chosen, sizes, lives, strict=True):
            if size is None:  # it has gone since
                usage.keys -= 1
            else:
                usage.add(name.decode(errors="replace"), size, certain=certain, lasting=life == -1)

    def _usage(self, name: str) -> Usage:
        match = self._families.match(name)
        pattern, domain = (match[0].key.pattern, match[0].domain) if match else (UNKNOWN, UNKNOWN)
        if pattern not in self._found:
            self._found[pattern] = Usage(pattern, domain, match[0].key if match else None)
        return self._found[pattern]


async def _pages(node: Valkey) -> AsyncIterator[list[bytes]]:
    cursor = b"0"
    while True:
        cursor, names = await node.call("SCAN", cursor, "COUNT", NAMES, raw=True)
        yield names
        if cursor == b"0":
            return
