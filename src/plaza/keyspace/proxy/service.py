"""Runs the permitted commands of a caller.

A refused command costs no round trip; all permitted commands of a request take one. A request is limited in its size
(`encoding`), in the elements and bytes of its results, in its work (`work`) and in time, so that one caller cannot
block Valkey or this process for others. Work is counted against the caller's rate limit before it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from time import monotonic
from typing import Any, Final

import structlog
from msgspec.structs import replace

from plaza.core.auth import Actor
from plaza.core.domain import EmitChanges
from plaza.core.encryption import FieldEncryption
from plaza.core.errors import PlazaError
from plaza.core.functions import Functions, is_function_missing
from plaza.core.keyspace import Catalogue
from plaza.core.rate_limits import Limiter
from plaza.core.security_log import AccountLog, LogEntry, SecurityLog
from plaza.core.valkey import NotReady, ReplyError
from plaza.keyspace.proxy.access_rules import AccessRules, Caller
from plaza.keyspace.proxy.commands import Refused
from plaza.keyspace.proxy.execution import CommandPlan, CommandPlanner, LengthLimit, Step, long_length
from plaza.keyspace.proxy.work import element_work

# For all long results of a request together; each gets an equal share.
MAX_ELEMENTS: Final = 10_000
# The same for what is read at once. The length of a longer result is counted as work before it is read.
FREE_ELEMENTS: Final = 1_000
# For all results of a request together: a field that is named a thousand times is returned a thousand times.
MAX_RESULT_BYTES: Final = 4 * 1024 * 1024
TIMEOUT_SECONDS: Final = 2.0
# Work of all commands of a request together, without long results: about 32 ms of Valkey.
MAX_WORK: Final = 32_000
# Work that is sent at once. Other callers' commands run in between, and after a timeout the rest is never sent.
WORK_PER_BATCH: Final = 4_000
# For each so much work, a request counts as one more request of the caller's rate limit.
WORK_PER_REQUEST: Final = 1_000

# The result of a logged write: it is recorded before it runs, and the caller gets each command's result.
SENT: Final = "sent"

_TOO_LARGE: Final = "ERR the results of this request are too large"
_TOO_MUCH_WORK: Final = "ERR the commands of this request are too much work. Send fewer, or scan less at a time"

Outcome = Any | Refused

log = structlog.get_logger("plaza.proxy")


class Proxy:
    """Runs commands under the access rules of the key catalogues."""

    def __init__(
        self,
        functions: Functions,
        limiter: Limiter,
        catalogues: Sequence[Catalogue],
        encryption: FieldEncryption,
        security_log: SecurityLog | None = None,
        account_log: AccountLog | None = None,
        on_write: Mapping[str, EmitChanges] | None = None,
    ) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._limiter = limiter
        self._security_log = security_log
        self._account_log = account_log or AccountLog(None)
        self._on_write = on_write or {}
        self._planner = CommandPlanner(AccessRules(catalogues), functions, encryption)

    async def run(self, actor: Actor, address: str, commands: Sequence[list[str]]) -> list[Outcome]:
        """Each command's result, or `Refused` in its place. One round trip, and two more if there is a write."""
        plans = self._plans(actor, commands)
        permitted = [plan for plan in plans if isinstance(plan, CommandPlan)]
        results = iter(await self._results(permitted, await self._send(actor, address, permitted, atomic=False)))
        return [next(results) if isinstance(plan, CommandPlan) else plan for plan in plans]

    async def transact(self, actor: Actor, address: str, commands: Sequence[list[str]]) -> list[Outcome]:
        """Run all commands in one transaction, or none. If one is refused, its place has its error and the other
        places an `EXECABORT` error, which Upstash clients raise as usual."""
        planned = self._plans(actor, commands)
        plans = [plan for plan in planned if isinstance(plan, CommandPlan)]
        if refused := [plan for plan in planned if isinstance(plan, Refused)]:
            # With the reason, because clients show only the first error.
            discarded = Refused(f"EXECABORT Transaction discarded because of: {refused[0]}")
            return [discarded if isinstance(plan, CommandPlan) else plan for plan in planned]
        try:
            replies = await self._send(actor, address, plans, atomic=True)
        except ReplyError as error:  # the transaction itself was refused: its keys are in different slots
            raise Refused(error.message) from None
        return await self._results(plans, replies)

    def _plans(self, actor: Actor, commands: Sequence[list[str]]) -> list[CommandPlan | Refused]:
        caller, work_left = Caller.from_actor(actor), MAX_WORK
        plans: list[CommandPlan | Refused] = []
        for words in commands:
            plan = self._plan(caller, words)
            if isinstance(plan, CommandPlan):
                work_left -= plan.work
                plan = plan if work_left >= 0 else Refused(_TOO_MUCH_WORK)
            plans.append(plan)
        return plans

    def _plan(self, caller: Caller, words: list[str]) -> CommandPlan | Refused:
        try:
            return self._planner.plan(caller, words)
        except Refused as refused:
            return refused

    async def _send(self, actor: Actor, address: str, plans: Sequence[CommandPlan], *, atomic: bool) -> list[Any]:
        if writes := [plan for plan in plans if plan.writes]:
            await self._limiter.take("write", actor.name, address)
            await self._record(actor, address, writes)
        count = max(1, sum(plan.may_be_long for plan in plans))
        limit = LengthLimit(FREE_ELEMENTS // count, MAX_ELEMENTS // count)
        work = sum(plan.work for plan in plans)
        if atomic:
            long = any(plan.may_be_long for plan in plans)
            await self._count_work(actor, address, work + (element_work(MAX_ELEMENTS) if long else 0))
            replies = await self._send_transaction(plans, LengthLimit(limit.most, limit.most))
        else:
            await self._count_work(actor, address, work)
            deadline = monotonic() + TIMEOUT_SECONDS
            replies = await self._send_batches(plans, limit, deadline)
            try:
                await self._read_long_results(actor, address, plans, replies, limit, deadline)
            except PlazaError as error:
                if not writes:
                    raise
                replies = [reply if long_length(reply) is None else _not_read(error) for reply in replies]
        if replies and all(isinstance(reply, NotReady) for reply in replies):
            raise replies[0]  # Valkey is not ready, which is no error of the commands
        return replies

    async def _record(self, actor: Actor, address: str, writes: Sequence[CommandPlan]) -> None:
        """Record the writes of an API key, without their values. Of a user's, only changes that the user is told of."""
        if not actor.via_key:
            for action in {action for plan in writes for action in plan.recorded_as}:
                await self._account_log.record(actor.name, action, address, result=SENT, detail="proxy")
                await self._account_log.notify(actor.name, action, address)
            return
        if self._security_log is None:
            return
        by_key: dict[str, list[str]] = {}
        for plan in writes:
            command = " ".join((plan.command.spec.name, *plan.command.fields))
            by_key.setdefault(plan.command.keys[0], []).append(command)
        # The log names users as everywhere else, so that it follows a renaming and a deletion.
        entries = [
            LogEntry(
                actor.name,
                "proxy write",
                key.removeprefix("user:"),
                address,
                SENT,
                detail="; ".join(done),
                kind="admin",
            )
            for key, done in by_key.items()
        ]
        await self._security_log.record(*entries)

    async def _send_transaction(self, plans: Sequence[CommandPlan], limit: LengthLimit) -> list[Any]:
        steps = [step for plan in plans for step in plan.steps(limit)]
        replies = await self._valkey.multi(steps, raw=True, return_errors=True, timeout=TIMEOUT_SECONDS)
        return await self._retry_missing(steps, replies)

    async def _send_batches(self, plans: Sequence[CommandPlan], limit: LengthLimit, deadline: float) -> list[Any]:
        """Send all steps: one round trip, and one more for every `WORK_PER_BATCH`.

        If one fails after writes were run, all that follow have the error as their reply.
        """
        replies: list[Any] = []
        has_written = False
        for batch in _batches(plans):
            steps = [step for plan in batch for step in plan.steps(limit)]
            left = max(deadline - monotonic(), 0.001)
            try:
                sent = await self._valkey.batch(steps, raw=True, return_errors=True, timeout=left)
                replies += await self._retry_missing(steps, sent)
            except PlazaError as error:
                if not has_written:
                    raise
                step_count = sum(plan.step_count for plan in plans)
                return replies + [_not_read(error)] * (step_count - len(replies))
            has_written = has_written or any(plan.writes for plan in batch)
        return replies

    async def _read_long_results(
        self,
        actor: Actor,
        address: str,
        plans: Sequence[CommandPlan],
        replies: list[Any],
        limit: LengthLimit,
        deadline: float,
    ) -> None:
        """Read the results that were above the free length, and put them in their places. Two round trips if any."""
        lengths = {i: length for i, reply in enumerate(replies) if (length := long_length(reply)) is not None}
        if not lengths:
            return
        first_reply = accumulate((plan.step_count for plan in plans), initial=0)
        plan_at = dict(zip(first_reply, plans, strict=False))
        again = [replace(plan_at[i], work=element_work(length)) for i, length in lengths.items()]
        await self._count_work(actor, address, sum(plan.work for plan in again))
        paid = LengthLimit(limit.most, limit.most)
        for i, reply in zip(lengths, await self._send_batches(again, paid, deadline), strict=True):
            replies[i] = reply

    async def _count_work(self, actor: Actor, address: str, work: int) -> None:
        """Count a request that is much work as several requests, or raise `RateLimited`. One round trip if it is."""
        if work >= WORK_PER_REQUEST:
            await self._limiter.take("proxy", actor.name, address, work // WORK_PER_REQUEST)

    async def _retry_missing(self, steps: Sequence[Step], replies: list[Any]) -> list[Any]:
        """Send steps again that failed because a node has no Lua functions: a new primary, or one that was flushed."""
        missing = [i for i, reply in enumerate(replies) if isinstance(reply, ReplyError) and is_function_missing(reply)]
        if missing:
            await self._functions.load()
            retried = await self._valkey.batch(
                [steps[i] for i in missing], raw=True, return_errors=True, timeout=TIMEOUT_SECONDS
            )
            for i, reply in zip(missing, retried, strict=True):
                replies[i] = reply
        return replies

    async def _results(self, plans: Sequence[CommandPlan], replies: list[Any]) -> list[Outcome]:
        """The results of the plans, from the replies of all steps in order."""
        rest = iter(replies)
        shares = [list(islice(rest, plan.step_count)) for plan in plans]
        try:
            hidden = await self._hidden(plans, shares)
        except PlazaError as error:
            if not any(plan.writes for plan in plans):
                raise
            follow_ups = [plan.follow_up(own) for plan, own in zip(plans, shares, strict=True)]
            hidden = [[False] * len(steps) for steps in follow_ups]
            shares = [
                [_not_read(error)] * len(own) if any(steps) else own
                for steps, own in zip(follow_ups, shares, strict=True)
            ]
        results: list[Outcome] = []
        bytes_left = MAX_RESULT_BYTES
        for plan, own, own_hidden in zip(plans, shares, hidden, strict=True):
            result = _finish(plan, own, own_hidden)
            bytes_left -= _string_bytes(result)
            # A write that was run must not be reported as refused; its result is only a number.
            results.append(result if bytes_left >= 0 or plan.writes else Refused(_TOO_LARGE))
        await self._announce(plans, results)
        return results

    async def _announce(self, plans: Sequence[CommandPlan], results: Sequence[Outcome]) -> None:
        """Emit one event for each key whose declared fields were written. One round trip for each family of keys."""
        rows = zip(plans, results, strict=True)
        changed = {plan.changes for plan, result in rows if plan.changes and not isinstance(result, Refused)}
        for pattern, emit in self._on_write.items():
            owners = sorted(owner for changed_pattern, owner in changed if changed_pattern == pattern)
            if not owners:
                continue
            try:
                await emit(owners)
            except Exception:  # the writes were run, and a caller who is told that they failed repeats them
                log.exception("proxy_write_not_announced", pattern=pattern, owners=owners)

    async def _hidden(self, plans: Sequence[CommandPlan], shares: Sequence[list[Any]]) -> list[list[bool]]:
        """Whether each key is hidden, such as a comment on a banned post. One round trip if any key may be."""
        follow_ups = [plan.follow_up(own) for plan, own in zip(plans, shares, strict=True)]
        steps = [step for follow_up in follow_ups for step in follow_up if step is not None]
        if not steps:
            return [[False] * len(follow_up) for follow_up in follow_ups]
        found = iter(await self._valkey.batch(steps, raw=True, timeout=TIMEOUT_SECONDS))
        return [[step is not None and bool(next(found)) for step in follow_up] for follow_up in follow_ups]


def _finish(plan: CommandPlan, replies: list[Any], hidden: list[bool]) -> Outcome:
    try:
        return plan.finish(replies, hidden)
    except Refused as refused:
        return refused


def _not_read(error: PlazaError) -> ReplyError:
    """What a command returns that fails after writes of its request were run, whose results the caller must get."""
    return ReplyError("ERR", f"ERR {error.detail}")  # without Valkey's address


def _batches(plans: Sequence[CommandPlan]) -> Iterator[list[CommandPlan]]:
    """Split plans into groups of at most `WORK_PER_BATCH`, or of one plan that exceeds it alone."""
    batch: list[CommandPlan] = []
    work = 0
    for plan in plans:
        if batch and work + plan.work > WORK_PER_BATCH:
            yield batch
            batch, work = [], 0
        batch.append(plan)
        work += plan.work
    if batch:
        yield batch


def _string_bytes(reply: Any) -> int:
    """The total size of the strings in a reply."""
    if isinstance(reply, list):
        return sum(map(_string_bytes, reply))
    return len(reply) if isinstance(reply, bytes) else 0
