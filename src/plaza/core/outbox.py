"""Completes commands on a cluster: applies their projection updates to keys of other owners.

A command changes its owner's source data, writes an outbox entry beside it in the same atomic step, and returns the
projection updates (`outbox.lua` computes them). The caller applies the updates and settles the entry:

    1  command         source data and outbox entry, on the owner's node
    2  apply           the updates of each node in one call, in parallel; commands of other owners start here too, and
                       events are published
    3  settle          removes the entry, or returns updates that must be computed again

If the caller dies, the entry stays, and a worker recovers it (`outbox_recovery.py`). A node rejects an update that
arrives after its deadline, and a worker recovers only entries much older than that deadline. So no update arrives after
the worker's. A caller that only lost a connection does not wait that long: it kills the old connection on the server
(`valkey/connection_fencing.py`), then computes its updates again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import cache
from time import monotonic
from typing import Any, TypeVar

from msgspec import Struct

from plaza.core import keys as core
from plaza.core.errors import Conflict, Unavailable
from plaza.core.event_publisher import EventPublisher, Publication
from plaza.core.valkey import Arg, ReplyError, Valkey
from plaza.core.valkey.slots import SLOTS, hash_tag, key_slot

# How long a caller retries when a node is overloaded. Shorter than ABANDONED_MS of the recovery, which then takes over.
RETRY_SECONDS = 10

# With more operations than this in progress, `run_deferred` waits for its own, so that the backlog stays bounded.
MAX_IN_PROGRESS = 500

Result = TypeVar("Result")
Run = Callable[[str, Sequence[str], Sequence[Arg]], Awaitable[Any]]


class UpdateTooLate(Conflict):
    title, code = "An update came too late to be applied", "too_late"


class OutboxEntry(Struct, frozen=True):
    """Where the outbox entries of an owner are: its hash, and the set that lists the hash for workers."""

    library: str
    pending: str
    slot: str

    @classmethod
    def for_key(cls, library: str, key: str) -> OutboxEntry:
        tag = hash_tag(key.encode()).decode()
        return cls(library, core.PENDING(library, tag), core.PENDING_SLOT(slot_tags()[key_slot(tag)]))


class PendingUpdates(Struct, frozen=True):
    """The updates an operation still has to apply, and its deadline (Unix milliseconds)."""

    op: str
    deadline: str
    commands: list[list[str]]

    @classmethod
    def from_reply(cls, reply: list[Any]) -> PendingUpdates:
        return cls(reply[0], reply[1], reply[2:])

    def named(self, name: str) -> list[list[str]]:
        """Return the commands of one name."""
        return [command for command in self.commands if command[0] == name]


class Outbox:
    """Runs commands on a cluster and completes their projections."""

    def __init__(self, run: Run, valkey: Valkey) -> None:
        self._run = run
        self._valkey = valkey
        self.operation_ids = map(f"{secrets.token_hex(6)}-{{}}".format, itertools.count())
        self._tasks: set[asyncio.Task[Any]] = set()
        self._publisher = EventPublisher(self._run_with_retries)

    async def run(self, command: str, keys: Sequence[str], args: Sequence[Arg], deadline: str = "") -> Any:
        """Run a command and settle it. At most five sequential round trips without contention."""
        reply, settling = await self.finish(self._start(command, keys, args, deadline))
        if settling is not None:
            await asyncio.shield(settling)
        return reply

    async def run_deferred(self, command: str, keys: Sequence[str], args: Sequence[Arg]) -> Any:
        """Run a command and settle it in the background. One round trip: source data and outbox entry are stored."""
        reply, settling = await self.finish(self._start(command, keys, args, ""))
        if settling is not None and self.in_progress > MAX_IN_PROGRESS:
            await asyncio.shield(settling)
        return reply

    async def _start(
        self, command: str, keys: Sequence[str], args: Sequence[Arg], deadline: str
    ) -> tuple[Any, asyncio.Task[None] | None]:
        """Run a command. Returns its reply and the task that settles it, if it has updates."""
        library = command.partition("_")[0]
        entry, op = OutboxEntry.for_key(library, keys[0]), next(self.operation_ids)
        # A command that follows from another one is retried; a caller's own command may fail as overloaded.
        run = self._run_with_retries if deadline else self._run
        try:
            reply = await run(command, [*keys, entry.pending, entry.slot], [op, deadline, *args])
        except Unavailable as error:
            if getattr(error, "may_have_run", True):
                resuming = self._in_background(self._resume(entry, op, error))
                if deadline:  # the operation that performed it waits for all of its updates
                    await asyncio.shield(resuming)
            raise
        if len(reply) == 1:
            return reply[0], None
        return reply[0], self._in_background(self.settle(entry, PendingUpdates.from_reply(reply[1])))

    async def finish(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run work that may leave an outbox entry. If the caller is cancelled, the work goes on without it."""
        return await asyncio.shield(self._in_background(work))

    def _in_background(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settle(self, entry: OutboxEntry, updates: PendingUpdates) -> None:
        """Apply and settle until nothing is left to compute again. If a node is unavailable, a worker does it later."""
        try:
            again: PendingUpdates | None = updates
            while again is not None:
                again = await self._apply_and_settle(entry, again)
        except Unavailable:
            return

    async def _apply_and_settle(self, entry: OutboxEntry, updates: PendingUpdates) -> PendingUpdates | None:
        try:
            (started, published), late = await self._apply(entry.library, updates), 0
        except UpdateTooLate:
            started, published, late = [], [], 1
        reply = await self._settle_once(entry, updates.op, late, published)
        # Commands performed by updates have outbox entries of their own. The request waits for them too.
        await asyncio.gather(*started)
        return PendingUpdates.from_reply(reply) if reply else None

    async def _apply(self, library: str, updates: PendingUpdates) -> tuple[list[asyncio.Task[None]], list[str]]:
        """Apply all updates. Returns the tasks that settle performed commands, and which events are published."""
        deadline = updates.deadline
        performed = [self._start(*_parse_perform(library, each), deadline) for each in updates.named("PERFORM")]
        events = [Publication.from_command(library, each, deadline) for each in updates.named("PUBLISH")]
        own = [each for each in updates.commands if each[0] not in ("PERFORM", "PUBLISH")]
        nodes = self._valkey.by_node([key for _, key, *_ in own])
        # Wait for all before settling: one still in progress could overwrite a newer update.
        results: list[Any] = await asyncio.gather(
            *performed,
            *map(self._publisher.publish, events),
            *(self._apply_on_node(library, deadline, [own[i] for i in indexes]) for indexes in nodes),
            return_exceptions=True,
        )
        failed = [result for result in results if isinstance(result, BaseException)]
        for error in failed:
            if not isinstance(error, UpdateTooLate) and not await _is_connection_dead(error):
                raise error
        if failed:
            raise UpdateTooLate
        started = [settling for _, settling in results[: len(performed)] if settling is not None]
        return started, results[len(performed)] if events else []

    async def _apply_on_node(self, library: str, deadline: str, updates: list[list[str]]) -> None:
        """Apply updates whose keys are on one node. If a slot has moved or a key is damaged, apply each by itself."""
        words = [word for update in updates for word in (str(len(update)), *update)]
        try:
            await self._run_with_retries(f"{library}_apply", [updates[0][1]], [deadline, *words])
        except ReplyError:
            if len(updates) == 1:
                raise
            failed: list[ReplyError] = []
            for update in updates:
                try:
                    await self._apply_on_node(library, deadline, [update])
                except ReplyError as error:  # the other keys do not depend on this one
                    failed.append(error)
            if failed:
                raise failed[0] from None

    async def _settle_once(self, entry: OutboxEntry, op: str, late: int, published: Sequence[str] = ()) -> Any:
        """Call `settle`. If its reply is lost with the connection, call it again so that all updates are recomputed."""
        while True:
            try:
                keys = [entry.pending, entry.slot]
                return await self._run_with_retries(f"{entry.library}_settle", keys, [op, late, *published])
            except Unavailable as error:
                if not await _is_connection_dead(error):
                    raise
            late = 1

    async def _resume(self, entry: OutboxEntry, op: str, error: Unavailable) -> None:
        """Settle a command whose reply was lost with its connection. If it ran, its outbox entry exists."""
        with contextlib.suppress(Unavailable):
            if await _is_connection_dead(error) and (reply := await self._settle_once(entry, op, 1)):
                await self.settle(entry, PendingUpdates.from_reply(reply))

    async def _run_with_retries(self, function: str, keys: Sequence[str], args: Sequence[Arg]) -> Any:
        """Run a function; while it fails without having run, as on an overloaded node, try again for a while."""
        until = monotonic() + RETRY_SECONDS
        while True:
            try:
                return await self._run(function, keys, args)
            except Unavailable as error:
                if getattr(error, "may_have_run", True) or monotonic() > until:
                    raise
            await asyncio.sleep(random.uniform(0.02, 0.2))

    @property
    def in_progress(self) -> int:
        """How many operations are being run or settled now."""
        return len(self._tasks)

    async def drain(self) -> None:
        """Wait for the operations in progress, before the connection closes."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


async def _is_connection_dead(error: BaseException) -> bool:
    """Whether the connection that broke is killed, so nothing it carried can still run. If not, a worker recovers."""
    fenced = getattr(error, "fenced", None)
    return fenced is not None and await fenced.kill()


def _parse_perform(library: str, command: list[str]) -> tuple[str, list[str], list[str]]:
    count = int(command[2])
    return f"{library}_{command[1]}", command[3 : 3 + count], command[3 + count :]


@cache
def slot_tags() -> list[str]:
    """Return for every slot a short hash tag, so that a key can be placed in the slot of any owner."""
    tags: dict[int, str] = {}
    letters = "0123456789abcdefghijklmnopqrstuvwxyz"
    words = (map("".join, itertools.product(letters, repeat=size)) for size in (1, 2, 3, 4))
    for word in itertools.chain.from_iterable(words):
        tags.setdefault(key_slot(word), word)
        if len(tags) == SLOTS:
            break
    return [tags[slot] for slot in range(SLOTS)]
