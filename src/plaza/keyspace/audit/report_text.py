"""Shows the report of an audit on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Final, TextIO

from plaza.keyspace.audit.report import AuditReport, FindingGroup
from plaza.keyspace.terminal_escape import escape_controls

_STYLES: Final = {"bold": 1, "dim": 2, "red": 31, "green": 32}
NOT_REPAIRED = "not repaired: the source data does not decide it, or another service wrote it"


def show(report: AuditReport, out: TextIO | None = None) -> None:
    """Print the report, with colours on a terminal."""
    out = out or sys.stdout
    has_colours = out.isatty() and not os.environ.get("NO_COLOR")

    def write(text: str, style: str = "") -> None:
        shown = escape_controls(text)
        print(f"\x1b[{_STYLES[style]}m{shown}\x1b[0m" if style and has_colours else shown, file=out)

    rate = report.keys / report.seconds if report.seconds else 0.0
    write(f"{report.keys:,} keys, {report.members:,} members in {report.seconds:.1f} s ({rate:,.0f} keys/s).")
    _show_groups(report.groups, write, planned=report.mode == "dry-run")
    if report.repairs and report.groups:
        write(f"{_fixed(report):,} {'built' if report.mode == 'adopt' else 'repaired'}.")
        if report.left:
            write("Left as they are:" if report.mode == "adopt" else "Remaining findings:")
            _show_groups(report.left, write, planned=False)
    if report.clean:
        write("No findings.", "green")
    else:
        count = sum(group.count for group in (report.left if report.repairs else report.groups))
        write(f"{count:,} findings.", "red")


def _fixed(report: AuditReport) -> int:
    """How many findings are gone. A protected key counts as repaired although nothing changed it."""
    left = sum(group.count for group in report.left)
    return report.repaired if report.mode != "adopt" else max(0, report.findings - left)


def _show_groups(groups: Iterable[FindingGroup], write: Callable[..., None], *, planned: bool) -> None:
    for group in groups:
        write(f"{group.family}  {group.rule}: {group.count:,}", "bold")
        for finding in group.examples:
            write(f"  {finding.key}: {finding.says}")
            if planned:
                write(f"    → {finding.repair or NOT_REPAIRED}", "dim")
        if group.count > len(group.examples):
            write(f"  … and {group.count - len(group.examples):,} more")
