"""Runs an audit: scan all keys, recheck each suspicion, and in repair mode repair each finding.

A repair runs several passes of the same scan. One repair can uncover the next finding (first a set of the wrong type,
then the members it should have). Passes go on until one finds nothing repairable, or only what the last one found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from time import monotonic

import structlog

from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from plaza.core.invariants import Inspector, Invariants, Violation, comparison_failed
from plaza.core.keyspace import Catalogue
from plaza.core.sequences import chunks
from plaza.keyspace.audit import unsettled_outbox
from plaza.keyspace.audit.basic_invariants import UNKNOWN
from plaza.keyspace.audit.checkpoints import Checkpoint, Checkpoints, ScanPosition
from plaza.keyspace.audit.declared_invariants import bind
from plaza.keyspace.audit.recheck import Confirmation, Rechecker, Suspicion
from plaza.keyspace.audit.repair import Repairer
from plaza.keyspace.audit.report import AuditReport, Finding, FindingCollector
from plaza.keyspace.audit.scanner import Scanner
from plaza.keyspace.audit.scope import ChangedIds, LostShards, Scope
from plaza.keyspace.audit.throttle import SHARE, Throttle
from plaza.keyspace.family_matching import KeyFamilies

AUDIT, DRY_RUN, REPAIR = "audit", "dry-run", "repair"
# As a repair, in a process whose Lua changes no documented key (`document_guard.py`).
ADOPT = "adopt"
# As a repair, after a failover: only what domains declare as derived. It works half of the time beside other clients.
FAILOVER = "failover"
FAILOVER_SHARE = 0.5

MAX_PASSES = 6
# Suspicions in memory at the same time; most of them pause.
CONCURRENT_RECHECKS = 2_000

OnProgress = Callable[[AuditReport], None]

log = structlog.get_logger("plaza.audit")


class Auditor:
    """Runs audits of one Plaza; holds what every audit needs."""

    def __init__(
        self,
        functions: Functions,
        catalogues: Sequence[Catalogue],
        invariants: dict[str, Invariants],
        inspectors: Sequence[Inspector],
        clock: Clock,
    ) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.clock = clock
        self.inspectors = inspectors
        self._catalogues = catalogues
        self._invariants = invariants
        self.checkpoints = Checkpoints(self.valkey, [catalogue.domain for catalogue in catalogues])
        self.repairs = {name: domain.repairs for name, domain in invariants.items()}

    @cached_property
    def families(self) -> KeyFamilies:
        """The key families with all that is checked about them. Made for the first audit: most processes run none."""
        families = KeyFamilies(self._catalogues, self.valkey.layout)
        declared = [rule for domain in self._invariants.values() for rule in domain.rules]
        bind(families, [unsettled_outbox.INVARIANT, *declared])
        return families

    @cached_property
    def documented(self) -> set[str]:
        return {family.key.pattern for family in self.families.all if family.key.document}

    async def run(
        self,
        mode: str = AUDIT,
        on_progress: OnProgress = lambda report: None,
        lost: LostShards | None = None,
    ) -> AuditReport:
        """Audit all keys. Calls `on_progress` with the growing report after every page of keys.

        An adoption continues where the last one stopped. Call `checkpoints.clear` when all of it is complete. After a
        failover only what can have changed is checked (`scope.py`).
        """
        run = await self.checkpoints.load() if mode == ADOPT else None
        run = run or Checkpoint(AuditReport(self.clock.now_ms(), mode=mode))
        report = run.report
        started = monotonic() - report.seconds
        scope = Scope(derived_only=mode == FAILOVER, lost=lost)
        while report.state == "running":
            current = _Pass(self, run, started, on_progress, scope)
            groups = (await current.run()).groups()
            if mode == FAILOVER:
                scope = current.changed.scope()
            report.left = groups if report.repairs else []
            if report.passes == 1:
                report.groups = groups
            found = {(group.family, group.rule, group.count) for group in groups}
            is_repairable = report.repairs and any(group.repairable for group in groups)
            if is_repairable and found != run.previous and report.passes < MAX_PASSES:
                run.begin_next_pass(found)
            else:
                report.seconds = monotonic() - started
                report.ended_at, report.state = self.clock.now_ms(), "done"
        if mode == ADOPT:
            await self.checkpoints.save(run, now=True)
        on_progress(report)
        return report


class _Pass:
    """One scan of all keys, with its rechecks and repairs.

    The first pass of an adoption builds what is missing. No documented key can change, and each repair reads the source
    data again, so it checks each suspicion once, without the pauses in which other services complete their writes.
    """

    def __init__(
        self, auditor: Auditor, run: Checkpoint, started: float, on_progress: OnProgress, scope: Scope
    ) -> None:
        self._auditor = auditor
        self._scope = scope
        self.changed = ChangedIds()
        self._checkpoint = run
        self._report = run.report
        self._adopts = run.report.mode == ADOPT
        self._builds = self._adopts and run.report.passes == 1
        self._started = started
        self._on_progress = on_progress
        self._collector = FindingCollector(run.groups)
        self._rechecker = Rechecker(auditor.functions, auditor.clock)
        self._after_failover = run.report.mode == FAILOVER
        self._repairer = Repairer(auditor.functions, auditor.repairs, auditor.clock, derived_only=self._after_failover)
        self._free_rechecks = asyncio.Semaphore(CONCURRENT_RECHECKS)

    async def run(self) -> FindingCollector:
        auditor = self._auditor
        throttle = Throttle(auditor.valkey, FAILOVER_SHARE if self._after_failover else SHARE)
        position = self._checkpoint.position
        scanner = Scanner(auditor.functions, auditor.families, auditor.clock, throttle, position, self._scope)
        self._report.total = await scanner.total()
        try:
            await self._scan(scanner)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        for inspector in auditor.inspectors:
            if inspector.checks_valkey or not self._after_failover:
                await self._inspect(inspector)
                await self._report_progress(scanner.position)
        return self._collector

    async def _scan(self, scanner: Scanner) -> None:
        report = self._report
        keys_before, members_before = report.keys, report.members
        async with asyncio.TaskGroup() as rechecks:
            async for suspicions in scanner.pages():
                report.suspicions += len(suspicions)
                if self._after_failover:
                    suspicions = [each for each in suspicions if self._repairer.plan(each) is not None]
                    # Most pages have findings then. A recheck pauses most of its time; the scan goes on meanwhile.
                    for suspicion in suspicions:
                        await self._free_rechecks.acquire()
                        rechecks.create_task(self._recheck_in_turn(suspicion))
                else:
                    for chunk in chunks(suspicions, CONCURRENT_RECHECKS):
                        await asyncio.gather(*map(self._recheck, chunk))
                report.keys, report.members = keys_before + scanner.keys, members_before + scanner.members
                await self._report_progress(scanner.position)

    async def _recheck_in_turn(self, suspicion: Suspicion) -> None:
        try:
            await self._recheck(suspicion)
        finally:
            self._free_rechecks.release()

    async def _recheck(self, suspicion: Suspicion) -> None:
        self.changed.add(suspicion.family, suspicion.entry)
        plan = self._repairer.plan(suspicion)
        if self._builds and plan is not None and not self._repairer.claim(plan):
            return
        confirmation = await self._rechecker.confirm(suspicion, once=self._builds or self._after_failover)
        if confirmation is None:
            return
        rule, entry = suspicion.rule.name, suspicion.entry
        family = UNKNOWN if rule == UNKNOWN else suspicion.family.key.pattern
        self._collector.add(
            Finding(family, rule, entry.name, entry.member, confirmation.description, plan.description if plan else "")
        )
        if plan is None or not self._report.repairs:
            return
        is_due = self._builds or (await self._may_repair(suspicion, confirmation) and self._repairer.claim(plan))
        if is_due and await self._repairer.repair(plan):
            self._report.repaired += 1

    async def _may_repair(self, suspicion: Suspicion, confirmation: Confirmation) -> bool:
        """Whether a repair disturbs no other service."""
        return self._adopts or await self._rechecker.is_unchanged(suspicion, confirmation)

    async def _inspect(self, inspector: Inspector) -> None:
        """Collect and repair what an inspector finds. If it fails, that is a finding, and the audit goes on."""
        try:
            await self._inspect_all(inspector)
        except Unavailable:
            raise
        except Exception as error:
            log.exception("audit_inspector_failed", family=inspector.family)
            self._add(comparison_failed(inspector.family, error))

    def _add(self, fault: Violation) -> None:
        self._collector.add(Finding(fault.family, fault.rule, fault.key, fault.member, fault.says, fault.repair))

    async def _inspect_all(self, inspector: Inspector) -> None:
        async for fault in inspector.inspect():
            self._add(fault)
            if fault.repair and self._report.repairs and not self._is_protected(fault.family):
                await inspector.repair(fault)
                self._report.repaired += 1

    def _is_protected(self, pattern: str) -> bool:
        """Whether a family is documented and must stay as it is. Inspectors also write without Lua."""
        return self._adopts and pattern in self._auditor.documented

    async def _report_progress(self, position: ScanPosition) -> None:
        self._report.seconds = monotonic() - self._started
        self._checkpoint.position, self._checkpoint.groups = position, self._collector.groups()
        if self._report.passes == 1:
            self._report.groups = self._checkpoint.groups
        if self._adopts:
            await self._auditor.checkpoints.save(self._checkpoint)
        self._on_progress(self._report)
