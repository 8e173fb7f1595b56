"""What backups write, and what a restore refuses."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import asyncpg
import httpx
import pytest
from msgspec import structs

from plaza.app import Plaza, running
from plaza.backup import restoration, valkey_part
from plaza.backup.chunks import BrokenBackup
from plaza.backup.creation import BackupRun
from plaza.backup.postgres_part import PostgresSnapshot
from plaza.backup.restoration import RestoreRun
from plaza.backup.snapshots import BackupDirectory
from plaza.cli import main
from plaza.core.errors import OperatorError
from plaza.core.functions import GENERATION
from plaza.core.keys import RESTORING
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from plaza.core.valkey import Arg, ReplyError, connect
from plaza.core.valkey.standalone import StandaloneValkey
from plaza.keyspace.audit import REPAIR, Audits, FailoverWatch
from plaza.keyspace.audit.auditor import Auditor
from plaza.keyspace.audit_keys import AUDIT_PRIMARIES
from plaza.social.inbound_sync import InboundSync
from tests.backup.storm import BackupStorm
from tests.databases import database_with_tables, with_tables
from tests.postgres import Postgres
from tests.processes import SimulatedCrash, serving
from tests.processes import plaza as plaza_command
from tests.servers import Cluster, Server
from tests.timeouts import TIME_LIMIT_SECONDS


@pytest.fixture
def settings(server: Server, tmp_path: Path) -> Settings:
    (tmp_path / "source").mkdir()
    return Settings(data_dir=with_tables(tmp_path / "source"), valkey_url=server.url, rate_limits=False)


@pytest.fixture
async def plaza(settings: Settings) -> AsyncIterator[Plaza]:
    """A small community with pictures."""
    async with running(settings) as plaza:
        await plaza.get(InboundSync).apply("user", [{"username": "ana"}])
        storm = BackupStorm(plaza)
        await storm.add_picture()
        await storm.add_picture()
        yield plaza


@pytest.fixture
def directory(tmp_path: Path) -> BackupDirectory:
    return BackupDirectory(tmp_path / "backups")


async def test_a_second_backup_stores_no_picture_again_and_only_its_owner_can_read_it(
    plaza: Plaza, directory: BackupDirectory, settings: Settings
) -> None:
    done: Counter[str] = Counter()
    first = await BackupRun(plaza, directory, lambda step, count: done.update({step: count})).run()
    assert list(done) == ["valkey", "sql", "media", "chunks of keys"]
    assert done["chunks of keys"] == done["valkey"] == first.valkey.nodes[0].bytes
    files = {file.path: file for file in await directory.media_files(first)}
    assert len(files) == 6
    # Files never change, so those of the first backup are not read again: also not if someone overwrites one.
    path = settings.data_dir / "media" / next(iter(files))
    path.write_bytes(bytes(path.stat().st_size))
    second = await BackupRun(plaza, directory).run(keep=1)
    assert {file.path: file for file in await directory.media_files(second)} == files
    assert directory.ids() == [second.id]
    assert second.id > first.id
    assert directory.next_id(0) > second.id, "also if the clock was set back"
    paths = [directory.folder, *directory.folder.rglob("*")]
    assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_file()} == {"0o600"}
    assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_dir()} == {"0o700"}
    with directory.locked(), pytest.raises(OperatorError, match=r"Another backup to .* is running"):
        await BackupRun(plaza, directory).run()
    stored = {file.name for file in directory.folder.glob("chunks/*/*")}
    assert stored == await directory.chunk_names(second)


async def test_a_damaged_backup_stops_no_later_one_and_is_named(plaza: Plaza, directory: BackupDirectory) -> None:
    first = await BackupRun(plaza, directory).run()
    chunk = next(file for file in directory.folder.glob("chunks/*/*") if file.name in first.secrets.chunks)
    chunk.write_bytes(b"")
    manifest = directory.folder / "snapshots" / f"{first.id}.json"
    manifest.write_bytes(manifest.read_bytes()[:-5])
    with pytest.raises(BrokenBackup, match=f"The new backup is complete, but an older one is not.* Delete {manifest}"):
        await BackupRun(plaza, BackupDirectory(directory.folder)).run(keep=5)
    assert not (directory.folder / "unfinished").exists()
    settings = plaza.core.settings
    assert (await RestoreRun(settings, directory).check()).id > first.id, "what both use is complete again"


async def test_a_restore_that_cannot_succeed_changes_nothing(
    plaza: Plaza, directory: BackupDirectory, settings: Settings, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BrokenBackup, match="contains no complete backup"):
        await RestoreRun(settings, directory).run(replaces=True)
    snapshot = await BackupRun(plaza, directory).run()
    before = await plaza.core.valkey.call("DBSIZE")
    monkeypatch.setattr(restoration, "STOP_SECONDS", 0)
    with closing(server.redis_client()) as other:
        other.client_setname("plaza-1-0")
        with pytest.raises(OperatorError, match="Another process of Plaza uses this Valkey"):
            await RestoreRun(settings, directory).run(replaces=True)
    with pytest.raises(OperatorError, match="not empty: Valkey, the SQL database, the store of pictures"):
        await RestoreRun(settings, directory).run()
    with pytest.raises(OperatorError, match="of sqlite, and PLAZA_DATABASE_URL names postgresql"):
        await RestoreRun(replace(settings, database_url="postgresql://nowhere/x"), directory).run(replaces=True)
    with pytest.raises(OperatorError, match=f"contains no backup 1999. It contains {snapshot.id}"):
        await RestoreRun(settings, directory).run("1999", replaces=True)
    file = next(directory.folder.glob("chunks/*/*"))
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(BrokenBackup, match="incomplete"):
        await RestoreRun(settings, directory).run(replaces=True)
    file.write_bytes(content)
    manifest = next(directory.folder.glob("snapshots/*.json"))
    manifest.write_bytes(manifest.read_bytes().replace(b'"plain"', b'"pla1n"'))
    with pytest.raises(BrokenBackup, match="was changed"):
        await RestoreRun(settings, directory).run(replaces=True)
    assert await plaza.core.valkey.call("DBSIZE") == before


async def test_a_backup_of_one_server_is_not_restored_to_a_cluster(
    plaza: Plaza, directory: BackupDirectory, settings: Settings, cluster: Cluster, tmp_path: Path
) -> None:
    await BackupRun(plaza, directory).run()
    (tmp_path / "other").mkdir()
    try:
        with pytest.raises(OperatorError, match="The backup is of one server, and PLAZA_VALKEY_URL names a cluster"):
            await RestoreRun(replace(settings, data_dir=tmp_path / "other", valkey_url=cluster.url), directory).run()
        with cluster.redis_client() as client:
            assert client.dbsize(target_nodes="primaries") == 0
    finally:
        use_layout(Layout.PLAIN)


def test_the_embedded_valkey_is_backed_up_beside_its_server(tmp_path: Path) -> None:
    account = {"username": "ana", "password": "correct horse battery staple"}
    with serving(tmp_path / "var") as server:
        httpx.post(f"{server.url}/auth/register", json=account, timeout=TIME_LIMIT_SECONDS).raise_for_status()
        backup = plaza_command(tmp_path / "var", "backup", str(tmp_path / "backups"))
        assert backup.returncode == 0, backup.stderr
        assert server.stop() == 0
    restored = plaza_command(tmp_path / "new", "restore", str(tmp_path / "backups"))
    assert restored.returncode == 0, restored.stderr
    assert plaza_command(tmp_path / "new", "users", "role", "ana", "admin").returncode == 0, "the user is there again"


async def test_a_restore_goes_back_from_a_newer_release(
    plaza: Plaza, directory: BackupDirectory, settings: Settings, server: Server
) -> None:
    snapshot = await BackupRun(plaza, directory).run()
    with closing(sqlite3.connect(settings.data_dir / "plaza.sqlite")) as sql, sql:
        sql.execute("UPDATE alembic_version SET version_num = 'shop_9999' WHERE version_num LIKE 'shop_%'")
    with server.redis_client() as client:
        name = f"plaza_social_g{GENERATION + 1}_00000000"
        client.function_load(f"#!lua name={name}\nserver.register_function('f', function() return 1 end)")
    await BackupStorm(plaza).add_picture()
    (settings.data_dir / "media" / "logo.png").write_bytes(b"of another service")
    assert (await RestoreRun(settings, directory).run(replaces=True)).audit.clean
    stored = {str(path.relative_to(settings.data_dir / "media")) for path in (settings.data_dir / "media").rglob("*.*")}
    restored = {file.path for file in await directory.media_files(snapshot)}
    assert stored == {*restored, "logo.png"}, "no later picture is left"


async def test_a_restore_leaves_tables_of_other_services_in_postgresql_alone(
    server: Server, postgres: Postgres, directory: BackupDirectory, tmp_path: Path
) -> None:
    async with database_with_tables(postgres) as url:
        settings = Settings(data_dir=tmp_path, valkey_url=server.url, database_url=url, rate_limits=False)
        other = await asyncpg.connect(url)
        try:
            await other.execute("CREATE TABLE bill (id serial PRIMARY KEY); INSERT INTO bill DEFAULT VALUES")
            async with running(settings) as plaza:
                await BackupRun(plaza, directory).run()
            await other.execute("INSERT INTO bill DEFAULT VALUES")
            assert (await RestoreRun(settings, directory).run(replaces=True)).audit.clean
            assert await other.fetchval("INSERT INTO bill DEFAULT VALUES RETURNING id") == 3

            await other.execute("UPDATE alembic_version SET version_num = 'shop_9999' WHERE version_num LIKE 'shop_%'")
            with server.redis_client() as client:
                before = client.dbsize()
                with pytest.raises(OperatorError, match=r"of a newer Plaza \(shop_9999\).*Create an empty database"):
                    await RestoreRun(settings, directory).run(replaces=True)
                assert client.dbsize() == before
        finally:
            await other.close()


async def test_a_backup_leaves_out_tables_that_only_other_services_may_read(
    postgres: Postgres, directory: BackupDirectory
) -> None:
    async with database_with_tables(postgres) as url:
        other = await asyncpg.connect(url)
        role = f"role_{token_hex(4)}"
        try:
            await other.execute(f"CREATE ROLE {role} LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
            await other.execute("CREATE TABLE bill (id serial PRIMARY KEY); CREATE SEQUENCE bill_numbers")
            await other.execute("SELECT nextval('bill_numbers')")
            with directory.locked() as spool:
                async with PostgresSnapshot.open(url.replace("postgres@", f"{role}@")) as snapshot:
                    stored = await snapshot.store(directory.chunks, spool, lambda done: None)
            assert {"media_contents", "shop_items"} <= stored.streams.keys()
            assert "bill" not in stored.streams
            assert "bill_numbers" not in stored.sequences
        finally:
            await other.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
            await other.close()


async def test_a_restore_says_that_it_runs_as_soon_as_a_key_is_deleted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = StandaloneValkey.call

    async def crash(node: StandaloneValkey, *command: Arg, **options: Any) -> Any:
        if command[0] == "FLUSHDB":
            raise SimulatedCrash
        return await delete(node, *command, **options)

    async with await connect(cluster.url) as valkey:
        for number in range(100):
            await valkey.call("SET", f"key:{number}", "")
        with monkeypatch.context() as patch:
            patch.setattr(StandaloneValkey, "call", crash)
            with pytest.raises(SimulatedCrash):
                await valkey_part.replace_all_keys(valkey, RESTORING(), "backup")
        assert await valkey.call("GET", RESTORING()) == "backup"
        sizes = [await node.call("DBSIZE") for node in valkey.primaries()]
        assert 1 in sizes, "the others of its node are gone"
        assert sum(sizes) > 1
        await valkey_part.replace_all_keys(valkey, RESTORING(), "again")
        assert sum([await node.call("DBSIZE") for node in valkey.primaries()]) == 1


async def test_no_backup_is_deleted_while_a_restore_reads(
    plaza: Plaza, directory: BackupDirectory, settings: Settings
) -> None:
    first = await BackupRun(plaza, directory).run()
    second = await BackupRun(plaza, directory).run()
    timer, cleaning = BackupDirectory(directory.folder), list[asyncio.Task[int]]()

    def clean_up_meanwhile(name: str, done: int) -> None:
        if name == "sql":
            cleaning.append(asyncio.create_task(timer.keep(1)))

    await RestoreRun(settings, directory, clean_up_meanwhile).run(first.id, replaces=True)
    assert await asyncio.gather(*cleaning)
    assert timer.kept_all
    assert timer.ids() == [first.id, second.id]
    assert await timer.keep(1) == 1


async def test_the_primaries_of_a_backup_are_not_restored(
    plaza: Plaza, directory: BackupDirectory, settings: Settings
) -> None:
    """Another machine has other ones, which is no failover."""
    await plaza.core.valkey.call("HSET", AUDIT_PRIMARIES(), "f" * 40, "0-16383")
    await BackupRun(plaza, directory).run()
    await RestoreRun(settings, directory).run(replaces=True)
    assert await FailoverWatch(plaza.get(Audits), settings.data_dir).check() is None


async def test_a_backup_that_was_tampered_with_writes_no_other_file(
    plaza: Plaza, directory: BackupDirectory, settings: Settings
) -> None:
    snapshot = await BackupRun(plaza, directory).run()

    async def secrets() -> AsyncIterator[bytes]:
        yield b'{"../planted": "x", "api-key": "%s"}' % (b"k" * 64)

    planted = await directory.chunks.put(secrets())
    directory.save(structs.replace(snapshot, id=f"{snapshot.id}a", secrets=planted))
    await RestoreRun(settings, directory).run(replaces=True)
    assert (settings.data_dir / "api-key").read_text() == "k" * 64
    assert not (settings.data_dir.parent / "planted").exists()


async def test_no_server_starts_on_half_of_a_restore(
    plaza: Plaza, directory: BackupDirectory, settings: Settings
) -> None:
    snapshot = await BackupRun(plaza, directory).run()

    def fail_at_the_tables(name: str, done: int) -> None:
        if name == "sql":
            raise SimulatedCrash

    with pytest.raises(SimulatedCrash):
        await RestoreRun(settings, directory, fail_at_the_tables).run(replaces=True)
    assert await plaza.core.valkey.call("GET", RESTORING()) == snapshot.id
    with pytest.raises(OperatorError, match=f"restore of backup {snapshot.id} has not ended"):
        async with running(settings):
            pass
    restored = await RestoreRun(settings, directory).run(replaces=True)
    assert restored.audit.clean, restored.audit.findings
    async with running(settings):
        pass


async def test_a_restore_whose_repair_fails_is_complete_and_says_so(
    plaza: Plaza,
    directory: BackupDirectory,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await BackupRun(plaza, directory).run()

    async def fail(self: Auditor, *_: object) -> None:
        raise ReplyError("ERR", "ERR user_function:1690: attempt to perform arithmetic on a nil value")

    monkeypatch.setenv("PLAZA_DATA_DIR", str(settings.data_dir))
    monkeypatch.setenv("PLAZA_VALKEY_URL", settings.valkey_url)
    with monkeypatch.context() as patch:
        patch.setattr(Auditor, "run", fail)
        status = await asyncio.to_thread(main, ["restore", str(directory.folder), "--replace"])
    printed = capsys.readouterr().out
    assert status == 1
    assert "the repair of what is derived failed: ERR user_function:1690" in printed
    assert "run plaza audit --repair" in printed
    async with running(settings) as restored:
        assert (await restored.get(Audits).run(REPAIR)).clean


@pytest.mark.parametrize("name", ["notes.txt", "snapshots/2026.json", "lock"])
def test_a_folder_of_something_else_takes_no_backups(name: str, tmp_path: Path) -> None:
    file = tmp_path / "other" / name
    file.parent.mkdir(parents=True)
    file.touch()
    with pytest.raises(OperatorError, match="contains other files"), BackupDirectory(tmp_path / "other").locked():
        pass
    assert {path for path in (tmp_path / "other").rglob("*") if path.is_file()} == {file}


def test_an_empty_folder_takes_backups_again_and_lists_only_files(tmp_path: Path) -> None:
    directory = BackupDirectory(tmp_path / "backups")
    (tmp_path / "backups" / "lost+found").mkdir(parents=True)  # a disk of its own
    for _ in range(2):
        with directory.locked():
            (tmp_path / "backups" / "snapshots" / "copy.json").mkdir(exist_ok=True)
    assert directory.ids() == []


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_an_empty_name_is_not_the_current_directory(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, ""])
    assert "argument DIR: is empty" in capsys.readouterr().err
