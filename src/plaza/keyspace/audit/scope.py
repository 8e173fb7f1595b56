"""What one pass of a repair checks: everything, or after a failover what it can have changed.

A replica that takes over has a state that its primary had a moment earlier. Keys of this shard agree among themselves,
and so do those of the other shards. Only invariants that compare keys of both can be violated (`LostShards`). Later
passes check what the repairs of the last one can have changed: the keys of the ids that its suspicions had (`ids`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from plaza.core.invariants import Command, Entry, Invariant
from plaza.core.valkey.slots import SLOTS, key_slot
from plaza.keyspace.family_matching import KeyFamily

# Beyond this many ids, the next pass checks everything.
MAX_IDS = 100_000


class LostShards:
    """The shards that may have lost writes, given the slots of each."""

    __slots__ = ("_key", "_own", "_shard_of_slot")

    def __init__(self, shards: Iterable[Iterable[int]]) -> None:
        self._key, self._own = "", 0  # the last key, which has many entries, and its shard
        self._shard_of_slot = bytearray(SLOTS)  # 0: of a shard that lost nothing
        for number, slots in enumerate(shards, 1):
            for slot in slots:
                self._shard_of_slot[slot] = number

    def are_compared_by(self, entry: Entry, reads: Sequence[Command]) -> bool:
        """Whether an invariant with these reads compares keys of a lost shard with those of another shard."""
        shards = self._shard_of_slot
        if entry.name != self._key:
            self._key, self._own = entry.name, shards[key_slot(entry.name)]
        keys = (read[3] if read[0] == "QUERY" else read[1] for read in reads)
        return any(shards[key_slot(key)] != self._own for key in keys)


class Scope(Struct):
    """What a pass checks: by default everything."""

    derived_only: bool = False  # leave out types, lifetimes and undeclared keys, which a failover does not change
    lost: LostShards | None = None
    ids: set[str] | None = None  # of the keys to check; the whole pattern of a key without ids

    def includes(self, family: KeyFamily, parts: tuple[str, ...]) -> bool:
        """Whether a key is checked."""
        if self.lost is not None:
            rules = family.key_invariants, family.member_invariants
            return any(not rule.own_keys for each in rules for rule in each)
        if self.ids is None:
            return True
        return any(part in self.ids for part in parts) if parts else family.key.pattern in self.ids

    def reads(self, rule: Invariant, entry: Entry) -> Sequence[Command] | None:
        """What an invariant reads for an entry; None if it is not checked."""
        if self.lost is None:
            return rule.reads(entry)
        if rule.own_keys:
            return None
        reads = rule.reads(entry)
        return reads if self.lost.are_compared_by(entry, reads) else None


class ChangedIds:
    """Collects the ids that the suspicions of a pass had: the scope of the next one."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def add(self, family: KeyFamily, entry: Entry) -> None:
        if len(self._ids) <= MAX_IDS:
            self._ids.update(family.ids(entry).values() if entry.parts else (family.key.pattern, *entry.ids))

    def scope(self) -> Scope:
        return Scope(derived_only=True, ids=self._ids if len(self._ids) <= MAX_IDS else None)
