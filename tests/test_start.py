"""A start imports only what it needs. `python -m bench start` measures what that saves."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection, Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

import plaza
from plaza.app import catalogues
from plaza.core.settings import Settings
from plaza.own_domains import OWN_DOMAINS, configured_catalogues
from tests.processes import environment
from tests.timeouts import TIME_LIMIT_SECONDS

# What few requests, jobs and commands need: it is imported where it is used.
RARE: Final = {
    "aiohttp",
    "aiosmtplib",
    "alembic",
    "asyncpg",
    "cryptography",
    "http.server",
    "httpx",
    "joserfc",
    "jwt",
    "multiprocessing.pool",
    "numpy",
    "opentelemetry",
    "plaza.demo.loader",
    "pyvips",
    "rich",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.orm",
    "webauthn",
    "zxcvbn",
}
# What only a process with routes needs.
SERVING: Final = {"jinja2", "plaza.http_application", "plaza.web.page_registry", "segno", "uvicorn"}
# What a command does without that calls no service.
SERVICES: Final = {"plaza.app", "sqlalchemy"}
OTHER_DOMAINS: Final = {f"plaza.{name}.domain" for name in OWN_DOMAINS if name not in ("accounts", "social")}


def imported(data_dir: Path, program: str) -> set[str]:
    """Run a program, and return the modules that it imports."""
    shown = "; print(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}{shown}"],
        env=environment(data_dir),
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("program", "excluded"),
    [
        ("import plaza.cli", {*RARE, *SERVING, *SERVICES, "asyncio", "structlog"}),
        ("from plaza.cli import main; main(['token', 'ana'])", {*RARE, *SERVING, *OTHER_DOMAINS}),
        ("from plaza.cli import main; main(['api-keys', 'list'])", {*RARE, *SERVING, *SERVICES}),
        ("from plaza.cli import main; main(['keys'])", {*RARE, *SERVING, *SERVICES} - {"rich"}),
        ("from plaza.core.submodules import *; import_without('structlog', 'rich'); import plaza.serve", RARE),
    ],
    ids=["the command line", "a command of accounts", "a command on Valkey", "a command on declarations", "a server"],
)
def test_a_start_imports_only_what_it_needs(tmp_path: Path, program: str, excluded: set[str]) -> None:
    (tmp_path / "var").mkdir()
    if "token" in program:
        imported(tmp_path / "var", program)  # the first one also creates tables
    assert imported(tmp_path / "var", program) & excluded == set()


def test_commands_know_the_same_keys_as_a_server() -> None:
    assert configured_catalogues(Settings()) == catalogues()


def imports(body: list[ast.stmt], modules: Collection[str]) -> Iterator[str]:
    """Which of these modules a module imports while it is itself imported."""
    for statement in body:
        match statement:
            case ast.Import(names):
                yield from (name.name for name in names if name.name in modules)
            case ast.ImportFrom(str(package), names):
                found = (f"{package}.{name.name}" for name in names)
                yield from (name if name in modules else package for name in found if package in modules)
            case ast.If(ast.Name("TYPE_CHECKING"), _, orelse):
                yield from imports(orelse, modules)
            case ast.If(_, taken, orelse) | ast.Try(taken, _, orelse):
                yield from imports([*taken, *orelse], modules)


def test_every_module_can_be_imported_first() -> None:
    root = Path(*plaza.__path__)
    files = {
        ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in root.rglob("*.py")
    }
    graph = {module: imports(ast.parse(path.read_text()).body, files) for module, path in files.items()}
    TopologicalSorter(graph).prepare()  # a cycle is a CycleError that names its modules
