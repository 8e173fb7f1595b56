"""Settles on a cluster what one server does at once: the effects of an operation on keys of other owners.

A verb changes its owner's facts, leaves a note beside them in the same atomic step, and returns the commands that
follow from the facts (`prelude.lua` says how they are made). The caller applies them here and settles the note:

    1  verb            facts + note, on the owner's node
    2  apply           every effect on its own node, together; verbs of other owners start here too
    3  settle          the note goes, or says that the effects must be computed once more

If the caller dies on the way, the note stays, and `recover` in a worker does the rest. An effect that stalls past its
deadline is refused by the node that should apply it, and a worker touches only notes much older than that deadline,
so nothing lands after the worker's word. A caller that lives and only lost a connection need not wait so long: it has
the node end that connection for good (`valkey/ghosts.py`), and computes once more what it carried.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from time import monotonic
from typing import Any

import structlog

from plaza.core import keys as core
from plaza.core.errors import Conflict, Unavailable
from plaza.core.valkey import Arg, Valkey
from plaza.core.valkey.slots import SLOTS, hash_tag, key_slot

# Notes this old belong to nobody: three times the time that effects may take, so that nodes' clocks may differ too.
ABANDONED_MS = 15_000

# How long a caller goes on when it is turned away: less than ABANDONED_MS, after which its note is a worker's.
INSIST_SECONDS = 10

# With so many operations still to be settled, whoever begins another waits for it: a crowd must not run ahead for ever.
BEHIND = 500

# Whoever waits for others' operations looks this often.
SETTLED_SECONDS = 0.1

# How many slots one batch asks about; all of them take 32 batches, whatever the number of keys.
SLOTS_A_BATCH = 512

log = structlog.get_logger("plaza.outbox")

Run = Callable[[str, Sequence[str], Sequence[Arg]], Awaitable[Any]]


class UpdateTooLate(Conflict):
    title, code = "An effect came too late to be applied", "too_late"


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """Where an owner's unsettled operations are noted: its hash, and the set by which workers find it."""

    library: str
    pending: str
    slot: str

    @classmethod
    def for_key(cls, library: str, key: str) -> OutboxEntry:
        tag = hash_tag(key.encode()).decode()
        return cls(library, core.PENDING(library, tag), core.PENDING_SLOT(_slot_tags()[key_slot(tag)]))


@dataclass(frozen=True, slots=True)
class PendingUpdates:
    """What an operation still has to do: the commands, and until when."""

    op: str
    deadline: str
    commands: list[list[str]]

    @classmethod
    def from_reply(cls, reply: list[Any]) -> PendingUpdates:
        return cls(reply[0], reply[1], reply[2:])


class Outbox:
    """Performs verbs with everything that follows from them."""

    def __init__(self, run: Run, valkey: Valkey) -> None:
        self._run = run
        self._valkey = valkey
        self._ops = map(f"{secrets.token_hex(6)}-{{}}".format, itertools.count())
        self._under_way: set[asyncio.Task[Any]] = set()

    async def run(self, verb: str, keys: Sequence[str], args: Sequence[Arg], deadline: str = "") -> Any:
        """Run a verb and settle its effects; at most five round trips in sequence while nobody else is in the way."""
        reply, settling = await self._start(verb, keys, args, deadline)
        if settling is not None:
            # A caller that is cancelled now leaves nothing half done: the settling goes on without it.
            await asyncio.shield(settling)
        return reply

    async def run_deferred(self, verb: str, keys: Sequence[str], args: Sequence[Arg]) -> Any:
        """Run a verb whose effects nobody waits for: its facts and its note are safe on return, one round trip."""
        reply, settling = await self._start(verb, keys, args, "")
        if settling is not None and self.in_progress > BEHIND:
            await asyncio.shield(settling)
        return reply

    async def _start(
        self, verb: str, keys: Sequence[str], args: Sequence[Arg], deadline: str
    ) -> tuple[Any, asyncio.Task[None] | None]:
        """Run a verb; its facts are safe on return, its effects follow in the task."""
        library = verb.partition("_")[0]
        note, op = OutboxEntry.for_key(library, keys[0]), next(self._ops)
        run = self._insist if deadline else self._run  # what a caller asked for itself may be refused to it
        try:
            reply = await run(verb, [*keys, note.pending, note.slot], [op, deadline, *args])
        except Unavailable as error:
            if getattr(error, "may_have_run", True):
                taking_up = self._keep(self._take_up(note, op, error))
                if deadline:  # whoever performed it waits for all that follows; who asked for it hears that it failed
                    await asyncio.shield(taking_up)
            raise
        if len(reply) == 1:
            return reply[0], None
        return reply[0], self._keep(self._settle(note, PendingUpdates.from_reply(reply[1])))

    def _keep(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _settle(self, note: OutboxEntry, work: PendingUpdates) -> None:
        """Apply and settle until the owner's facts and the effects agree. A lost node leaves it to a worker."""
        try:
            again: PendingUpdates | None = work
            while again is not None:
                again = await self._apply_and_settle(note, again)
        except Unavailable:
            # The facts and the note are safe: the worker will find it when the node is back.
            return

    async def _apply_and_settle(self, note: OutboxEntry, work: PendingUpdates) -> PendingUpdates | None:
        try:
            started, late = await self._apply(note.library, work), 0
        except UpdateTooLate:
            started, late = [], 1
        reply = await self._tell(note, work.op, late)
        # What the effects set off in turn has notes of its own; the request waits for it all the same.
        await asyncio.gather(*started)
        return PendingUpdates.from_reply(reply) if reply else None

    async def _apply(self, library: str, work: PendingUpdates) -> list[asyncio.Task[None]]:
        calls: list[Awaitable[Any]] = []
        for command in work.commands:
            if command[0] == "PERFORM":
                calls.append(self._start(*_performed(library, command), work.deadline))
            else:
                name, key, *rest = command
                calls.append(self._insist(f"{library}_apply", [key], [work.deadline, name, *rest]))
        # All must have come back before anything is settled: one still under way could land on newer effects.
        results: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
        failed = [result for result in results if isinstance(result, BaseException)]
        for error in failed:
            if not isinstance(error, UpdateTooLate) and not await _is_over(error):
                raise error
        if failed:
            raise UpdateTooLate
        started = (r[1] for r, c in zip(results, work.commands, strict=True) if c[0] == "PERFORM")
        return [task for task in started if task is not None]

    async def _tell(self, note: OutboxEntry, op: str, late: int) -> Any:
        """Settle. If the connection breaks, nobody knows what was said: then all of it is computed once more."""
        while True:
            try:
                return await self._insist(f"{note.library}_settle", [note.pending, note.slot], [op, late])
            except Unavailable as error:
                if not await _is_over(error):
                    raise
            late = 1

    async def _take_up(self, note: OutboxEntry, op: str, error: Unavailable) -> None:
        """A verb's answer was lost with its connection. If it ran its note is there: do what it would have said."""
        with contextlib.suppress(Unavailable):
            if await _is_over(error) and (reply := await self._tell(note, op, 1)):
                await self._settle(note, PendingUpdates.from_reply(reply))

    async def _insist(self, function: str, keys: Sequence[str], args: Sequence[Arg]) -> Any:
        """Run what has to follow. Turned away before it ran, as by a crowd, it is tried again for a while."""
        until = monotonic() + INSIST_SECONDS
        while True:
            try:
                return await self._run(function, keys, args)
            except Unavailable as error:
                if getattr(error, "may_have_run", True) or monotonic() > until:
                    raise
            await asyncio.sleep(random.uniform(0.02, 0.2))

    async def recover(self, abandoned_ms: int = ABANDONED_MS) -> int:
        """Settle what callers left behind when they died. Returns how many owners needed it."""
        owners = [owner for first in range(0, SLOTS, SLOTS_A_BATCH) for owner in await self._noted(first)]
        return sum([await self._try_owner(slot, pending, abandoned_ms) for slot, pending in owners])

    async def _try_owner(self, slot: str, pending: str, abandoned_ms: int) -> bool:
        try:
            return await self._recover_owner(slot, pending, abandoned_ms)
        except Unavailable:
            raise
        except Exception:
            # One note that cannot be read, or whose domain is not installed here, must not keep the others waiting.
            log.exception("a note could not be settled", pending=pending)
            return False

    async def _noted(self, first: int) -> list[tuple[str, str]]:
        slots = [core.PENDING_SLOT(tag) for tag in _slot_tags()[first : first + SLOTS_A_BATCH]]
        members = await self._valkey.batch([("SMEMBERS", slot) for slot in slots])
        return [(slot, pending) for slot, found in zip(slots, members, strict=True) for pending in found]

    async def _recover_owner(self, slot: str, pending: str, abandoned_ms: int) -> bool:
        library = pending.split(":")[1]
        note = OutboxEntry(library, pending, slot)
        reply = await self._run(f"{library}_take", [pending, slot], [next(self._ops), abandoned_ms])
        if not reply:
            return False
        await self._settle(note, PendingUpdates.from_reply(reply))
        return True

    async def wait_until_settled(self, name: str, abandoned_ms: int = ABANDONED_MS) -> None:
        """Wait until no note speaks of a name: until its callers are done, or a worker is in the place of the dead.

        Of a popular name somebody speaks at every moment. But what was begun before this call is settled by the time
        that its note would have been abandoned and taken over, twice; for later ones nobody waits.
        """
        until = monotonic() + 2 * abandoned_ms / 1000
        while self._valkey.clustered and monotonic() < until and await self._speaking_of(name):
            if not await self.recover(abandoned_ms):
                await asyncio.sleep(SETTLED_SECONDS)

    async def _speaking_of(self, name: str) -> bool:
        for first in range(0, SLOTS, SLOTS_A_BATCH):
            owners = [pending for _, pending in await self._noted(first)]
            for fields in await self._valkey.batch([("HVALS", pending) for pending in owners]):
                if any(name in _words(note) for note in fields if note.startswith("{")):
                    return True
        return False

    @property
    def in_progress(self) -> int:
        """How many operations are being settled now."""
        return len(self._under_way)

    async def drain(self) -> None:
        """Wait for what is being settled, before the connection closes."""
        while self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)


async def _is_over(error: BaseException) -> bool:
    """Whether what was lost with a connection can do nothing any more. Otherwise only time tells, and a worker."""
    fenced = getattr(error, "fenced", None)
    return fenced is not None and await fenced.kill()


def _words(note: str) -> set[str]:
    """Every word of the statements in a note."""
    return {word for statement in json.loads(note)["todo"] for word in json.loads(statement)}


def _performed(library: str, command: list[str]) -> tuple[str, list[str], list[str]]:
    count = int(command[2])
    return f"{library}_{command[1]}", command[3 : 3 + count], command[3 + count :]


@cache
def _slot_tags() -> list[str]:
    """For every slot a short tag that hashes to it, so that a key can be put beside any owner."""
    tags: dict[int, str] = {}
    for word in itertools.chain.from_iterable(
        map("".join, itertools.product("0123456789abcdefghijklmnopqrstuvwxyz", repeat=size)) for size in (1, 2, 3, 4)
    ):
        tags.setdefault(key_slot(word), word)
        if len(tags) == SLOTS:
            break
    return [tags[slot] for slot in range(SLOTS)]
