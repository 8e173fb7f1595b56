"""Notices that a primary changed, and repairs derived data by itself.

A replica that takes over may lack the last writes of its primary. What other nodes and SQL derived from them is then
wrong. The worker compares the ids of all primaries with those that it stored: a promoted replica and a restarted server
have a new one. If one is new, an audit repairs what domains declare as derived and the failover can have changed
(`scope.py`), and the ids are stored when it is complete. So a failover while no worker runs is noticed too, and an
interrupted repair starts again.

The embedded Valkey keeps its data when it restarts, unless the machine crashed. Its id is that of the machine's
start, so a restart needs no repair.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path
from typing import Final

import structlog

from plaza.core import metrics
from plaza.core.errors import Unavailable
from plaza.core.invariants import NOT_COMPARED
from plaza.core.leases import Lease, LeaseHeld
from plaza.core.timers import Timer
from plaza.core.valkey import Valkey
from plaza.core.valkey.slots import SLOTS
from plaza.core.valkey_memory import parse_info
from plaza.keyspace.audit.audit_runs import Audits
from plaza.keyspace.audit.auditor import FAILOVER
from plaza.keyspace.audit.report import AuditReport
from plaza.keyspace.audit.scope import LostShards
from plaza.keyspace.audit_keys import AUDIT_PRIMARIES

CHECK_SECONDS: Final = 5

Shards = dict[str, str]  # the id of each primary → the ranges of its slots

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

log = structlog.get_logger("plaza.failover")


class FailoverWatch:
    """Compares the primaries with those that were there when derived data was last complete."""

    def __init__(self, audits: Audits, data_dir: Path) -> None:
        self._audits = audits
        self._valkey = audits.auditor.valkey
        self._known: Shards = {}  # of the last check, for a failover that lost the stored ones
        self._counted: set[str] = set()  # new primaries that the metric has
        self._embedded_config = data_dir.absolute() / "valkey" / "valkey.conf"
        metrics.FAILOVER_PROGRESS.set(1)  # a gauge begins with 0, as a repair does that has scanned nothing

    def timer(self) -> Timer:
        return Timer("core.failover", CHECK_SECONDS, self._run)

    async def _run(self, _: Lease) -> str:
        try:
            report = await self.check()
        except LeaseHeld:
            return "a primary is new; the repair waits for a running audit"
        if report is None:
            return ""
        if behind := _not_compared(report):
            raise Unavailable("; ".join(behind))
        left = sum(group.count for group in report.left)
        return f"{report.repaired:,} repaired after a failover, {left:,} findings left"

    async def check(self) -> AuditReport | None:
        """Repair if a primary is new, and return the report; None if nothing was to be done.

        Two round trips, and one per primary. Raises `LeaseHeld` while another audit runs; the next check repairs.
        """
        stored: Shards = await self._valkey.call("HGETALL", AUDIT_PRIMARIES())
        nodes = self._valkey.primaries()
        slots = {await self._primary_id(node): list(self._valkey.slots_on(node)) for node in nodes}
        current: Shards = {id: _ranges(slots[id]) for id in slots}
        if current == stored:
            self._known = current
            metrics.FAILOVER_PROGRESS.set(1)  # also if another worker completed what failed here
            return None
        known = stored or self._known
        new = current.keys() - known.keys()
        report = None
        if known and new:
            # Without a cluster there is one shard. If slots have moved, those that were lost may be anywhere.
            is_bounded = self._valkey.clustered and all(current[id] == known[id] for id in current.keys() - new)
            report = await self._repair(new, LostShards(slots[id] for id in new) if is_bounded else None)
            if _not_compared(report):
                metrics.FAILOVER_PROGRESS.set(0)
                return report
        # Last: if the process dies before, the next check repairs again.
        fields = [part for id in sorted(current) for part in (id, current[id])]
        await self._valkey.multi([("DEL", AUDIT_PRIMARIES()), ("HSET", AUDIT_PRIMARIES(), *fields)])
        self._known = current
        metrics.FAILOVER_PROGRESS.set(1)
        return report

    async def _repair(self, new: Set[str], lost: LostShards | None) -> AuditReport:
        log.warning("failover_detected", primaries=len(new))

        def show(report: AuditReport) -> None:
            self._count(new)
            metrics.FAILOVER_PROGRESS.set(min(report.keys / max(report.total, 1), 1.0))

        try:
            report = await self._audits.run(FAILOVER, show, lost)
        except LeaseHeld:
            raise
        except Exception:
            metrics.FAILOVER_PROGRESS.set(0)
            raise
        metrics.FAILOVER_REPAIRED.inc(report.repaired)
        log.info("failover_repaired", keys=report.keys, repaired=report.repaired, seconds=round(report.seconds, 1))
        return report

    def _count(self, new: Set[str]) -> None:
        """Count primaries that are new, each once, although a repair that fails is repeated."""
        metrics.FAILOVERS.inc(len(new - self._counted))
        self._counted |= new

    async def _primary_id(self, node: Valkey) -> str:
        info = parse_info(str(await node.call("INFO", "server", "replication")))
        if info.get("config_file") == str(self._embedded_config):
            return f"embedded-{_BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ''}"
        # A primary without replicas also gets a new replication id when one connects, as a backup does. Only a promoted
        # one has a second id, that of its former primary.
        was_promoted = info["master_replid2"].strip("0") != ""
        return f"{info['run_id']}-{info['master_replid']}" if was_promoted else info["run_id"]


def _not_compared(report: AuditReport) -> list[str]:
    """Return what a repair could not compare with its source data, and why; it has to be repeated."""
    return [f"{group.family}: {group.examples[0].says}" for group in report.left if group.rule == NOT_COMPARED]


def _ranges(slots: Sequence[int]) -> str:
    """Slots in ascending order as ranges: `0-5460,10923-16383`."""
    if slots and slots[-1] - slots[0] + 1 == len(slots):
        return f"{slots[0]}-{slots[-1]}"  # as usual; to look at each of 16,384 takes 2 ms
    first = [slot for slot, before in zip(slots, (-2, *slots), strict=False) if slot != before + 1]
    last = [slot for slot, after in zip(slots, (*slots[1:], SLOTS + 1), strict=True) if slot != after - 1]
    return ",".join(f"{start}-{end}" for start, end in zip(first, last, strict=True))
