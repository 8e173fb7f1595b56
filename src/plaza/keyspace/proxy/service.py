"""Commands of a caller, performed as far as they are permitted.

What is refused costs no round trip; all that is permitted of a call takes one. A call is limited in what it says
(`forms.py`), in the elements and bytes of its answers, and in time, so that no caller keeps Valkey or us from others.
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

# Of all long answers of a call together; each gets an equal share.
MOST_ELEMENTS: Final = 10_000
# Of all answers of a call together. A field that is named a thousand times is answered a thousand times.
MOST_BYTES: Final = 4 * 1024 * 1024
SECONDS: Final = 2.0

_TOO_LARGE: Final = "ERR the answers of this call are too large"

Outcome = Any | Refused


class Proxy:
    """Valkey, by the rules of the catalogue."""

    def __init__(self, functions: Functions, limiter: Limiter, catalogues: Sequence[Catalogue]) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._limiter = limiter
        self._planner = CommandPlanner(AccessRules(catalogues), functions)

    async def run(self, actor: Actor, address: str, commands: Sequence[list[str]]) -> list[Outcome]:
        """Each command's answer, or `Refused` in its place. One round trip, and one more if something is written."""
        plans = self._plans(actor, commands)
        permitted = [plan for plan in plans if isinstance(plan, CommandPlan)]
        answers = iter(await self._answers(permitted, await self._perform(actor, address, permitted, atomic=False)))
        return [next(answers) if isinstance(plan, CommandPlan) else plan for plan in plans]

    async def transact(self, actor: Actor, address: str, commands: Sequence[list[str]]) -> list[Outcome]:
        """All commands in one atomic step, or none. If one is not permitted it says so in its place, and the others
        there that they were not performed: clients of the protocol make their ordinary error of that."""
        planned = self._plans(actor, commands)
        plans = [plan for plan in planned if isinstance(plan, CommandPlan)]
        if refused := [plan for plan in planned if isinstance(plan, Refused)]:
            # With the reason, since a client tells of the first error in the row.
            discarded = Refused(f"EXECABORT Transaction discarded because of: {refused[0]}")
            return [discarded if isinstance(plan, CommandPlan) else plan for plan in planned]
        try:
            replies = await self._perform(actor, address, plans, atomic=True)
        except ReplyError as error:  # the transaction itself was refused: its keys live in different places
            raise Refused(error.message) from None
        return await self._answers(plans, replies)

    def _plans(self, actor: Actor, commands: Sequence[list[str]]) -> list[CommandPlan | Refused]:
        caller = Caller.by(actor)
        return [self._plan(caller, words) for words in commands]

    def _plan(self, caller: Caller, words: list[str]) -> CommandPlan | Refused:
        try:
            return self._planner.plan(caller, words)
        except Refused as refused:
            return refused

    async def _perform(self, actor: Actor, address: str, plans: Sequence[CommandPlan], *, atomic: bool) -> list[Any]:
        if any(plan.writes for plan in plans):
            await self._limiter.take("write", actor.name, address)
        share = MOST_ELEMENTS // max(1, sum(plan.sized for plan in plans))
        steps = [step for plan in plans for step in plan.steps(share)]
        if not steps:
            return []
        send = self._valkey.multi if atomic else self._valkey.batch
        replies = await self._again(steps, await send(steps, raw=True, return_errors=True, timeout=SECONDS))
        if all(isinstance(reply, NotReady) for reply in replies):
            raise replies[0]  # nothing can be done now: that is not the commands' fault
        return replies

    async def _again(self, steps: Sequence[Step], replies: list[Any]) -> list[Any]:
        """Repeat what did not run because a node lacks our functions: a new primary, or one that was emptied."""
        missing = [i for i, reply in enumerate(replies) if isinstance(reply, ReplyError) and is_function_missing(reply)]
        if missing:
            await self._functions.load()
            again = await self._valkey.batch([steps[i] for i in missing], raw=True, return_errors=True, timeout=SECONDS)
            for i, reply in zip(missing, again, strict=True):
                replies[i] = reply
        return replies

    async def _answers(self, plans: Sequence[CommandPlan], replies: list[Any]) -> list[Outcome]:
        """What the replies, which came in a row, come to."""
        rest = iter(replies)
        shares = [list(islice(rest, plan.count)) for plan in plans]
        looked = await self._looked(plans, shares)
        answers: list[Outcome] = []
        room = MOST_BYTES
        for plan, own, said in zip(plans, shares, looked, strict=True):
            room -= _weight(own)
            # A write is never said to be refused once it is done; its answer is a number anyway.
            fits = room >= 0 or plan.writes
            answers.append(_finish(plan, own, said) if fits else Refused(_TOO_LARGE))
        return answers

    async def _looked(self, plans: Sequence[CommandPlan], shares: Sequence[list[Any]]) -> list[list[bool]]:
        """Whether replies are about what is hidden: a comment on a banned post. A round trip if one may be."""
        looks = [plan.look(own) for plan, own in zip(plans, shares, strict=True)]
        steps = [step for look in looks for step in look if step is not None]
        found = iter(await self._valkey.batch(steps, raw=True, timeout=SECONDS))
        return [[step is not None and bool(next(found)) for step in look] for look in looks]


def _finish(plan: CommandPlan, replies: list[Any], looked: list[bool]) -> Outcome:
    try:
        return plan.finish(replies, looked)
    except Refused as refused:
        return refused


def _weight(reply: Any) -> int:
    """Bytes of strings."""
    if isinstance(reply, list):
        return sum(map(_weight, reply))
    return len(reply) if isinstance(reply, bytes) else 0
