"""An audit: walk, look again at what seems wrong, and with `repair` mend it, until nothing is left that facts decide.

A repair is passes of the same walk. What one mend makes true can show what was hidden behind it (a set that could not
be read, and then what should be in it), so it goes on until a pass finds nothing, or nothing else than the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.invariants import Inspector, Invariants
from plaza.core.keyspace import Catalogue
from plaza.keyspace.audit import outbox_invariant
from plaza.keyspace.audit.basic_invariants import UNKNOWN
from plaza.keyspace.audit.declared_invariants import bind
from plaza.keyspace.audit.recheck import Confirmer, Suspect
from plaza.keyspace.audit.repair import Repairer
from plaza.keyspace.audit.report import Collector, Finding, Report
from plaza.keyspace.audit.scanner import Walk
from plaza.keyspace.audit.throttle import Pace
from plaza.keyspace.families import Families

AUDIT, DRY_RUN, REPAIR = "audit", "dry-run", "repair"

# Passes of a repair: what is broken in layers needs more than one.
MOST_PASSES = 6
# Suspicions looked at again side by side.
AT_ONCE = 128

Told = Callable[[Report], None]


class Auditor:
    """Everything an audit needs to know, made once for a Plaza."""

    def __init__(
        self,
        functions: Functions,
        catalogues: Sequence[Catalogue],
        rules: dict[str, Invariants],
        inspectors: Sequence[Inspector],
        clock: Clock,
    ) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.clock = clock
        self.inspectors = inspectors
        self.families = Families(catalogues, self.valkey.layout)
        bind(self.families, [outbox_invariant.RULE, *(rule for each in rules.values() for rule in each.rules)])
        self.repairs = {domain: each.repairs for domain, each in rules.items()}

    async def run(self, mode: str = AUDIT, told: Told = lambda report: None) -> Report:
        """Audit everything. `told` hears of the report as it grows, after every page."""
        report = Report(self.clock.now_ms(), mode=mode)
        began, before = monotonic(), None
        for number in range(1, MOST_PASSES + 1):
            report.passes = number
            seen = await _Pass(self, report, began, told).run()
            report.left = seen.groups() if mode == REPAIR else []
            if number == 1:
                report.groups = seen.groups()
            kinds = {(g.family, g.rule, g.count) for g in seen.groups()}
            if mode != REPAIR or not any(group.repairable for group in seen.groups()) or kinds == before:
                break
            before = kinds
        report.seconds = monotonic() - began
        report.ended_at, report.state = self.clock.now_ms(), "done"
        told(report)
        return report


class _Pass:
    """One walk through everything."""

    def __init__(self, auditor: Auditor, report: Report, began: float, told: Told) -> None:
        self._auditor = auditor
        self._report = report
        self._began = began
        self._told = told
        self._found = Collector()
        self._confirmer = Confirmer(auditor.functions, auditor.clock)
        self._mender = Repairer(auditor.functions, auditor.repairs, auditor.clock)

    async def run(self) -> Collector:
        auditor, report = self._auditor, self._report
        walk = Walk(auditor.functions, auditor.families, auditor.clock, Pace(auditor.valkey))
        report.total = await walk.total()
        async for suspects in walk.pages():
            report.suspicions += len(suspects)
            for first in range(0, len(suspects), AT_ONCE):
                await asyncio.gather(*map(self._look_again, suspects[first : first + AT_ONCE]))
            report.keys, report.members = walk.keys, walk.members
            self._tell()
        for inspector in auditor.inspectors:
            await self._inspect(inspector)
            self._tell()
        return self._found

    async def _look_again(self, suspect: Suspect) -> None:
        says = await self._confirmer.confirm(suspect)
        if says is None:
            return
        plan = self._mender.plan(suspect)
        family = UNKNOWN if suspect.rule.name == UNKNOWN else suspect.family.key.pattern
        entry = suspect.entry
        self._found.add(Finding(family, suspect.rule.name, entry.name, entry.member, says, plan.says if plan else ""))
        if plan is not None and self._report.mode == REPAIR and await self._mender.repair(plan):
            self._report.repaired += 1

    async def _inspect(self, inspector: Inspector) -> None:
        async for fault in inspector.inspect():
            self._found.add(Finding(fault.family, fault.rule, fault.key, fault.member, fault.says, fault.repair))
            if fault.repair and self._report.mode == REPAIR:
                await inspector.repair(fault)
                self._report.repaired += 1

    def _tell(self) -> None:
        self._report.seconds = monotonic() - self._began
        if self._report.passes == 1:
            self._report.groups = self._found.groups()
        self._told(self._report)
