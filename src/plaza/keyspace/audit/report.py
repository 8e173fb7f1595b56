"""What an audit found, for people, for programs and for the next one to compare with."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from rich.console import Console
from rich.text import Text

from plaza.keyspace.terminal_escape import harmless

# Of each kind of finding so many are shown; the rest are counted.
EXAMPLES = 10


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not true. `mend` says what makes it true again; empty if no fact decides it."""

    family: str
    rule: str
    key: str
    member: str
    says: str
    repair: str = ""


class Group(msgspec.Struct):
    """The findings of one kind in one family."""

    family: str
    rule: str
    count: int = 0
    repairable: int = 0
    examples: list[Finding] = msgspec.field(default_factory=list)


class Report(msgspec.Struct):
    """An audit, from its beginning to its end. Times are Unix milliseconds."""

    started_at: int
    ended_at: int = 0
    state: str = "running"  # then `done`, `failed` or `stopped`
    mode: str = "audit"  # or `dry-run`, `repair`
    passes: int = 1
    keys: int = 0
    members: int = 0
    total: int = 0  # how many keys there are, roughly
    seconds: float = 0.0
    suspicions: int = 0  # what did not fit at first sight
    groups: list[Group] = msgspec.field(default_factory=list)  # what was found
    repaired: int = 0
    left: list[Group] = msgspec.field(default_factory=list)  # after a repair: what is still wrong
    error: str = ""

    @property
    def findings(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong as it ends."""
        return not (self.left if self.mode == "repair" else self.groups)


class Collector:
    """Counts findings by kind and keeps a few of each, so that a million of them take no more room than ten."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], Group] = {}

    def add(self, finding: Finding) -> None:
        group = self._groups.setdefault((finding.family, finding.rule), Group(finding.family, finding.rule))
        group.count += 1
        group.repairable += bool(finding.repair)
        if len(group.examples) < EXAMPLES:
            group.examples.append(finding)

    def groups(self) -> list[Group]:
        return [self._groups[kind] for kind in sorted(self._groups)]


def show(report: Report, console: Console) -> None:
    """The report on a terminal."""

    def say(text: str, style: str = "") -> None:
        console.print(Text(harmless(text), style=style), soft_wrap=True)

    rate = report.keys / report.seconds if report.seconds else 0.0
    say(f"{report.keys:,} keys, {report.members:,} members in {report.seconds:.1f} s ({rate:,.0f} keys/s).")
    _show_groups(report.groups, say, planned=report.mode == "dry-run")
    if report.mode == "repair" and report.groups:
        say(f"{report.repaired:,} mended.")
        if report.left:
            say("Still wrong:")
            _show_groups(report.left, say, planned=False)
    if report.clean:
        say("Everything is as it should be.", "green")
    else:
        count = sum(group.count for group in (report.left if report.mode == "repair" else report.groups))
        say(f"{count:,} findings.", "red")


def _show_groups(groups: Iterable[Group], say: object, *, planned: bool) -> None:
    assert callable(say)
    for group in groups:
        say(f"{group.family}  {group.rule}: {group.count:,}", "bold")
        for finding in group.examples:
            say(f"  {finding.key}: {finding.says}")
            if planned:
                say(f"    → {finding.repair or 'no fact decides this: left alone'}", "dim")
        if group.count > len(group.examples):
            say(f"  … and {group.count - len(group.examples):,} more")
