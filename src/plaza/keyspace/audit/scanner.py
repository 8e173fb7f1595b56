"""Scans the whole keyspace once, one page of names at a time, and returns suspicions.

A page reads names with `SCAN`, then their content, then everything else that their invariants need. Nothing is stored
from one page to the next, so memory does not grow with the keyspace. Keys with many members are read in chunks.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.invariants import Command, Entry, Invariant
from plaza.core.sequences import chunks
from plaza.keyspace.audit import basic_invariants
from plaza.keyspace.audit.checkpoints import ScanPosition
from plaza.keyspace.audit.key_reader import as_commands, first_read, next_chunks, parse_chunk
from plaza.keyspace.audit.query_batching import QueryBatch
from plaza.keyspace.audit.recheck import Suspicion
from plaza.keyspace.audit.scope import Scope
from plaza.keyspace.audit.throttle import Throttle
from plaza.keyspace.family_matching import KeyFamilies, KeyFamily

# The COUNT of SCAN.
PAGE_KEYS = 500
# Commands per batch, without and with other traffic. Valkey runs the whole batch of one client before it serves the
# next; 200 commands take about 200 µs.
BATCH_COMMANDS, BATCH_COMMANDS_BUSY = 2_000, 200

_UNKNOWN = basic_invariants.unknown()

KnownKey = tuple[str, KeyFamily, tuple[str, ...]]


class FamilyInvariants(Struct):
    """The basic invariants of one family, built once."""

    type: Invariant
    lifetime: Invariant
    member: Invariant | None
    value: Invariant | None
    fields: Invariant | None

    @classmethod
    def for_family(cls, family: KeyFamily) -> FamilyInvariants:
        return cls(
            basic_invariants.type_invariant(family.key),
            basic_invariants.lifetime_invariant(family.key),
            basic_invariants.member_invariant(family) if family.element_shape else None,
            basic_invariants.value_invariant(family) if family.value_shape else None,
            basic_invariants.fields_invariant(family) if family.is_object else None,
        )


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Pause cyclic garbage collection. A page creates thousands of small objects without cycles, and tracing them
    repeatedly would take a quarter of the audit's time. Nothing is awaited meanwhile.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Scanner:
    """One scan of the keyspace from a position. `keys` and `members` count what was scanned since."""

    def __init__(
        self,
        functions: Functions,
        families: KeyFamilies,
        clock: Clock,
        throttle: Throttle,
        position: ScanPosition,
        scope: Scope,
    ) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._families = families
        self._invariants = {id(family): FamilyInvariants.for_family(family) for family in families.all}
        self._clock = clock
        self._throttle = throttle
        self._scope = scope
        self.position = position
        self.keys = 0
        self.members = 0

    async def total(self) -> int:
        """The number of keys in Valkey. One round trip per primary."""
        return sum([int(await node.call("DBSIZE")) for node in self._valkey.primaries()])

    async def pages(self) -> AsyncIterator[list[Suspicion]]:
        """The suspicions of each page. `position` is behind the pages whose suspicions the caller has processed."""
        await self._throttle.begin()
        for number, node in enumerate(self._valkey.primaries()):
            if number < self.position.primary:
                continue
            cursor = self.position.cursor
            while True:
                cursor, names = await node.call("SCAN", cursor, "COUNT", PAGE_KEYS)
                async for suspicions in self._page(names):
                    yield suspicions
                await self._throttle.rest()
                if int(cursor) == 0:
                    break
                self.position = ScanPosition(number, cursor)
            self.position = ScanPosition(number + 1)

    async def _page(self, names: Sequence[str]) -> AsyncIterator[list[Suspicion]]:
        suspicions: list[Suspicion] = []
        with _gc_paused():
            known = self._known_keys(names, suspicions)
        with_ttls = not self._scope.derived_only
        ttls = await self._send([("PTTL", name) for name, _, _ in known]) if with_ttls else [None] * len(known)
        reads = await self._send([first_read(family, name) for name, family, _ in known])
        queries = QueryBatch(self._scope)
        with _gc_paused():
            each = zip(known, ttls, reads, strict=True)
            large = [self._scan_key(*key, ttl, read, queries, suspicions) for key, ttl, read in each]
        yield suspicions + await self._evaluate(queries)
        for family, invariants, key_entry, cursor in filter(None, large):
            async for members in next_chunks(self._valkey, family, key_entry.name, cursor):
                queries = QueryBatch(self._scope)
                suspicions = self._check_members(family, invariants, key_entry, members, queries)
                yield suspicions + await self._evaluate(queries)
                await self._throttle.rest()

    def _known_keys(self, names: Sequence[str], suspicions: list[Suspicion]) -> list[KnownKey]:
        known: list[KnownKey] = []
        for name in names:
            found = self._families.match(name)
            if found is not None:
                if self._scope.includes(*found):
                    known.append((name, *found))
            elif not self._scope.derived_only:
                suspicions.append(Suspicion(basic_invariants.UNDECLARED, _UNKNOWN, Entry(name, (name,))))
        self.keys += len(names)
        return known

    def _scan_key(
        self,
        name: str,
        family: KeyFamily,
        parts: tuple[str, ...],
        ttl: Any,
        read: Any,
        queries: QueryBatch,
        suspicions: list[Suspicion],
    ) -> tuple[KeyFamily, FamilyInvariants, Entry, str | int] | None:
        """Check what needs no further reads, and add the others to `queries`. Returns a key that has more chunks."""
        invariants = self._invariants[id(family)]
        key_entry = Entry(name, parts)
        if isinstance(read, Exception):
            suspicions.append(Suspicion(family, invariants.type, key_entry))
            return None
        if ttl is not None and basic_invariants.lifetime_violation(family.key, ttl) is not None:
            suspicions.append(Suspicion(family, invariants.lifetime, key_entry))
        suspicions += self._check_key(family, invariants, key_entry, read, queries)
        members, cursor = parse_chunk(family, read)
        suspicions += self._check_members(family, invariants, key_entry, members, queries)
        return None if str(cursor) == "0" else (family, invariants, key_entry, cursor)

    def _check_key(
        self, family: KeyFamily, invariants: FamilyInvariants, entry: Entry, read: Any, queries: QueryBatch
    ) -> Iterable[Suspicion]:
        if family.is_object:
            if not read:
                return ()  # deleted since its name was read
            entry = entry._replace(value=read)
            assert invariants.fields is not None
            if invariants.fields.check(entry, (), 0) is not None:
                return (Suspicion(family, invariants.fields, entry),)
        for rule in family.key_invariants:
            queries.add(family, rule, entry)
        return ()

    def _check_members(
        self,
        family: KeyFamily,
        invariants: FamilyInvariants,
        key: Entry,
        members: Sequence[tuple[str, Any]],
        queries: QueryBatch,
    ) -> list[Suspicion]:
        self.members += len(members)
        holds, value, rules = family.element_shape, family.value_shape, family.member_invariants
        suspicions: list[Suspicion] = []
        if holds is None and not rules:
            return suspicions
        name, parts = key.name, key.parts
        for member, held in members:
            ids = holds.read(member) if holds else ()
            entry = Entry(name, parts, member, ids or (), held)
            if ids is None:
                assert invariants.member is not None
                suspicions.append(Suspicion(family, invariants.member, entry))
            elif value is not None and value.read(held) is None:
                assert invariants.value is not None
                suspicions.append(Suspicion(family, invariants.value, entry))
            else:
                for rule in rules:
                    queries.add(family, rule, entry)
        return suspicions

    async def _evaluate(self, queries: QueryBatch) -> list[Suspicion]:
        violations = await queries.violations(self._send, self._clock.now_ms, one_server=not self._valkey.clustered)
        with _gc_paused():
            return [Suspicion(*violation) for violation in violations]

    async def _send(self, commands: Sequence[Command]) -> list[Any]:
        replies: list[Any] = []
        size = BATCH_COMMANDS_BUSY if self._throttle.busy else BATCH_COMMANDS
        for chunk in chunks(commands, size):
            replies += await self._valkey.batch(as_commands(self._functions, chunk), return_errors=True)
        return replies
