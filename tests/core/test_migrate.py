"""Migrations, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import pkgutil
import sqlite3
import textwrap
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, MetaData, inspect, text

import plaza
from plaza.core import sql_migrations
from plaza.core.errors import OperatorError, SettingError, Unavailable
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from tests.core.sample_migrations import CHILDREN, FOLDER, PARENTS, fetch_amount
from tests.processes import run_program
from tests.timeouts import within_time_limit


@pytest.fixture
def sql_settings(empty_sql_settings: Settings) -> Settings:
    return empty_sql_settings


async def test_each_domain_is_migrated_on_its_own_branch(sample_sql: Sql) -> None:
    async with sample_sql.read() as tx:
        heads = (await tx.execute(text("SELECT version_num FROM alembic_version"))).scalars().all()
    assert {"core_0002", "sample_0002"} <= set(heads)


async def test_a_start_without_new_migrations_notices_it(sample_sql: Sql) -> None:
    folders = [*sql_migrations.migration_folders(), FOLDER]
    async with sample_sql.read() as tx:
        assert not await tx.run_sync(sql_migrations.is_behind, folders)
        assert await tx.run_sync(sql_migrations.is_behind, folders[:-1])


async def test_a_start_on_current_tables_waits_for_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data_dir=tmp_path)
    await (await Sql.open(settings, [FOLDER])).close()
    file = tmp_path / "plaza.sqlite"
    assert sql_migrations.is_sqlite_current(file, [FOLDER])
    assert not sql_migrations.is_sqlite_current(file, [])
    assert not sql_migrations.is_sqlite_current(tmp_path / "other.sqlite", [FOLDER])
    monkeypatch.setattr(sql_migrations, "LOCK_WAIT_SECONDS", 0.0)
    async with sql_migrations.file_lock(file.with_suffix(".lock")):
        await (await Sql.open(settings, [FOLDER])).close()
    with contextlib.closing(sqlite3.connect(file)) as restored:
        restored.execute("PRAGMA journal_mode = DELETE")
    assert not sql_migrations.is_sqlite_current(file, [FOLDER])
    sql = await Sql.open(settings, [FOLDER])
    async with sql.read() as tx:
        assert (await tx.execute(text("PRAGMA journal_mode"))).scalar() == "wal"
    await sql.close()


async def test_an_older_database_is_upgraded_and_keeps_its_rows(sql_settings: Settings, tmp_path: Path) -> None:
    older = tmp_path / "older"
    older.mkdir()
    (older / "sample_0001_parents.py").write_text((FOLDER / "sample_0001_parents.py").read_text())
    sql = await Sql.open(sql_settings, [older])
    async with sql.begin() as tx:
        await tx.execute(PARENTS.insert().values(id=1, name="p1", amount=5))
    await sql.close()
    sql = await Sql.open(sql_settings, [FOLDER])
    async with sql.begin() as tx:
        await tx.execute(CHILDREN.insert().values(parent=1, name="c1"))
    assert await fetch_amount(sql) == 5
    await sql.close()


async def test_a_database_newer_than_the_code_is_rejected_and_unchanged(
    sample_sql: Sql, sql_settings: Settings, tmp_path: Path
) -> None:
    older = tmp_path / "older"
    older.mkdir()
    (older / "sample_0001_parents.py").write_text((FOLDER / "sample_0001_parents.py").read_text())
    with pytest.raises(SettingError, match=r"newer than this Plaza.*sample_0002.*backup"):
        await Sql.open(sql_settings, [*sql_migrations.migration_folders(), older])
    assert await fetch_amount(sample_sql) == 5


async def test_a_failed_migration_leaves_the_database_unchanged(sql_settings: Settings, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "one.py").write_text(
        textwrap.dedent("""
        from alembic import op
        revision, down_revision, branch_labels, depends_on = "broken_0001", None, ("broken",), None

        def upgrade() -> None:
            op.execute("CREATE TABLE half (id int)")
            raise ZeroDivisionError
        """)
    )
    with pytest.raises(ZeroDivisionError):
        await Sql.open(sql_settings, [FOLDER, broken])
    sql = await Sql.open(sql_settings, [])
    async with sql.read() as tx:
        assert await tx.run_sync(lambda connection: inspect(connection).get_table_names()) == []
    await sql.close()


async def test_processes_that_start_together_migrate_once(sql_settings: Settings, tmp_path: Path) -> None:
    counting = tmp_path / "counting"
    counting.mkdir()
    (counting / "one.py").write_text(
        textwrap.dedent(f"""
        import os, time
        from alembic import op
        revision, down_revision, branch_labels, depends_on = "counting_0001", None, ("counting",), None

        def upgrade() -> None:
            with open({str(tmp_path / "ran")!r}, "a") as file:
                file.write(f"{{os.getpid()}}\\n")
            time.sleep(0.3)  # long enough for the other processes to arrive
            op.execute("CREATE TABLE counted (id int)")
        """)
    )
    program = f"""
        import asyncio
        from pathlib import Path
        from plaza.core.settings import Settings
        from plaza.core.sql import Sql

        async def main():
            settings = Settings(
                data_dir=Path({str(sql_settings.data_dir)!r}), database_url={sql_settings.database_url!r}
            )
            sql = await Sql.open(settings, [Path({str(counting)!r})])
            await sql.ping()
            await sql.close()

        asyncio.run(main())
    """
    await asyncio.gather(*(run_program(program) for _ in range(3)))
    assert len((tmp_path / "ran").read_text().splitlines()) == 1


# On SQLite an index by an expression cannot be compared. The same declaration is compared on PostgreSQL.
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
@pytest.mark.filterwarnings("ignore:autogenerate skipping metadata-specified expression-based index")
async def test_migrations_create_the_tables_that_the_code_declares(sql: Sql) -> None:
    """Finds a column that is in a `Table` and in no migration, or the reverse."""
    declared: dict[int, MetaData] = {}
    for found in pkgutil.walk_packages(plaza.__path__, "plaza."):
        if ".migrations" not in found.name and not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            declared |= {id(value): value for value in vars(module).values() if isinstance(value, MetaData)}
    ours = {name for tables in declared.values() for name in tables.tables}
    assert ours

    def differences(connection: Connection) -> list[Any]:
        found: list[Any] = []
        for tables in declared.values():
            here = set(tables.tables)
            options = {"include_name": lambda name, kind, _, here=here: kind != "table" or name in here}
            found += compare_metadata(MigrationContext.configure(connection, opts=options), tables)
        return found

    async with sql.read() as tx:
        assert await tx.run_sync(differences) == []


async def test_waiting_for_a_migration_is_bounded(sql_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    async with contextlib.AsyncExitStack() as stack:
        if sql_settings.database_url:
            other = await Sql.open(sql_settings)
            stack.push_async_callback(other.close)
            tx = await stack.enter_async_context(other.begin())
            await tx.execute(text(f"SELECT pg_advisory_xact_lock({sql_migrations.ADVISORY_LOCK})"))
        else:
            await stack.enter_async_context(sql_migrations.file_lock(sql_settings.data_dir / "plaza.lock"))
        monkeypatch.setattr(sql_migrations, "LOCK_WAIT_SECONDS", 0.1)
        async with within_time_limit():
            with pytest.raises(Unavailable):
                await Sql.open(sql_settings)


@pytest.mark.parametrize("there", [b"This is no database, and long enough to be looked at.", None])
async def test_an_unusable_file_is_an_error_for_the_operator(tmp_path: Path, there: bytes | None) -> None:
    if there is None:
        (tmp_path / "var").touch()
    else:
        (tmp_path / "var").mkdir()
        (tmp_path / "var" / "plaza.sqlite").write_bytes(there)
    with pytest.raises(OperatorError, match=r"var.* (file is not a database|Not a directory|File exists)\."):
        await Sql.open(Settings(data_dir=tmp_path / "var"))
