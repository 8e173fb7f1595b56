"""Goes through the whole keyspace once, a page of names at a time, and says what does not fit.

A page is: names from `SCAN`, what they hold, and everything that their rules ask for besides, each asked once. Nothing
is remembered from one page to the next, so memory does not grow with the keyspace, and a key of a million members is
read in pieces like everything else.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.invariants import Command, Entry, Invariant
from plaza.keyspace.audit import basic_invariants
from plaza.keyspace.audit.key_reader import as_commands, entries, first_read, more
from plaza.keyspace.audit.query_batching import Questions
from plaza.keyspace.audit.recheck import Suspect
from plaza.keyspace.audit.throttle import Pace
from plaza.keyspace.families import Families, Family

# Names in a page, as SCAN is asked for.
NAMES = 500
# Commands sent together while nobody else is there, and beside others: all of one client's commands run before anyone
# else's turn, and 200 take some 200 µs.
TOGETHER, TOGETHER_BESIDE = 2_000, 200

# What a question counts for: Valkey counts the calls that it makes, too.
CALLS = 6

_UNKNOWN = basic_invariants.unknown()

Named = tuple[str, Family, tuple[str, ...]]


@dataclass(slots=True)
class Bound:
    """A family with the rules for everything it is checked for, made once."""

    type: Invariant
    lifetime: Invariant
    member: Invariant | None
    value: Invariant | None
    fields: Invariant | None

    @classmethod
    def of(cls, family: Family) -> Bound:
        return cls(
            basic_invariants.of_type(family.key),
            basic_invariants.of_lifetime(family.key),
            basic_invariants.of_member(family) if family.holds else None,
            basic_invariants.of_value(family) if family.value else None,
            basic_invariants.of_fields(family) if family.is_object else None,
        )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No collection of garbage meanwhile: a page makes thousands of small objects, none of them in a circle, and
    looking through them again and again would take a quarter of the audit's time. Nothing is awaited in between.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Walk:
    """One pass through the keyspace."""

    def __init__(self, functions: Functions, families: Families, clock: Clock, pace: Pace) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._families = families
        self._bound = {id(family): Bound.of(family) for family in families.all}
        self._clock = clock
        self._pace = pace
        self.keys = 0
        self.members = 0

    async def total(self) -> int:
        """How many keys there are."""
        return sum([int(await node.call("DBSIZE")) for node in self._valkey.primaries()])

    async def pages(self) -> AsyncIterator[list[Suspect]]:
        """What seems wrong, page by page."""
        await self._pace.begin()
        for node in self._valkey.primaries():
            cursor: str | int = "0"
            while True:
                cursor, names = await node.call("SCAN", cursor, "COUNT", NAMES)
                async for suspects in self._page(names):
                    yield suspects
                await self._pace.rest()
                if str(cursor) == "0":
                    break

    async def _page(self, names: Sequence[str]) -> AsyncIterator[list[Suspect]]:
        suspects: list[Suspect] = []
        with _undisturbed():
            known = self._recognised(names, suspects)
        lives = await self._ask([("PTTL", name) for name, _, _ in known])
        reads = await self._ask([first_read(family, name) for name, family, _ in known])
        questions = Questions()
        with _undisturbed():
            each = zip(known, lives, reads, strict=True)
            large = [self._look(*key, life, read, questions, suspects) for key, life, read in each]
        yield suspects + await self._judge(questions)
        for family, bound, whole, cursor in filter(None, large):
            async for members in more(self._valkey, family, whole.name, cursor):
                questions = Questions()
                suspects = self._members(family, bound, whole, members, questions)
                yield suspects + await self._judge(questions)
                await self._pace.rest()

    def _recognised(self, names: Sequence[str], suspects: list[Suspect]) -> list[Named]:
        known: list[Named] = []
        for name in names:
            found = self._families.match(name)
            if found is None:
                suspects.append(Suspect(basic_invariants.STRANGER, _UNKNOWN, Entry(name, (name,))))
            else:
                known.append((name, *found))
        self.keys += len(names)
        return known

    def _look(
        self,
        name: str,
        family: Family,
        parts: tuple[str, ...],
        life: Any,
        read: Any,
        questions: Questions,
        suspects: list[Suspect],
    ) -> tuple[Family, Bound, Entry, str | int] | None:
        """Judge what can be judged at once, and ask for the rest. What is returned is too large to be read at once."""
        bound = self._bound[id(family)]
        whole = Entry(name, parts)
        if isinstance(read, Exception):
            suspects.append(Suspect(family, bound.type, whole))
            return None
        if basic_invariants.lifetime(family.key, life) is not None:
            suspects.append(Suspect(family, bound.lifetime, whole))
        suspects += self._whole(family, bound, whole, read, questions)
        members, cursor = entries(family, read)
        suspects += self._members(family, bound, whole, members, questions)
        return None if str(cursor) == "0" else (family, bound, whole, cursor)

    def _whole(self, family: Family, bound: Bound, entry: Entry, read: Any, questions: Questions) -> Iterable[Suspect]:
        if family.is_object:
            if not read:
                return ()  # it went away since its name was read
            entry = entry._replace(value=read)
            assert bound.fields is not None
            if bound.fields.judge(entry, (), 0) is not None:
                return (Suspect(family, bound.fields, entry),)
        for rule in family.whole:
            questions.add(family, rule, entry)
        return ()

    def _members(
        self, family: Family, bound: Bound, key: Entry, members: Sequence[tuple[str, Any]], questions: Questions
    ) -> list[Suspect]:
        self.members += len(members)
        holds, value, rules = family.holds, family.value, family.each
        suspects: list[Suspect] = []
        if holds is None and not rules:
            return suspects
        name, parts = key.name, key.parts
        for member, held in members:
            ids = holds.read(member) if holds else ()
            entry = Entry(name, parts, member, ids or (), held)
            if ids is None:
                assert bound.member is not None
                suspects.append(Suspect(family, bound.member, entry))
            elif value is not None and value.read(held) is None:
                assert bound.value is not None
                suspects.append(Suspect(family, bound.value, entry))
            else:
                for rule in rules:
                    questions.add(family, rule, entry)
        return suspects

    async def _judge(self, questions: Questions) -> list[Suspect]:
        wrong = await questions.judge(self._ask, self._clock.now_ms, one_server=not self._valkey.clustered)
        with _undisturbed():
            return [Suspect(*found) for found in wrong]

    async def _ask(self, commands: Sequence[Command]) -> list[Any]:
        replies: list[Any] = []
        size = TOGETHER_BESIDE if self._pace.busy else TOGETHER
        for first in range(0, len(commands), size):
            some = commands[first : first + size]
            self._pace.mine(sum(CALLS if command[0] == "ASK" else 1 for command in some))
            replies += await self._valkey.batch(as_commands(self._functions, some), return_errors=True)
        return replies
