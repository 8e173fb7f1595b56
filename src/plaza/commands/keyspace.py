"""`plaza keys`, `plaza audit` and `plaza adopt`."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from plaza.commands.base import add_command, with_plaza, with_plaza_logged, with_valkey
from plaza.commands.progress_line import ProgressLine
from plaza.core.errors import Invalid
from plaza.core.settings import Settings

if TYPE_CHECKING:
    from plaza.app import Plaza
    from plaza.commands.base import Commands
    from plaza.core.valkey import Valkey
    from plaza.keyspace.memory import Memory


def add_commands(commands: Commands) -> None:
    keys = add_command(
        commands,
        "keys",
        _keys,
        "List every key that Plaza declares; or show their memory, or print ACL rules for Valkey.",
        "plaza keys --memory --sample 10000",
    )
    form = keys.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print docs/keys.md")
    form.add_argument("--memory", action="store_true", help="show bytes by key family, and the largest keys")
    form.add_argument("--acl", action="store_true", help="print an ACL file with a service, a worker and a reader")
    keys.add_argument("--json", action="store_true", help="print JSON, also with --memory")
    keys.add_argument("--sample", type=int, metavar="N", help="with --memory: measure about N keys instead of all")

    audit = add_command(
        commands,
        "audit",
        _audit,
        "Check every key in Valkey against its declaration in docs/keys.md, also while a server runs. "
        "Exit status 1 if any finding remains.",
        "plaza audit --repair",
    )
    audit.add_argument("--repair", action="store_true", help="repair derived data from source data")
    audit.add_argument("--dry-run", action="store_true", help="show what --repair would do, and change nothing")
    audit.add_argument("--json", action="store_true", help="print JSON")

    adopt = add_command(
        commands,
        "adopt",
        _adopt,
        "Start from keys that another service wrote by the documents: build Plaza's additional keys from them, and "
        "report what contradicts the documents. No documented key changes. It may be interrupted and run again. "
        "Exit status 1 if anything contradicts them.",
        "PLAZA_VALKEY_URL=redis://cache.internal plaza adopt",
    )
    adopt.add_argument("--fix", action="store_true", help="also repair documented keys, where source data decides")
    adopt.add_argument("--json", action="store_true", help="print JSON")


def _keys(given: argparse.Namespace) -> int:
    import json
    import shutil

    from plaza.keyspace import catalogue_docs
    from plaza.own_domains import configured_catalogues

    if given.memory:
        return _memory(given)
    if given.acl:
        return _acl()
    catalogues = configured_catalogues(Settings.from_env())
    if given.markdown:
        print(catalogue_docs.markdown(catalogues), end="")
    elif given.json:
        print(json.dumps(catalogue_docs.records(catalogues), indent=2, ensure_ascii=False))
    else:
        print(catalogue_docs.text(catalogues, shutil.get_terminal_size().columns))
    return 0


def _acl() -> int:
    from plaza.core.keyspace import Layout
    from plaza.core.valkey.address import parse_url
    from plaza.keyspace.acl import acl_lines
    from plaza.own_domains import configured_catalogues

    settings = Settings.from_env()
    clustered = bool(settings.valkey_url) and parse_url(settings.valkey_url)[1]
    layout = Layout.BRACES if clustered else Layout.PLAIN
    print("\n".join(acl_lines(configured_catalogues(settings), layout)))
    return 0


def _memory(given: argparse.Namespace) -> int:
    import json

    from rich.console import Console

    from plaza.keyspace import memory_chart
    from plaza.keyspace.memory import MemoryScan
    from plaza.own_domains import configured_catalogues

    if given.sample is not None and given.sample < 1:
        raise Invalid("must be at least 1", field="--sample")
    with ProgressLine() as line:

        def measure(valkey: Valkey) -> Awaitable[Memory]:
            scan = MemoryScan(valkey, configured_catalogues(Settings.from_env()), sample=given.sample)
            return scan.run(lambda done, total: line.show("keys", done, total))

        found = with_valkey(measure)
    if given.json:
        print(json.dumps(found.record(), indent=2, ensure_ascii=False))
    else:
        memory_chart.show(found, Console())
    return 0


def _audit(given: argparse.Namespace) -> int:
    from plaza.keyspace.audit import AUDIT, DRY_RUN, REPAIR

    return _run_audit(DRY_RUN if given.dry_run else REPAIR if given.repair else AUDIT, "audit", as_json=given.json)


def _adopt(given: argparse.Namespace) -> int:
    from plaza.keyspace.audit import ADOPT, REPAIR

    return _run_audit(REPAIR if given.fix else ADOPT, "adopt", as_json=given.json)


def _run_audit(mode: str, command: str, *, as_json: bool) -> int:
    """Run an audit with a progress bar, and print its report. Returns the exit status."""
    import msgspec

    from plaza.adoption import adopt
    from plaza.keyspace.audit import ADOPT, REPAIR, AuditReport, Audits
    from plaza.keyspace.audit.report_text import show

    with ProgressLine() as line:

        def show_progress(report: AuditReport) -> None:
            at = f"{report.keys / max(report.seconds, 0.001):,.0f}/s" if report.passes == 1 else f"pass {report.passes}"
            line.show("keys", report.keys, max(report.total, report.keys), at)

        def run(plaza: Plaza) -> Awaitable[AuditReport]:
            return adopt(plaza, show_progress) if mode == ADOPT else plaza.get(Audits).run(mode, show_progress)

        logged = mode in (REPAIR, ADOPT)
        protects = mode == ADOPT
        report = (
            with_plaza_logged(run, command, detail=mode, protects_documented=protects) if logged else with_plaza(run)
        )
    if as_json:
        print(msgspec.json.encode(report).decode())
    else:
        show(report)
    return 0 if report.clean else 1
