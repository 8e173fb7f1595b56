"""The report of an audit, as it is stored and sent."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

# Findings of one kind that a report contains; the others are only counted.
MAX_EXAMPLES = 10
# Characters of a name or sentence in a report; members of other services can be of any length.
MAX_TEXT = 500


class Finding(msgspec.Struct, frozen=True):
    """One violated invariant. `repair` describes the repair; empty if the source data does not decide it."""

    family: str
    rule: str
    key: str
    member: str
    says: str
    repair: str = ""


class FindingGroup(msgspec.Struct):
    """The findings of one invariant in one key family."""

    family: str
    rule: str
    count: int = 0
    repairable: int = 0
    examples: list[Finding] = msgspec.field(default_factory=list)


class AuditReport(msgspec.Struct):
    """The state and result of an audit. Times are Unix milliseconds."""

    started_at: int
    ended_at: int = 0
    state: str = "running"  # then `done`, `failed` or `stopped`
    mode: str = "audit"  # or `dry-run`, `repair`, `adopt`, `failover`
    passes: int = 1
    keys: int = 0
    members: int = 0
    total: int = 0  # approximate number of keys in Valkey
    seconds: float = 0.0
    suspicions: int = 0  # mismatches in the scan, before the recheck
    groups: list[FindingGroup] = msgspec.field(default_factory=list)  # the findings of the first pass
    repaired: int = 0
    left: list[FindingGroup] = msgspec.field(default_factory=list)  # after a repair: the findings that remain
    error: str = ""

    @property
    def findings(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def repairs(self) -> bool:
        return self.mode in ("repair", "adopt", "failover")

    @property
    def clean(self) -> bool:
        """Whether no finding remains."""
        return not (self.left if self.repairs else self.groups)


class FindingCollector:
    """Counts findings by kind and keeps a few examples of each, so that its memory does not grow with findings."""

    def __init__(self, groups: Iterable[FindingGroup] = ()) -> None:
        self._groups = {(group.family, group.rule): group for group in groups}

    def add(self, finding: Finding) -> None:
        group = self._groups.setdefault((finding.family, finding.rule), FindingGroup(finding.family, finding.rule))
        group.count += 1
        group.repairable += bool(finding.repair)
        if len(group.examples) < MAX_EXAMPLES:
            texts = {name: _cut(getattr(finding, name)) for name in ("key", "member", "says")}
            group.examples.append(msgspec.structs.replace(finding, **texts))

    def groups(self) -> list[FindingGroup]:
        return [self._groups[kind] for kind in sorted(self._groups)]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
