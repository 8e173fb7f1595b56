"""Measures memory by key family: keys, bytes, share without expiry, and the largest keys.

`SCAN` visits every name once, on a cluster on all primaries, so keys are counted and not estimated. `MEMORY USAGE`
measures every key, or with `sample` only the first few of each family, all large ones and a random part of the rest;
the total is then an estimate with a stated error. A few users have more data than all others together, and random
sampling would miss them in the total and in its error. So every key's length is read, which costs Valkey very little.
Only sums are stored per key, so the memory of this process does not grow with the keyspace.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from plaza.core.keyspace import Catalogue, Key, KeyAccess, KeyType
from plaza.core.valkey import Valkey
from plaza.keyspace.family_matching import KeyFamilies

# Names per SCAN page, and so commands per batch: Valkey serves other clients in between.
PAGE_KEYS: Final = 200
# The first keys of each family are always measured: a family with few keys often has one large key.
ALWAYS_MEASURED_KEYS: Final = 50
# A key with this many members, or a string of this many bytes, counts as large.
LARGE_MEMBERS: Final = 100
LARGE_STRING_BYTES: Final = 4_096
LARGEST_SHOWN: Final = 3
# Members that Valkey samples to estimate the size of one key.
USAGE_SAMPLES: Final = 20
# The z-score of a 95% confidence interval.
Z_95: Final = 1.96
UNKNOWN: Final = "unknown"

_LENGTH_COMMANDS: Final[Mapping[KeyType, str]] = {
    "hash": "HLEN",
    "list": "LLEN",
    "set": "SCARD",
    "stream": "XLEN",
    "string": "STRLEN",
    "zset": "ZCARD",
}


@dataclass(slots=True)
class SizeStatistics:
    """Running sum and variance of measured sizes (Welford)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    without_expiry: int = 0

    def add(self, size: float, *, expires: bool) -> None:
        """Add one measured key."""
        self.count += 1
        self.without_expiry += not expires
        delta = size - self.mean
        self.mean += delta / self.count
        self.squares += delta * (size - self.mean)

    @property
    def total(self) -> float:
        return self.mean * self.count

    @property
    def variance(self) -> float:
        return self.squares / (self.count - 1) if self.count > 1 else 0.0


@dataclass(slots=True)
class FamilyUsage:
    """The memory of one key family."""

    pattern: str
    domain: str
    key: Key | None = None
    keys: int = 0
    small: int = 0  # keys that are not large
    large: SizeStatistics = field(default_factory=SizeStatistics)
    always_measured: SizeStatistics = field(default_factory=SizeStatistics)  # the first small keys
    sampled: SizeStatistics = field(default_factory=SizeStatistics)  # a random part of the other small keys
    biggest: list[tuple[int, str]] = field(default_factory=list)

    def count(self, *, large: bool, sample: Callable[[], bool]) -> SizeStatistics | None:
        """Count a key. Returns the statistics to add its size to; None if it is not to be measured."""
        self.keys += 1
        if large:
            return self.large
        self.small += 1
        if self.small <= ALWAYS_MEASURED_KEYS:
            return self.always_measured
        return self.sampled if sample() else None

    def add(self, name: str, size: int, statistics: SizeStatistics, *, expires: bool) -> None:
        """Add the size of a counted key."""
        statistics.add(size, expires=expires)
        item = (size, self._display_name(name))
        if len(self.biggest) < LARGEST_SHOWN:
            heapq.heappush(self.biggest, item)
        else:
            heapq.heappushpop(self.biggest, item)

    def uncount(self, statistics: SizeStatistics) -> None:
        """Remove a key from the count: it was deleted before it was measured."""
        self.keys -= 1
        self.small -= statistics is not self.large

    def _display_name(self, name: str) -> str:
        """The name, or the pattern if the name is secret or contains a session token."""
        secret = self.key is not None and (self.key.read is KeyAccess.NONE or "token" in self.key.parts)
        return self.pattern if secret else name

    @property
    def measured(self) -> int:
        return self.large.count + self.always_measured.count + self.sampled.count

    @property
    def sampled_from(self) -> int:
        """The number of small keys that the random sample stands for."""
        return self.small - self.always_measured.count

    @property
    def bytes(self) -> int:
        return round(self.large.total + self.always_measured.total + self.sampled_from * self._typical.mean)

    @property
    def _typical(self) -> SizeStatistics:
        return self.sampled if self.sampled.count else self.always_measured

    @property
    def error(self) -> float:
        """The half width of the 95% confidence interval in bytes; 0 if every key was measured."""
        unmeasured = self.sampled_from - self.sampled.count
        if unmeasured <= 0:
            return 0.0
        # One sampled key has no variance; the always measured keys are the best estimate then.
        few = self.sampled.count < 2
        variance, count = (self.always_measured.variance, 1) if few else (self.sampled.variance, self.sampled.count)
        return Z_95 * self.sampled_from * math.sqrt(variance / count * (unmeasured / self.sampled_from))

    @property
    def share_without_expiry(self) -> float:
        """The share of its keys that never expire."""
        typical = self._typical.without_expiry / self._typical.count if self._typical.count else 0.0
        known = self.large.without_expiry + self.always_measured.without_expiry
        return (known + self.sampled_from * typical) / self.keys if self.keys else 0.0


@dataclass(slots=True)
class Memory:
    """The memory of all key families, largest first."""

    usages: list[FamilyUsage]
    complete: bool

    @property
    def keys(self) -> int:
        return sum(usage.keys for usage in self.usages)

    @property
    def bytes(self) -> int:
        return sum(usage.bytes for usage in self.usages)

    @property
    def error(self) -> float:
        """The half width of the 95% confidence interval in bytes."""
        return math.sqrt(sum(usage.error**2 for usage in self.usages))

    def record(self) -> dict[str, Any]:
        """The report as a JSON-compatible record."""
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
                    "share_without_expiry": round(usage.share_without_expiry, 4),
                    "biggest": [{"key": name, "bytes": size} for size, name in sorted(usage.biggest, reverse=True)],
                }
                for usage in self.usages
            ],
        }


class MemoryScan:
    """One scan of all keys. `sample` is the approximate number of keys to measure; None measures all."""

    def __init__(
        self, valkey: Valkey, catalogues: Sequence[Catalogue], *, sample: int | None = None, seed: int | None = None
    ) -> None:
        self._valkey = valkey
        self._families = KeyFamilies(catalogues, valkey.layout)
        self._sample = sample
        self._random = random.Random(seed)
        self._usages: dict[str, FamilyUsage] = {}

    async def run(self, progress: Callable[[int, int], None] = lambda done, total: None) -> Memory:
        """Measure. Calls `progress(done, total)` after every page of keys."""
        total = sum([int(await node.call("DBSIZE")) for node in self._valkey.primaries()])
        chance = 1.0 if self._sample is None else min(1.0, self._sample / max(total, 1))
        done = 0
        for node in self._valkey.primaries():
            async for names in _pages(node):
                await self._measure(node, names, chance)
                done += len(names)
                progress(done, total)
        usages = sorted(self._usages.values(), key=lambda usage: -usage.bytes)
        return Memory(usages, all(usage.measured == usage.keys for usage in usages))

    async def _measure(self, node: Valkey, names: list[bytes], chance: float) -> None:
        usages = [self._usage(name.decode(errors="replace")) for name in names]
        # If all keys are measured, it does not matter which are large.
        large = await _are_large(node, names, usages) if chance < 1.0 else [False] * len(names)
        chosen: list[tuple[FamilyUsage, bytes, SizeStatistics]] = []
        for usage, name, is_large in zip(usages, names, large, strict=True):
            statistics = usage.count(large=is_large, sample=lambda: self._random.random() < chance)
            if statistics is not None:
                chosen.append((usage, name, statistics))
        sizes = await node.batch(
            [("MEMORY", "USAGE", name, "SAMPLES", USAGE_SAMPLES) for _, name, _ in chosen], raw=True
        )
        ttls = await node.batch([("PTTL", name) for _, name, _ in chosen], raw=True)
        for (usage, name, statistics), size, ttl in zip(chosen, sizes, ttls, strict=True):
            if size is None:
                usage.uncount(statistics)
            else:
                usage.add(name.decode(errors="replace"), size, statistics, expires=ttl != -1)

    def _usage(self, name: str) -> FamilyUsage:
        match = self._families.match(name)
        pattern, domain = (match[0].key.pattern, match[0].domain) if match else (UNKNOWN, UNKNOWN)
        if pattern not in self._usages:
            self._usages[pattern] = FamilyUsage(pattern, domain, match[0].key if match else None)
        return self._usages[pattern]


async def _are_large(node: Valkey, names: Sequence[bytes], usages: Sequence[FamilyUsage]) -> list[bool]:
    """Whether each key is large. An undeclared key, or one of the wrong type, counts as large. One round trip."""
    types = [usage.key.type if usage.key else "string" for usage in usages]
    commands = [(_LENGTH_COMMANDS[type_], name) for type_, name in zip(types, names, strict=True)]
    lengths = await node.batch(commands, raw=True, return_errors=True)
    return [
        not isinstance(length, int) or length >= (LARGE_STRING_BYTES if type_ == "string" else LARGE_MEMBERS)
        for type_, length in zip(types, lengths, strict=True)
    ]


async def _pages(node: Valkey) -> AsyncIterator[list[bytes]]:
    cursor = b"0"
    while True:
        cursor, names = await node.call("SCAN", cursor, "COUNT", PAGE_KEYS, raw=True)
        yield names
        if cursor == b"0":
            return
