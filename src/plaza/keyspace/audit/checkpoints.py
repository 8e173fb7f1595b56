"""Checkpoints of an audit that another run can continue: how far its scan is, and what it found so far."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Final

import msgspec

from plaza.core.valkey import Valkey
from plaza.keyspace.audit.report import AuditReport, FindingGroup
from plaza.keyspace.audit_keys import AUDIT_CHECKPOINT

# How often a checkpoint is stored. A run that continues repeats the work of this time.
STORE_SECONDS: Final = 0.5

Kinds = set[tuple[str, str, int]]  # of findings: family, invariant, how many


class ScanPosition(msgspec.Struct, frozen=True):
    """Where a scan continues: at which of the primaries, and at which cursor of its SCAN."""

    primary: int = 0
    cursor: str = "0"


class Checkpoint(msgspec.Struct):
    """The state of an audit between two pages of keys."""

    report: AuditReport
    position: ScanPosition = ScanPosition()
    groups: list[FindingGroup] = msgspec.field(default_factory=list)  # the findings of the pass so far
    previous: Kinds = msgspec.field(default_factory=set)  # the findings of the last pass

    def begin_next_pass(self, found: Kinds) -> None:
        """Start the scan again, after a pass that found these."""
        self.position, self.groups, self.previous = ScanPosition(), [], found
        self.report.passes += 1
        self.report.keys = self.report.members = 0


class _ScopedCheckpoint(msgspec.Struct):
    """A checkpoint with what it is valid for."""

    scope: list[str]
    checkpoint: Checkpoint


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_ScopedCheckpoint).decode


class Checkpoints:
    """Stores the checkpoint of the one audit that can be continued.

    A cursor of SCAN is only valid on the server process that gave it, and other domains have other invariants. If
    either changed, the audit starts again.
    """

    def __init__(self, valkey: Valkey, domains: Sequence[str]) -> None:
        self._valkey = valkey
        self._domains = sorted(domains)
        self._scope: list[str] = []
        self._due = 0.0

    async def load(self) -> Checkpoint | None:
        """The stored checkpoint; None if there is none for these servers and domains. One round trip per primary."""
        nodes = self._valkey.primaries()
        self._scope = [*self._domains, *[_run_id(str(await node.call("INFO", "server"))) for node in nodes]]
        stored = await self._valkey.call("GET", AUDIT_CHECKPOINT())
        found = _decode(stored) if stored else None
        return found.checkpoint if found is not None and found.scope == self._scope else None

    async def save(self, checkpoint: Checkpoint, *, now: bool = False) -> None:
        """Store a checkpoint if it is time, or `now`. One round trip."""
        if not now and monotonic() < self._due:
            return
        self._due = monotonic() + STORE_SECONDS
        text = _encode(_ScopedCheckpoint(self._scope, checkpoint))
        await self._valkey.call("SET", AUDIT_CHECKPOINT(), text, "EX", AUDIT_CHECKPOINT.ttl_seconds or 0)

    async def clear(self) -> None:
        """Remove the checkpoint, so that the next run starts again. One round trip."""
        await self._valkey.call("DEL", AUDIT_CHECKPOINT())


def _run_id(info: str) -> str:
    """The id of a server process, from its `INFO server`."""
    return next((line.partition(":")[2] for line in info.splitlines() if line.startswith("run_id:")), "")
