"""A start imports only what it needs. `python -m bench start` measures what that saves."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Collection, Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

import plaza
from plaza.app import catalogues
from plaza.cli import COMMANDS
from plaza.core.settings import Settings
from plaza.own_domains import OWN_DOMAINS, configured_catalogues
from tests.databases import with_tables
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
    "httpx2",
    "joserfc",
    "jwt",
    "multiprocessing.pool",
    "numpy",
    "opentelemetry",
    "plaza.demo.loader",
    "pyvips",
    "rich",
    "segno",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.orm",
    "webauthn",
    "zxcvbn",
}
# What only a process with routes needs.
SERVING: Final = {"jinja2", "plaza.http_application", "plaza.web.page_registry", "uvicorn"}
# What a command does without that calls no service.
SERVICES: Final = {"plaza.app", "sqlalchemy"}
# They use what a `msgspec.Struct` lacks: cached properties, fields that are not compared, shown or given.
DATACLASSES: Final = {
    "plaza.app.Plaza",
    "plaza.core.auth.Actor",
    "plaza.core.functions.BuiltLibrary",
    "plaza.core.functions.Library",
    "plaza.core.keyspace.Key",
    "plaza.core.settings.Settings",
    "plaza.core.valkey.address.Address",
    "plaza.search.query.Phrase",
    "plaza.search.query.Query",
    "plaza.search.query._Conditions",
}
# The arguments of other commands, which argparse and gettext take 10 ms to build.
OTHER_COMMANDS: Final = {f"plaza.commands.{name}" for name in set(COMMANDS.values()) - {"users"}}
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
        ("import plaza.cli", {*RARE, *SERVING, *SERVICES, *OTHER_COMMANDS, "asyncio", "structlog"}),
        ("from plaza.cli import main; main(['token', 'ana'])", {*RARE, *SERVING, *OTHER_COMMANDS, *OTHER_DOMAINS}),
        ("from plaza.cli import main; main(['audit'])", {*RARE, *SERVING}),
        ("from plaza.cli import main; main(['api-keys', 'list'])", {*RARE, *SERVING, *SERVICES}),
        ("from plaza.cli import main; main(['keys'])", {*RARE, *SERVING, *SERVICES}),
        # It looks for the package of each extra, and so imports `opentelemetry`, which is empty.
        ("from plaza.cli import main; main(['doctor'])", {*RARE, *SERVING, *SERVICES} - {"opentelemetry"}),
        ("from plaza.core.submodules import *; import_without('structlog', 'rich'); import plaza.serve", RARE),
    ],
    ids=[
        "the command line",
        "a command of accounts",
        "a command of all domains",
        "a command on Valkey",
        "a command on declarations",
        "a command that checks everything",
        "a server",
    ],
)
def test_a_start_imports_only_what_it_needs(tmp_path: Path, program: str, excluded: set[str]) -> None:
    assert imported(with_tables(tmp_path), program) & excluded == set()


def test_a_command_ends_with_all_its_output_and_without_freeing_objects(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    program = "import atexit, sys; atexit.register(print, 'freed'); sys.argv = ['plaza', 'keys', '--json']"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; from plaza.cli import run_and_exit; run_and_exit()"],
        env=environment(tmp_path / "var"),
        capture_output=True,
        timeout=TIME_LIMIT_SECONDS,
        check=True,
    )
    assert json.loads(done.stdout)


@pytest.mark.parametrize(("error", "status"), [("OperatorError('It is broken.')", 2), ("KeyboardInterrupt", 130)])
def test_a_command_that_fails_has_printed_what_precedes_its_error(tmp_path: Path, error: str, status: int) -> None:
    (tmp_path / "var").mkdir()
    program = f"""
import argparse, sys
from plaza import cli
from plaza.core.errors import OperatorError

def fail(given):
    print("the output")
    raise {error}

failing = argparse.ArgumentParser()
failing.set_defaults(run=fail)
cli.parser = lambda *_: failing
sys.argv = ["plaza"]
cli.run_and_exit()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={name: value for name, value in environment(tmp_path / "var").items() if name != "PYTHONUNBUFFERED"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
        check=False,
    )
    error_lines = ["plaza: It is broken."] if status == 2 else []
    assert (done.returncode, done.stdout.splitlines()) == (status, ["the output", *error_lines])


def test_a_server_imports_few_dataclasses(tmp_path: Path) -> None:
    """Each takes half a millisecond to define."""
    (tmp_path / "var").mkdir()
    program = "import plaza.serve, plaza.app; plaza.app.own_domains()"
    classes = "(c for n, m in sys.modules.items() if 'plaza' in n for c in vars(m).values() if type(c) is type)"
    shown = f"print(*(f'{{c.__module__}}.{{c.__name__}}' for c in {classes} if hasattr(c, '__dataclass_fields__')))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}; {shown}"],
        env=environment(tmp_path / "var"),
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
        check=True,
    )
    assert set(done.stdout.split()) == DATACLASSES


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
