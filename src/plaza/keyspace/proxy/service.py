"""Runs the permitted commands of a caller.

A refused command costs no round trip; all permitted commands of a request take one. A request is limited in its size
(`encoding`), in the elements and bytes of its results, and in time, so that one caller cannot block Valkey or this
process for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from plaza.core.auth import Actor
from plaza.core.functions import Functions, is_function_missing
from plaza.core.keyspace import Catalogue
from plaza.core.rate_limits import Limiter
from plaza.core.valkey import NotReady, ReplyError
from plaza.keyspace.proxy.access_rules import AccessRules, Caller
from plaza.keyspace.proxy.commands import Refused
from plaza.keyspace.proxy.execution import CommandPlan, CommandPlanner, Step

# For all long results of a request together; each gets an equal share.
MAX_ELEMENTS: Final = 10_000
# For all results of a request together: a field that is named a thousand times is returned a thousand times.
MAX_RESULT_BYTES: Final = 4 * 1024 * 1024
TIMEOUT_SECONDS: Final = 2.0

_TOO_LARGE: Final = "ERR the results of this request are too large"

Outcome = Any | Refused


class Proxy:
    """Runs commands under the access rules of the key catalogues."""

    def __init__(self, functions: Functions, limiter: Limiter, catalogues: Sequence[Catalogue]) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._limiter = limiter
        self._planner = CommandPlanner(AccessRules(catalogues), functions)

    async def run(self, actor: Actor, address: str, commands: Sequence[list[str]]) -> list[Outcome]:
        """Each command's result, or `Refused` in its place. One round trip, and one more if there is a write."""
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
        caller = Caller.from_actor(actor)
        return [self._plan(caller, words) for words in commands]

    def _plan(self, caller: Caller, words: list[str]) -> CommandPlan | Refused:
        try:
            return self._planner.plan(caller, words)
        except Refused as refused:
            return refused

    async def _send(self, actor: Actor, address: str, plans: Sequence[CommandPlan], *, atomic: bool) -> list[Any]:
        if any(plan.writes for plan in plans):
            await self._limiter.take("write", actor.name, address)
        share = MAX_ELEMENTS // max(1, sum(plan.may_be_long for plan in plans))
        steps = [step for plan in plans for step in plan.steps(share)]
        if not steps:
            return []
        send = self._valkey.multi if atomic else self._valkey.batch
        replies = await self._retry_missing(
            steps, await send(steps, raw=True, return_errors=True, timeout=TIMEOUT_SECONDS)
        )
        if all(isinstance(reply, NotReady) for reply in replies):
            raise replies[0]  # Valkey is not ready, which is no error of the commands
        return replies

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
        hidden = await self._hidden(plans, shares)
        results: list[Outcome] = []
        bytes_left = MAX_RESULT_BYTES
        for plan, own, own_hidden in zip(plans, shares, hidden, strict=True):
            bytes_left -= _string_bytes(own)
            # A write that was run must not be reported as refused; its result is only a number.
            fits = bytes_left >= 0 or plan.writes
            results.append(_finish(plan, own, own_hidden) if fits else Refused(_TOO_LARGE))
        return results

    async def _hidden(self, plans: Sequence[CommandPlan], shares: Sequence[list[Any]]) -> list[list[bool]]:
        """Whether each key is hidden, such as a comment on a banned post. One round trip if any key may be."""
        follow_ups = [plan.follow_up(own) for plan, own in zip(plans, shares, strict=True)]
        steps = [step for follow_up in follow_ups for step in follow_up if step is not None]
        found = iter(await self._valkey.batch(steps, raw=True, timeout=TIMEOUT_SECONDS))
        return [[step is not None and bool(next(found)) for step in follow_up] for follow_up in follow_ups]


def _finish(plan: CommandPlan, replies: list[Any], hidden: list[bool]) -> Outcome:
    try:
        return plan.finish(replies, hidden)
    except Refused as refused:
        return refused


def _string_bytes(reply: Any) -> int:
    """The total size of the strings in a reply."""
    if isinstance(reply, list):
        return sum(map(_string_bytes, reply))
    return len(reply) if isinstance(reply, bytes) else 0
