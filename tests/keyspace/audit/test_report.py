"""The report on a terminal."""

from __future__ import annotations

import io

from plaza.keyspace.audit.report import MAX_TEXT, AuditReport, Finding, FindingCollector
from plaza.keyspace.audit.report_text import show


def test_key_names_cannot_send_terminal_control_codes() -> None:
    collector = FindingCollector()
    collector.add(Finding("unknown", "unknown", "odd\n\x1b[31mkey", "", "no catalogue declares it"))
    screen = io.StringIO()
    show(AuditReport(0, keys=1, seconds=1, groups=collector.groups()), screen)
    assert "odd\\n\\x1b[31mkey: no catalogue declares it" in screen.getvalue()


def test_long_names_of_other_services_are_cut() -> None:
    collector = FindingCollector()
    collector.add(Finding("post:<post>:likes", "member", "k" * 5_000, "m" * 5_000, "has " + "m" * 5_000, "remove it"))
    ((finding,),) = [group.examples for group in collector.groups()]
    for text in (finding.key, finding.member, finding.says):
        assert len(text) <= MAX_TEXT
        assert text.endswith("…")
    assert finding.repair == "remove it"
