"""Makes findings true again. Every mend is a function of the owner, which looks at the facts as they are when it runs:
whatever was written since the audit looked is kept, and a mend that nothing needs any more changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.keyspace import Key
from plaza.keyspace.audit.basic_invariants import LIFETIME, MEMBER, TYPE, UNKNOWN, VALUE
from plaza.keyspace.audit.outbox_invariant import SETTLED
from plaza.keyspace.audit.recheck import Suspect

# How many mends are remembered so as not to be done again in the same pass.
REMEMBERED = 50_000

_PART = re.compile(r"<(\w+)>")
_IN_WORDS = {
    TYPE: "remove it, since it cannot be read; what follows from facts is made anew",
    LIFETIME: "give it the lifetime it should have",
    MEMBER: "take that member out",
    VALUE: "take that field out",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """Verbs to call, in order: each with its key and its arguments."""

    calls: tuple[tuple[str, str, tuple[str, ...]], ...]
    says: str


class Repairer:
    """Knows what makes which finding true again, and does it."""

    def __init__(self, functions: Functions, repairs: Mapping[str, Mapping[str, Key]], clock: Clock) -> None:
        self._functions = functions
        self._repairs = repairs
        self._clock = clock
        self._done: dict[Plan, None] = {}

    def forget(self) -> None:
        """Another pass: what was mended in the last one may be mended again."""
        self._done.clear()

    def plan(self, suspect: Suspect) -> Plan | None:
        """What would be done; None if no fact decides."""
        name, key, entry = suspect.rule.name, suspect.family.key, suspect.entry
        if name == UNKNOWN:
            return None
        if name == SETTLED:
            return Plan((), "settle it, as a worker would")
        calls: list[tuple[str, str, tuple[str, ...]]] = []
        if name == TYPE:
            calls.append(("audit_drop", entry.name, (key.type,)))
        elif name == LIFETIME:
            calls.append(
                ("audit_lifetime", entry.name, ("" if key.ttl_seconds is None else str(key.ttl_seconds * 1000),))
            )
        elif name in (MEMBER, VALUE):
            calls.append(("audit_without", entry.name, (entry.member,)))
        says = [_IN_WORDS[name]] if name in _IN_WORDS else []
        if name != LIFETIME:
            wanted = suspect.rule.repair or key.repair
            verb = self._verb(suspect, wanted) if wanted else None
            if verb is not None:
                calls.append(verb)
                says.append(f"repair {wanted.split()[0]} {' '.join(verb[2])}")
        return Plan(tuple(calls), "; ".join(says)) if calls else None

    def _verb(self, suspect: Suspect, wanted: str) -> tuple[str, str, tuple[str, ...]] | None:
        word, *parts = wanted.split()
        ids = suspect.family.ids(suspect.entry)
        domain = suspect.family.domain
        args = []
        for part in parts:
            match = _PART.fullmatch(part)
            if match is not None and match[1] not in ids:
                return None  # the entry is too broken to say whom it speaks of
            args.append(ids[match[1]] if match else part)
        key = self._repairs.get(domain, {}).get(word)
        if key is None:
            return None
        return f"{domain}_repair_{word}", key(*args[: len(key.parts)]), tuple(args)

    async def repair(self, plan: Plan) -> bool:
        """Do it. False if the same has been done in this pass already."""
        if plan in self._done:
            return False
        if len(self._done) >= REMEMBERED:
            self._done.pop(next(iter(self._done)))
        self._done[plan] = None
        if not plan.calls:
            await self._functions.outbox.recover()
        for verb, key, args in plan.calls:
            now = [] if verb.startswith("audit_") else [self._clock.now_ms()]
            await self._functions.run(verb, [key], *now, *args)
        return True
