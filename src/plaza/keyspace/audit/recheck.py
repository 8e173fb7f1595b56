"""Looks again at what seemed wrong, so that a write in between is never taken for a fault.

The audit reads a key, and what that key speaks of a moment later: between the two, anybody may have written. So what
does not fit is only a suspicion. On one server all that it takes to judge is then read in one atomic step, and since
every operation there is one step too, what does not fit then is wrong. On a cluster an operation is under way
for a few milliseconds, and leaves a note beside its owner as long as it is. There, nothing is wrong unless none of the
owners has a note before and after everything was read twice with the same result, and that again a while later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.invariants import Command, Entry, Invariant
from plaza.core.outbox import Note
from plaza.core.valkey import ReplyError
from plaza.keyspace.audit.key_reader import as_commands, look, seen_again
from plaza.keyspace.families import Family

# How often an entry may have changed under our eyes before we leave it alone: somebody is busy with it.
TRIES = 20
# On a cluster: how long an audit waits for owners to be settled. Longer than a worker takes to settle for the dead; who
# is not settled by then is no worker's any more, and later ones with a note get only as long as the living take.
SETTLE_SECONDS = 40.0
SHORT_SETTLE_SECONDS = 2.0
# On a cluster: how often something must seem wrong, and how long between.
LOOKS = 4
PAUSE_SECONDS = 0.25
# On one server, where some jobs still take two steps for what belongs together.
SHORT_PAUSE_SECONDS = 0.03


@dataclass(frozen=True, slots=True)
class Suspect:
    """An entry that did not fit a rule."""

    family: Family
    rule: Invariant
    entry: Entry


class Confirmer:
    """Tells faults from writes in between."""

    def __init__(self, functions: Functions, clock: Clock, *, settle_seconds: float = SETTLE_SECONDS) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._clock = clock
        self._settle_seconds = settle_seconds
        self._waiting_since: float | None = None

    async def confirm(self, suspect: Suspect) -> str | None:
        """What is wrong, for sure; None if nothing is."""
        looks, pause = (LOOKS, PAUSE_SECONDS) if self._valkey.clustered else (2, SHORT_PAUSE_SECONDS)
        for i in range(looks):
            if i:
                await asyncio.sleep(pause)
            says = await self._look(suspect)
            if says is None:
                return None
        return says

    async def _look(self, suspect: Suspect) -> str | None:
        entry, rule, family = suspect.entry, suspect.rule, suspect.family
        until = monotonic() + self._patience()
        tries = 0
        while tries < TRIES and monotonic() < until:
            asked = list(rule.asks(entry))
            unless = [*rule.unless(entry), *family.excuses(entry)]
            try:
                replies = await self._read(family, [look(family, rule, entry), *asked, *unless])
            except ReplyError:
                return None  # a key of another type is in the way, which is a finding of its own
            if replies is None:
                self._waiting_since = self._waiting_since or monotonic()
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            fresh = seen_again(family, rule, entry, replies[0])
            if fresh is None:
                return None
            if fresh == entry or list(rule.asks(fresh)) == asked:
                if any(reply not in (None, 0, b"", "") for reply in replies[1 + len(asked) :]):
                    return None  # being removed just now
                return rule.judge(fresh, replies[1 : 1 + len(asked)], self._clock.now_ms())
            entry, tries = fresh, tries + 1
        return None

    def _patience(self) -> float:
        waited = 0.0 if self._waiting_since is None else monotonic() - self._waiting_since
        return self._settle_seconds if waited < self._settle_seconds else SHORT_SETTLE_SECONDS

    async def _read(self, family: Family, commands: Sequence[Command]) -> list[Any] | None:
        """All of it as it was at one moment; None on a cluster if there was no such moment."""
        commands = as_commands(self._functions, commands)
        if not self._valkey.clustered:
            return await self._valkey.multi(commands)
        notes = {Note.beside(family.domain, str(_key_of(command))).pending for command in commands}
        pending: list[Command] = [("EXISTS", note) for note in sorted(notes)]
        if any(await self._valkey.batch(pending)):
            return None
        first = await self._valkey.batch(commands)
        again = await self._valkey.batch(commands)
        if any(await self._valkey.batch(pending)) or first != again:
            return None
        return again


def _key_of(command: Command) -> Any:
    return command[3] if command[0] == "FCALL_RO" else command[1]
