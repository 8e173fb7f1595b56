"""The audit service: one audit at a time in all processes, also in the background; the last report is stored."""

from __future__ import annotations

import asyncio
from time import monotonic

import msgspec
import structlog

from plaza.core.errors import Invalid
from plaza.core.functions import Library
from plaza.core.leases import LeaseHeld, Leases
from plaza.keyspace.audit.auditor import ADOPT, AUDIT, DRY_RUN, FAILOVER, REPAIR, Auditor, OnProgress
from plaza.keyspace.audit.report import AuditReport
from plaza.keyspace.audit.scope import LostShards
from plaza.keyspace.audit_keys import AUDIT_LAST, AUDIT_RUNNING, CATALOGUE

LIBRARY = Library.read("audit", CATALOGUE, "plaza.keyspace.audit", "audit")

# How often the report of a running audit is stored for other processes.
STORE_SECONDS = 0.5

_JOB = "audit"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditReport).decode

log = structlog.get_logger("plaza.audit")


class AuditState(msgspec.Struct, frozen=True):
    """The reports of the running audit, if any, and of the last one."""

    running: AuditReport | None
    last: AuditReport | None


class Audits:
    """Runs audits, one at a time in all processes."""

    def __init__(self, auditor: Auditor) -> None:
        self.auditor = auditor
        self._valkey = auditor.valkey
        self._leases = Leases(auditor.functions)
        self._task: asyncio.Task[AuditReport] | None = None

    async def run(
        self, mode: str = AUDIT, on_progress: OnProgress = lambda report: None, lost: LostShards | None = None
    ) -> AuditReport:
        """Audit now and wait for the end. Raises `LeaseHeld` if another audit is running."""
        if mode not in (AUDIT, DRY_RUN, REPAIR, ADOPT, FAILOVER):
            raise Invalid(f"must be {AUDIT}, {DRY_RUN}, {REPAIR} or {ADOPT}", field="mode")
        async with self._leases.hold(_JOB):
            return await self._run(mode, on_progress, lost)

    async def start(self, mode: str = AUDIT) -> None:
        """Start an audit in the background; `state` reports its progress. Raises `LeaseHeld` if an audit is running."""
        if (self._task is not None and not self._task.done()) or (await self.state()).running is not None:
            raise LeaseHeld("An audit is already running. Wait until it ends.")
        started = asyncio.Event()
        self._task = asyncio.create_task(self.run(mode, lambda _: started.set()))
        self._task.add_done_callback(_log_failure)
        self._task.add_done_callback(lambda _: started.set())  # it may fail before its first progress
        await started.wait()

    async def state(self) -> AuditState:
        """The reports of the running and the last audit. One round trip."""
        running, last = await self._valkey.batch([("GET", AUDIT_RUNNING()), ("GET", AUDIT_LAST())])
        return AuditState(_decode(running) if running else None, _decode(last) if last else None)

    async def close(self) -> None:
        """Cancel the audit that runs in the background."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, mode: str, on_progress: OnProgress, lost: LostShards | None) -> AuditReport:
        last = AuditReport(self.auditor.clock.now_ms(), mode=mode)
        storing: set[asyncio.Task[None]] = set()
        due = 0.0

        def progress(report: AuditReport) -> None:
            nonlocal last, due
            last = report
            on_progress(report)
            if monotonic() >= due and not storing:
                due = monotonic() + STORE_SECONDS
                task = asyncio.create_task(self._store(report))
                storing.add(task)
                task.add_done_callback(storing.discard)

        try:
            await self._store(last)
            on_progress(last)
            last = await self.auditor.run(mode, progress, lost)
        except asyncio.CancelledError:
            last.state = "stopped"
            raise
        except Exception as error:
            last.state, last.error = "failed", str(error)
            raise
        finally:
            await asyncio.gather(*storing, return_exceptions=True)
            await asyncio.shield(self._finish(last))
        return last

    async def _store(self, report: AuditReport) -> None:
        await self._valkey.call("SET", AUDIT_RUNNING(), _encode(report), "EX", AUDIT_RUNNING.ttl_seconds or 0)

    async def _finish(self, report: AuditReport) -> None:
        report.ended_at = report.ended_at or self.auditor.clock.now_ms()
        await self._valkey.batch([("SET", AUDIT_LAST(), _encode(report)), ("DEL", AUDIT_RUNNING())])


def _log_failure(task: asyncio.Task[AuditReport]) -> None:
    """Log the failure of a background audit; its caller does not wait for it."""
    if not task.cancelled() and task.exception() is not None:
        log.error("audit_failed", error=str(task.exception()))
