"""Repairs findings. Each repair is a Lua command of the owner that reads the source data when it runs.

It therefore keeps what was written since the audit read the key, and changes nothing if no repair is needed any more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.invariants import REPORT_ONLY
from plaza.core.keyspace import Key
from plaza.core.valkey import ReplyError
from plaza.core.wrong_type import is_wrong_type
from plaza.keyspace.audit.basic_invariants import LIFETIME, MEMBER, RETIRED, TYPE, UNKNOWN, VALUE
from plaza.keyspace.audit.recheck import Suspicion
from plaza.keyspace.audit.unsettled_outbox import SETTLED

# Repairs of a pass that are remembered, so that the same repair does not run twice.
MAX_REMEMBERED = 50_000

_PART = re.compile(r"<(\w+)>")
_DESCRIPTIONS = {
    TYPE: "delete it, because it cannot be read; derived data is rebuilt",
    RETIRED: "delete it",
    LIFETIME: "set the declared lifetime",
    MEMBER: "remove that member",
    VALUE: "remove that field",
}

CommandCall = tuple[str, str, tuple[str, ...]]  # command, key, arguments


class RepairPlan(Struct, frozen=True):
    """The Lua commands that repair a finding, in order, and a description for the report."""

    calls: tuple[CommandCall, ...]
    description: str


class Repairer:
    """Plans and runs the repairs of one pass."""

    def __init__(
        self,
        functions: Functions,
        repairs: Mapping[str, Mapping[str, Key]],
        clock: Clock,
        *,
        derived_only: bool = False,
    ) -> None:
        self._functions = functions
        self._repairs = repairs
        self._clock = clock
        self._derived_only = derived_only
        self._claimed: dict[RepairPlan, None] = {}

    def plan(self, suspicion: Suspicion) -> RepairPlan | None:
        """The repair of a finding; None if the source data does not decide what is right."""
        name, key, entry = suspicion.rule.name, suspicion.family.key, suspicion.entry
        if name == UNKNOWN or suspicion.rule.repair == REPORT_ONLY:
            return None
        if self._derived_only and name in _DESCRIPTIONS:  # a failover changes neither types nor shapes
            return None
        if name == SETTLED:
            return RepairPlan((), "settle it, as a worker does")
        calls: list[CommandCall] = []
        if name in (TYPE, RETIRED):
            calls.append(("audit_drop", entry.name, (key.type if name == TYPE else "",)))
        elif name == LIFETIME:
            ttl_ms = "" if key.ttl_seconds is None else str(key.ttl_seconds * 1000)
            calls.append(("audit_lifetime", entry.name, (ttl_ms,)))
        elif name in (MEMBER, VALUE):
            calls.append(("audit_remove_entry", entry.name, (entry.member,)))
        description = [_DESCRIPTIONS[name]] if name in _DESCRIPTIONS else []
        if name != LIFETIME:
            declared = suspicion.rule.repair or key.repair
            call = self._declared_call(suspicion, declared) if declared else None
            if call is not None:
                calls.append(call)
                description.append(f"repair {declared.split()[0]} {' '.join(call[2])}")
        return RepairPlan(tuple(calls), "; ".join(description)) if calls else None

    def _declared_call(self, suspicion: Suspicion, declared: str) -> CommandCall | None:
        """The repair command that a domain declares, such as `follow <other> <username>`, with the entry's ids."""
        name, *parts = declared.split()
        ids = suspicion.family.ids(suspicion.entry)
        domain = suspicion.family.domain
        args = []
        for part in parts:
            match = _PART.fullmatch(part)
            if match is not None and match[1] not in ids:
                return None  # the entry is too damaged to contain the id
            args.append(ids[match[1]] if match else part)
        key = self._repairs.get(domain, {}).get(name)
        if key is None:
            return None
        return f"{domain}_repair_{name}", key(*args[: len(key.parts)]), tuple(args)

    def claim(self, plan: RepairPlan) -> bool:
        """Whether a plan has not been claimed in this pass: many findings can have the same repair."""
        if plan in self._claimed:
            return False
        if len(self._claimed) >= MAX_REMEMBERED:
            self._claimed.pop(next(iter(self._claimed)))
        self._claimed[plan] = None
        return True

    async def repair(self, plan: RepairPlan) -> bool:
        """Run a plan. False if it needs a key of the wrong type."""
        if not plan.calls:
            await self._functions.outbox_recovery.recover()
        try:
            await self._run(plan)
        except ReplyError as error:
            if not is_wrong_type(error):
                raise
            return False
        return True

    async def _run(self, plan: RepairPlan) -> None:
        for command, key, args in plan.calls:
            now = [] if command.startswith("audit_") else [self._clock.now_ms()]
            await self._functions.run(command, [key], *now, *args)
