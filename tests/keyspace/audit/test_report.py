"""A report on a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from plaza.keyspace.audit.report import Collector, Finding, Report, show


def test_what_strangers_named_does_not_steer_the_terminal() -> None:
    found = Collector()
    found.add(Finding("unknown", "unknown", "odd\n\x1b[31mkey", "", "nobody declared this key"))
    screen = io.StringIO()
    show(Report(0, keys=1, seconds=1, groups=found.groups()), Console(file=screen, width=200))
    assert "odd\\n\\x1b[31mkey: nobody declared this key" in screen.getvalue()
