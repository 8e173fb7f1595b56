"""The examples in the help of each command, run word for word."""

from __future__ import annotations

import argparse
import errno
import io
import json
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plaza import docgen
from plaza.cli import COMMANDS as MODULES
from plaza.cli import main, parser
from plaza.cli_errors import file_error, print_error
from plaza.core.keyspace import Layout, use_layout
from plaza.core.valkey import ReplyError
from tests.databases import with_tables
from tests.servers import Server

COMMANDS = dict(docgen.all_commands("plaza", parser()))


def example_arguments(command: argparse.ArgumentParser) -> list[list[str]]:
    """The arguments of each command in an example, without environment variables."""
    shown = (command.epilog or "").partition("example:\n  ")[2]
    lines = [re.sub(r"^(?:PLAZA_\w+=\S+ )+", "", line) for line in shown.split(" && ")]
    return [shlex.split(line)[1:] for line in lines]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_example_parses(name: str) -> None:
    assert name.split()[1] in MODULES, "else it imports the modules of all commands"
    for words in example_arguments(COMMANDS[name]):
        assert parser(words[0]).parse_args(words).run, "the module of the command adds it"


@pytest.fixture
def environment(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A Valkey and a data directory for the commands."""
    (tmp_path / "var").mkdir()
    with_tables(tmp_path / "var")
    monkeypatch.setenv("PLAZA_DATA_DIR", str(tmp_path / "var"))
    monkeypatch.setenv("PLAZA_VALKEY_URL", server.url)
    monkeypatch.chdir(tmp_path)
    yield server
    use_layout(Layout.PLAIN)


def logged_commands() -> list[str]:
    """The commands in the security log, each with the operator and a good end."""
    with sqlite3.connect(Path("var/plaza.sqlite")) as database:
        rows = database.execute(
            "SELECT action, actor, result FROM accounts_security_log WHERE kind = 'admin'"
        ).fetchall()
    assert {(actor.split(":")[0], result) for _, actor, result in rows} <= {("@cli", "done")}
    return [action for action, _, _ in rows]


def test_examples_work(
    environment: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str) -> str:
        for words in example_arguments(COMMANDS[f"plaza {name}"]):
            assert main(words) == 0, (words, capsys.readouterr())
        return capsys.readouterr().out

    lines = [{"type": "user", "username": name} for name in ("ana", "ben")]
    Path("community.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    assert "2 created" in run("import")
    assert "2 unchanged" in run("import")
    assert run("users role").startswith("ana is now admin")
    monkeypatch.setattr("sys.stdin", io.StringIO("a new password\n"))
    assert run("users password").startswith("ana has a new password")
    assert run("token").count(".") == 2
    assert run("users rename").startswith("ana is now anna")
    assert "Rebuilt: clg, post, reaction, tracking." in run("challenges roll")
    assert "Rebuilt: clg, post, reaction, tracking." in run("challenges rebuild")
    assert "No findings." in run("audit")
    assert "all measured" in run("keys")
    assert run("api-keys create").startswith("plaza_")
    assert "billing" in run("api-keys list")
    assert "revoked" in run("api-keys revoke")
    assert logged_commands() == [
        "plaza import",
        "plaza import",
        "plaza users role",
        "plaza users password",
        "plaza token",
        "plaza users rename",
        "plaza challenges roll",
        "plaza challenges rebuild",
        "plaza audit",
        "plaza api-keys create",
        "plaza api-keys revoke",
    ]
    with environment.redis_client() as redis_client:
        assert redis_client.hget("user:anna", "role") == "admin"
        assert redis_client.hget("rs_param", "distinct_category") == "5"
        assert redis_client.hget("auth:anna", "password_hash").startswith("$argon2")


def test_errors_are_one_sentence(
    environment: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(words: str, status: int) -> str:
        assert main(words.split()) == status
        return capsys.readouterr().err

    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    assert refused("users password ana", 1) == "plaza: A password must have 8 to 256 characters.\n"
    assert refused("import nothing.jsonl", 2) == "plaza: nothing.jsonl is not a file.\n"
    Path("bad.jsonl").write_text('{"type": "user"}\nnonsense\n{"type": ["user"]}\n')
    printed = refused("import bad.jsonl", 1)
    assert "line 1: " in printed
    assert "line 2: not JSON" in printed
    assert "line 3: type: must be one of" in printed


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("WRONGTYPE Operation against a key", "plaza: A key has the wrong type. `plaza audit` names it"),
        ("NOPERM User ana has no permissions", "plaza: Valkey refused a command: NOPERM User ana has no permissions."),
    ],
)
def test_a_refusal_of_valkey_is_one_sentence(reply: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert print_error(ReplyError(reply.split()[0], reply)) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(expected)
    assert printed.count("\n") == 1


def test_an_error_of_a_file_is_one_sentence_with_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLAZA_DATA_DIR", str(tmp_path))
    assert main(["export", str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert printed == f"plaza: {tmp_path} is a directory, a link or a device. Give the name of a file.\n"
    unreadable = IsADirectoryError(errno.EISDIR, "Is a directory", "1.json")
    assert str(file_error(unreadable)) == "1.json: Is a directory. Give a file."
    assert "Free some space" in str(file_error(OSError(errno.ENOSPC, "No space left on device")))
    assert file_error(ConnectionResetError(errno.ECONNRESET, "reset")) is None, "not of a file: a bug"


# Commands that create a data directory or need none.
WITHOUT_DATA = {"plaza serve", "plaza restore", "plaza doctor", "plaza new domain"}


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT_DATA))
def test_a_command_creates_no_data_directory_and_names_the_one_it_looked_for(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("a new password\n"))
    Path("community.jsonl").write_text('{"type": "user", "username": "ana"}')
    Path("srv").mkdir()
    for folder in ("missing", "srv"):  # one that exists and has nothing of Plaza: its audit would be clean
        monkeypatch.setenv("PLAZA_DATA_DIR", folder)
        for words in example_arguments(COMMANDS[name]):
            assert main(words) == 2
            printed = capsys.readouterr().err
            assert f"{folder} is no data directory" in printed or f"{folder}/data-key does not exist" in printed
    assert not Path("missing").exists()
    assert not list(Path("srv").iterdir())


def test_an_export_writes_through_no_link_and_is_readable_by_its_owner_only(
    environment: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("other").write_text("untouched")
    Path("latest").symlink_to("other")
    assert main(["export", "latest"]) == 2
    assert capsys.readouterr().err == "plaza: latest is a directory, a link or a device. Give the name of a file.\n"
    Path("new.unfinished").symlink_to("other")
    assert main(["export", "new"]) == 0
    assert Path("other").read_text() == "untouched"
    Path("new.unfinished").write_text("of an export that was killed")
    Path("new.unfinished").chmod(0o666)
    assert main(["export", "new"]) == 0
    assert Path("new").stat().st_mode & 0o777 == 0o600


def test_help_imports_nothing_that_takes_long() -> None:
    """`plaza --help` takes less than 150 ms of CPU. One of these modules takes a third of that."""
    program = "import sys, plaza.cli; plaza.cli.parser().format_help(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    slow = {
        "asyncio",
        "cryptography",
        "importlib.metadata",
        "jwt",
        "numpy",
        "rich",
        "sqlalchemy",
        "structlog",
        "uvicorn",
    }
    assert not slow & set(done.stdout.split())


def test_a_command_imports_only_what_it_uses(environment: Server, tmp_path: Path) -> None:
    """numpy, Alembic and a second Valkey client take 0.1 to 0.3 s of CPU each; a web server and the routes as much."""
    with_tables(tmp_path / "var")
    program = (
        "import sys, plaza.app; from plaza.cli import main\n"
        "plaza.app.make_app = lambda *_, **__: 1 / 0  # no routes are bound\n"
        "main(['token', 'ana'])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {"alembic", "asyncpg", "authlib", "httpx", "numpy", "pyvips", "uvicorn", "uvloop", "valkey", "webauthn"}
    assert not heavy & set(done.stdout.split())


def test_events_are_printed_from_an_id_on(environment: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with environment.redis_client() as client:
        for n in range(1, 4):
            fields = {"type": "post.liked", "subject": f"p{n}", "time": n, "data": '{"post": "p"}'}
            client.xadd("events:social", fields, id=f"{n}-0")
    assert main(["events", "tail", "--types", "post.*", "--after", "social-1-0", "--count", "2"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(event["id"], event["subject"]) for event in printed] == [("social-2-0", "p2"), ("social-3-0", "p3")]
    assert main(["events", "tail", "--types", "post.likd"]) == 1


def test_a_worker_on_a_machine_without_a_directory_says_to_create_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLAZA_DATA_DIR", str(tmp_path / "var"))
    monkeypatch.setenv("PLAZA_VALKEY_URL", "valkey://127.0.0.1:1")
    monkeypatch.setenv("PLAZA_DATABASE_URL", "postgresql://127.0.0.1:1/plaza")
    assert main(["worker"]) == 2
    assert f"{tmp_path}/var does not exist. Create it: mkdir -p {tmp_path}/var" in capsys.readouterr().err
    assert not (tmp_path / "var").exists()
