"""Rechecks suspicions, so that a write between two reads of the scan is never reported as a violation.

The scan reads a key first and the keys it refers to a moment later; another client may write in between. A mismatch is
therefore only a suspicion. On one server the recheck reads everything it needs in one transaction. Every operation is
atomic there, so a mismatch is a violation. On a cluster an operation takes a few milliseconds and has an outbox entry
beside its owner during that time. There a mismatch counts only if no owner had an outbox entry before and after
everything was read twice with the same result, and only if that happens several times in a row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any, NamedTuple

from msgspec import Struct

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.invariants import Command, Entry, Invariant
from plaza.core.outbox import OutboxEntry
from plaza.core.valkey import ReplyError
from plaza.keyspace.audit.basic_invariants import LIFETIME
from plaza.keyspace.audit.key_reader import as_commands, current_entry, reread
from plaza.keyspace.family_matching import KeyFamily

# An entry that changes this often while it is rechecked is in use, and is not reported.
MAX_CHANGES = 20
# On a cluster: how long an audit waits for owners with outbox entries. A worker settles the entries of dead processes
# within this time. What is unsettled after that stays so, and later owners get the time that a live process needs.
SETTLE_SECONDS = 40.0
SHORT_SETTLE_SECONDS = 2.0
# On a cluster: how often a violation must be seen, and the pause in between.
CLUSTER_CHECKS = 4
PAUSE_SECONDS = 0.25
# On one server two checks are enough. A few jobs change related keys in two steps, which this pause covers.
CHECKS = 2
SHORT_PAUSE_SECONDS = 0.03
# Before a repair: another service writes related keys with several commands. What is exactly the same after this pause
# is not such a write.
REPAIR_PAUSE_SECONDS = 0.5
# Checks at the same time. Those that pause do not count.
MAX_CONCURRENT_CHECKS = 128


class Suspicion(Struct, frozen=True):
    """An entry that seemed to violate an invariant in the scan."""

    family: KeyFamily
    rule: Invariant
    entry: Entry


class Confirmation(NamedTuple):
    """A violation: its description, and everything that was read."""

    description: str
    state: tuple[Entry, list[Any]]


class Rechecker:
    """Distinguishes violations from concurrent writes."""

    def __init__(self, functions: Functions, clock: Clock, *, settle_seconds: float = SETTLE_SECONDS) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._clock = clock
        self._settle_seconds = settle_seconds
        self._waiting_since: float | None = None
        self._limit = asyncio.Semaphore(MAX_CONCURRENT_CHECKS)

    async def confirm(self, suspicion: Suspicion, *, once: bool = False) -> Confirmation | None:
        """The violation; None if there is none. With `once` it may be a write of another service in progress."""
        if once:
            return await self._check_in_turn(suspicion)
        checks, pause = (CLUSTER_CHECKS, PAUSE_SECONDS) if self._valkey.clustered else (CHECKS, SHORT_PAUSE_SECONDS)
        for i in range(checks):
            if i:
                await asyncio.sleep(pause)
            confirmation = await self._check_in_turn(suspicion)
            if confirmation is None:
                return None
        return confirmation

    async def is_unchanged(self, suspicion: Suspicion, confirmation: Confirmation) -> bool:
        """Whether a violation is still the same after a pause, so that a repair disturbs no other service."""
        await asyncio.sleep(REPAIR_PAUSE_SECONDS)
        later = await self._check_in_turn(suspicion)
        # A remaining time to live is never the same.
        return later is not None and (later.state == confirmation.state or suspicion.rule.name == LIFETIME)

    async def _check_in_turn(self, suspicion: Suspicion) -> Confirmation | None:
        async with self._limit:
            return await self._check(suspicion)

    async def _check(self, suspicion: Suspicion) -> Confirmation | None:
        entry, rule, family = suspicion.entry, suspicion.rule, suspicion.family
        deadline = monotonic() + self._max_wait_seconds()
        changes = 0
        while changes < MAX_CHANGES and monotonic() < deadline:
            reads = list(rule.reads(entry))
            excuses = [*rule.unless(entry), *family.deletion_checks(entry)]
            try:
                replies = await self._read_atomically(family, [reread(family, rule, entry), *reads, *excuses])
            except ReplyError:
                return None  # a key has the wrong type, which is a finding of its own
            if replies is None:
                self._waiting_since = self._waiting_since or monotonic()
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            current = current_entry(family, rule, entry, replies[0])
            if current is None:
                return None
            if current == entry or list(rule.reads(current)) == reads:
                if any(reply not in (None, 0, b"", "") for reply in replies[1 + len(reads) :]):
                    return None  # it is being deleted, or work is in progress that explains it
                state = current, replies[1 : 1 + len(reads)]
                description = rule.check(*state, self._clock.now_ms())
                return None if description is None else Confirmation(description, state)
            entry, changes = current, changes + 1
        return None

    def _max_wait_seconds(self) -> float:
        waited = 0.0 if self._waiting_since is None else monotonic() - self._waiting_since
        return self._settle_seconds if waited < self._settle_seconds else SHORT_SETTLE_SECONDS

    async def _read_atomically(self, family: KeyFamily, commands: Sequence[Command]) -> list[Any] | None:
        """The replies of one consistent state. None on a cluster if an operation was in progress."""
        commands = as_commands(self._functions, commands)
        if not self._valkey.clustered:
            return await self._valkey.multi(commands)
        outboxes = {OutboxEntry.for_key(family.domain, str(_key(command))).pending for command in commands}
        pending: list[Command] = [("EXISTS", outbox) for outbox in sorted(outboxes)]
        first = await self._valkey.batch([*pending, *commands])
        second = await self._valkey.batch([*pending, *commands])
        is_settled = not any(first[: len(pending)]) and first == second
        return second[len(pending) :] if is_settled else None


def _key(command: Command) -> Any:
    return command[3] if command[0] == "FCALL_RO" else command[1]
