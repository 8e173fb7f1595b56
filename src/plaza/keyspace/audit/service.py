"""Audits as a service: one at a time, in the background if asked, and the last report kept for everyone to read."""

from __future__ import annotations

import asyncio
from time import monotonic

import msgspec
import structlog

from plaza.core.auth import ADMIN, Actor
from plaza.core.errors import Invalid
from plaza.core.functions import Library
from plaza.core.leases import Held, Leases
from plaza.keyspace.audit.auditor import AUDIT, DRY_RUN, REPAIR, Auditor, Told
from plaza.keyspace.audit.keys import AUDIT_LAST, AUDIT_RUNNING, CATALOGUE
from plaza.keyspace.audit.report import Report

LIBRARY = Library.read("audit", CATALOGUE, "plaza.keyspace.audit", "audit")

# How often the report under way is written down for others to see.
TELL_SECONDS = 0.5

_JOB = "audit"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Report).decode

log = structlog.get_logger("plaza.audit")


class State(msgspec.Struct, frozen=True):
    """What is known of audits: the one that is running, if any, and the last that ended."""

    running: Report | None
    last: Report | None


class Audits:
    """Runs audits, of all processes one at a time."""

    def __init__(self, auditor: Auditor) -> None:
        self.auditor = auditor
        self._valkey = auditor.valkey
        self._leases = Leases(auditor.functions)
        self._task: asyncio.Task[Report] | None = None

    async def run(self, mode: str = AUDIT, told: Told = lambda report: None) -> Report:
        """Audit now, and wait for it. `Held` if another is under way."""
        if mode not in (AUDIT, DRY_RUN, REPAIR):
            raise Invalid(f"must be {AUDIT}, {DRY_RUN} or {REPAIR}", field="mode")
        async with self._leases.hold(_JOB):
            return await self._run(mode, told)

    async def start(self, actor: Actor, mode: str = AUDIT) -> None:
        """Begin an audit in the background: from now on `state` tells of it. `Held` if one is under way."""
        actor.require(ADMIN)
        if (self._task is not None and not self._task.done()) or (await self.state(actor)).running is not None:
            raise Held("An audit is under way already.")
        begun = asyncio.Event()
        self._task = asyncio.create_task(self.run(mode, lambda _: begun.set()))
        self._task.add_done_callback(_hear)
        self._task.add_done_callback(lambda _: begun.set())  # it may fail before it has begun
        await begun.wait()

    async def state(self, actor: Actor) -> State:
        """The audit under way, and the last one's report. One round trip."""
        actor.require(ADMIN)
        running, last = await self._valkey.batch([("GET", AUDIT_RUNNING()), ("GET", AUDIT_LAST())])
        return State(_decode(running) if running else None, _decode(last) if last else None)

    async def close(self) -> None:
        """Stop what runs in the background."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, mode: str, told: Told) -> Report:
        last = Report(self.auditor.clock.now_ms(), mode=mode)
        writing: set[asyncio.Task[None]] = set()
        due = 0.0

        def tell(report: Report) -> None:
            nonlocal last, due
            last = report
            told(report)
            if monotonic() >= due and not writing:
                due = monotonic() + TELL_SECONDS
                task = asyncio.create_task(self._write_down(report))
                writing.add(task)
                task.add_done_callback(writing.discard)

        try:
            await self._write_down(last)
            told(last)
            last = await self.auditor.run(mode, tell)
        except asyncio.CancelledError:
            last.state = "stopped"
            raise
        except Exception as error:
            last.state, last.error = "failed", str(error)
            raise
        finally:
            await asyncio.gather(*writing, return_exceptions=True)
            await asyncio.shield(self._finish(last))
        return last

    async def _write_down(self, report: Report) -> None:
        await self._valkey.call("SET", AUDIT_RUNNING(), _encode(report), "EX", AUDIT_RUNNING.ttl_seconds or 0)

    async def _finish(self, report: Report) -> None:
        report.ended_at = report.ended_at or self.auditor.clock.now_ms()
        await self._valkey.batch([("SET", AUDIT_LAST(), _encode(report)), ("DEL", AUDIT_RUNNING())])


def _hear(task: asyncio.Task[Report]) -> None:
    """The end of an audit that nobody waits for."""
    if not task.cancelled() and task.exception() is not None:
        log.error("an audit failed", error=str(task.exception()))
