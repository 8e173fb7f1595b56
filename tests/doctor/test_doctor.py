"""`plaza doctor` on real installations, whole and broken: it names what is wrong and its fix, and writes nothing."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plaza.core.embedded_valkey import EmbeddedValkey
from plaza.core.functions import GENERATION
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.valkey import connect
from plaza.doctor.check import CheckResult
from plaza.doctor.diagnosis import diagnose
from plaza.doctor.machine import judge_disk
from plaza.doctor.valkey import check_clock, check_version
from tests.databases import with_tables
from tests.otlp_receiver import receiving_spans
from tests.postgres import Postgres
from tests.processes import environment
from tests.servers import Cluster, Server
from tests.smtp import smtp_server

SECRET = "a-secret-that-no-line-may-show-0123456789"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The data directory of a server that has run and has stopped."""
    folder = tmp_path / "var"
    folder.mkdir(mode=0o700)
    with_tables(folder)
    (folder / "plaza.sqlite").chmod(0o600)
    for name in ("api-key", "jwt-secret", "data-key"):
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(SECRET)
    (folder / "valkey").mkdir(mode=0o700)
    return folder


def files(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.stat().st_size) for p in sorted(folder.rglob("*"))}


async def examine(data_dir: Path, **settings: str) -> dict[str, CheckResult]:
    """Run all checks; nothing in the data directory may change, and no line may show a secret or lack a fix."""
    before = files(data_dir)
    environ = {"PLAZA_DATA_DIR": str(data_dir), "PLAZA_PORT": "0", **settings}
    results = await diagnose(environ)
    assert files(data_dir) == before
    assert all(result.fix for result in results if result.state != "ok")
    assert not any(SECRET in str(result) for result in results)
    return {result.name: result for result in results}


def wrong(results: dict[str, CheckResult]) -> dict[str, str]:
    return {name: str(result) for name, result in results.items() if result.state == "wrong"}


async def test_a_stopped_server_is_fine(data_dir: Path) -> None:
    results = await examine(data_dir)
    assert not wrong(results)
    assert str(data_dir) in results["data directory"].text
    assert results["valkey"].text.startswith("Embedded")
    assert {"versions", "settings", "permissions", "disk", "clock", "memory limit", "migrations", "mail"} <= set(
        results
    )


async def test_a_running_server_is_fine(data_dir: Path) -> None:
    async with EmbeddedValkey(data_dir):
        results = {r.name: r for r in await diagnose({"PLAZA_DATA_DIR": str(data_dir), "PLAZA_PORT": "0"})}
    assert not wrong(results)
    assert str(data_dir / "valkey.sock") in results["valkey"].text
    assert {"memory", "persistence", "valkey clock", "libraries"} <= set(results)


async def test_a_missing_data_directory_is_named_and_not_created(tmp_path: Path) -> None:
    missing = tmp_path / "elsewhere"
    results = await examine(missing)
    assert str(missing) in wrong(results)["data directory"]
    assert not missing.exists()


def let_others_write(data_dir: Path) -> None:
    data_dir.chmod(0o777)


def let_others_read_the_key(data_dir: Path) -> None:
    (data_dir / "api-key").chmod(0o644)


def let_others_read_the_tables(data_dir: Path) -> None:
    (data_dir / "plaza.sqlite").chmod(0o640)


def lose_the_data_key(data_dir: Path) -> None:
    (data_dir / "data-key").unlink()


def interrupt_a_restore(data_dir: Path) -> None:
    (data_dir / "restoring").mkdir()


def cut_the_secret(data_dir: Path) -> None:
    (data_dir / "jwt-secret").write_text("short")


def set_the_clock_back(data_dir: Path) -> None:
    os.utime(data_dir / "plaza.sqlite", (time.time() + 3600,) * 2)


def damage_the_tables(data_dir: Path) -> None:
    (data_dir / "plaza.sqlite").write_bytes(b"no database" * 1000)


def remove_the_tables(data_dir: Path) -> None:
    (data_dir / "plaza.sqlite").unlink()


def migrate_shop_to(revision: str) -> Callable[[Path], None]:
    def change(data_dir: Path) -> None:
        database = sqlite3.connect(data_dir / "plaza.sqlite")
        with database:
            database.execute("UPDATE alembic_version SET version_num = ? WHERE version_num LIKE 'shop_%'", (revision,))
        database.close()

    return change


@pytest.mark.parametrize(
    ("damage", "name", "text"),
    [
        (let_others_write, "data directory", "chmod go-w"),
        (interrupt_a_restore, "data directory", "repeat it with --replace"),
        (let_others_read_the_key, "permissions", "api-key"),
        (let_others_read_the_tables, "permissions", "plaza.sqlite"),
        (lose_the_data_key, "secrets", "backup"),
        (cut_the_secret, "secrets", "jwt-secret is shorter"),
        (set_the_clock_back, "clock", "NTP"),
        (damage_the_tables, "sql", "not a database"),
        (remove_the_tables, "sql", "does not exist"),
        (migrate_shop_to("shop_0001"), "migrations", "older than this Plaza: shop_0"),
        (migrate_shop_to("shop_9999"), "migrations", "newer than this Plaza: shop_9999"),
    ],
)
async def test_damage_is_named_with_its_fix(
    data_dir: Path, damage: Callable[[Path], None], name: str, text: str
) -> None:
    damage(data_dir)
    found = wrong(await examine(data_dir))
    assert list(found) == [name]
    assert text in found[name]


def test_missing_permissions_are_named_with_their_fix(data_dir: Path) -> None:
    (data_dir / "plaza.sqlite").chmod(0)
    data_dir.chmod(0o500)
    # Root may do everything, unless it gives up its capabilities.
    limits = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
    command = [*limits, sys.executable, "-m", "plaza", "doctor"]
    done = subprocess.run(command, env=environment(data_dir), capture_output=True, text=True, check=False)
    data_dir.chmod(0o700)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"{data_dir} cannot be written by this user. chmod u+rwx {data_dir}\n" in done.stdout
    assert (
        f"Not checked: {data_dir}/plaza.sqlite: Permission denied. Run this as the user of the server." in done.stdout
    )
    assert "Restore a backup" not in done.stdout


@pytest.mark.parametrize(
    ("setting", "value", "name", "text"),
    [
        ("PLAZA_VALKEY_URL", "valkey://127.0.0.1:1", "valkey", "Start Valkey"),
        ("PLAZA_VALKEY_URL", "valkey+cluster://127.0.0.1:1,127.0.0.1:2", "valkey", "127.0.0.1:1 cannot be reached"),
        ("PLAZA_VALKEY_URL", "http://127.0.0.1", "valkey", "Correct PLAZA_VALKEY_URL"),
        ("PLAZA_DATABASE_URL", f"postgresql://ana:{SECRET}@127.0.0.1:1/plaza", "sql", "Start PostgreSQL"),
        ("PLAZA_DATABASE_URL", SECRET, "sql", "must look like postgresql://"),
        ("PLAZA_SMTP_URL", f"smtp://ana:{SECRET}@127.0.0.1:1", "mail", "127.0.0.1:1 cannot be used"),
        ("PLAZA_SMTP_URL", "mail.example", "mail", "PLAZA_SMTP_URL must be"),
        ("PLAZA_MEDIA_URL", "ftp://pictures", "media store", "PLAZA_MEDIA_URL must look like"),
        ("PLAZA_OIDC_ISSUER", "http://127.0.0.1:1", "sign-in", "does not respond"),
        ("PLAZA_OTLP_ENDPOINT", "http://127.0.0.1:1", "tracing", "Start the collector"),
        ("PLAZA_VALKEY_MAXMEMORY", "900000gb", "memory limit", "Set PLAZA_VALKEY_MAXMEMORY to at most"),
        ("PLAZA_TRUSTED_PROXIES", "proxy", "settings", "PLAZA_TRUSTED_PROXIES"),
        ("PLAZA_DOMAINS", "chess", "settings", "PLAZA_DOMAINS names chess"),
    ],
)
async def test_a_wrong_setting_is_named_with_its_fix(
    data_dir: Path, setting: str, value: str, name: str, text: str
) -> None:
    found = wrong(await examine(data_dir, **{setting: value}))
    assert text in found[name]


async def test_a_port_in_use_by_another_program_is_named(data_dir: Path) -> None:
    with socket.socket() as other:  # bound only: connections are refused
        other.bind(("127.0.0.1", 0))
        found = wrong(await examine(data_dir, PLAZA_PORT=str(other.getsockname()[1])))
    assert "is in use. Stop its process, or set PLAZA_PORT" in found["server"]


async def test_an_invalid_setting_stops_the_other_checks(data_dir: Path) -> None:
    results = await examine(data_dir, PLAZA_WORKERS="many")
    assert list(wrong(results)) == list(results) == ["settings"]


async def test_a_misspelt_setting_is_noticed(data_dir: Path) -> None:
    results = await examine(data_dir, PLAZA_WORKER="2")
    assert results["settings"].fix == "Did you mean PLAZA_WORKERS?"


async def test_a_wrong_password_of_valkey_is_named(data_dir: Path, server: Server, cluster: Cluster) -> None:
    for url in (server.url, cluster.url):
        found = wrong(await examine(data_dir, PLAZA_VALKEY_URL=url.replace("//", f"//eve:{SECRET}@")))
        assert "WRONGPASS" in found["valkey"]
        assert "Correct user and password" in found["valkey"]


@pytest.fixture
def evicting(server: Server) -> Iterator[Server]:
    with server.redis_client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", "1gb")
        yield server
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", "noeviction")


async def test_a_valkey_that_evicts_data_is_wrong(data_dir: Path, evicting: Server) -> None:
    found = wrong(await examine(data_dir, PLAZA_VALKEY_URL=evicting.url))
    assert "allkeys-lru" in found["memory"]


async def test_a_shared_valkey_without_limit_or_file_is_a_warning(data_dir: Path, server: Server) -> None:
    results = await examine(data_dir, PLAZA_VALKEY_URL=server.url)
    assert not wrong(results)
    assert (results["memory"].state, results["persistence"].state) == ("warning", "warning")


async def test_a_newer_plaza_on_the_same_valkey_is_noticed(data_dir: Path, server: Server) -> None:
    with server.redis_client() as client:
        name = f"plaza_social_g{GENERATION + 1}_00000000"
        client.function_load(f"#!lua name={name}\nserver.register_function('f', function() return 1 end)")
    assert "Upgrade this Plaza" in wrong(await examine(data_dir, PLAZA_VALKEY_URL=server.url))["libraries"]


async def test_a_clock_that_differs_and_an_old_version_are_named(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await connect(server.url) as valkey:
        assert "Upgrade to Valkey 7" in check_version([(valkey, {"redis_version": "6.2.14"})]).fix
        assert (await check_clock([(valkey, {})])).state == "ok"
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + 1_000)
        result = await check_clock([(valkey, {})])
        assert (result.state, "differs by" in result.text) == ("wrong", True)


async def test_a_cluster_without_replicas_is_a_warning(data_dir: Path, cluster: Cluster) -> None:
    results = await examine(data_dir, PLAZA_VALKEY_URL=cluster.url)
    assert not wrong(results)
    assert results["cluster"].state == "warning"


async def test_postgres_is_checked_like_sqlite(data_dir: Path, postgres: Postgres) -> None:
    async with postgres.database() as url:
        assert "no tables yet" in wrong(await examine(data_dir, PLAZA_DATABASE_URL=url))["migrations"]
        await (await Sql.open(Settings(data_dir=data_dir, database_url=url))).close()
        results = await examine(data_dir, PLAZA_DATABASE_URL=url)
        assert not wrong(results)
        assert results["sql"].text.startswith("PostgreSQL")


async def test_the_mail_server_is_asked_without_a_mail(data_dir: Path) -> None:
    with smtp_server() as mailbox:
        results = await examine(data_dir, PLAZA_SMTP_URL=f"smtp://127.0.0.1:{mailbox.port}")
    assert results["mail"].state == "ok"
    assert mailbox.mails == []


async def test_the_collector_of_traces_is_asked(data_dir: Path) -> None:
    with receiving_spans() as collector:
        assert (await examine(data_dir, PLAZA_OTLP_ENDPOINT=collector.url))["tracing"].state == "ok"


@pytest.mark.parametrize(
    ("free", "stored", "state"),
    [(50e6, 0, "wrong"), (0.9e9, 0, "warning"), (5e9, 6e9, "warning"), (5e9, 4e9, "ok")],
)
def test_the_disk_has_room_for_a_rewrite(tmp_path: Path, free: float, stored: float, state: str) -> None:
    assert judge_disk(tmp_path, int(free), int(stored)).state == state
