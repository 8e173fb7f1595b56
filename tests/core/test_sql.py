"""SQL, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import (
    exc,
    select,
    text,
    update,
)

from plaza.core import postgres as postgres_module
from plaza.core import sql as sql_module
from plaza.core.errors import Invalid, SettingError, Unavailable
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.sqlite import SqliteConnections
from tests.core.sample_migrations import CHILDREN, PARENTS, fetch_amount, sample_folders
from tests.postgres import Postgres
from tests.processes import run_program
from tests.servers import free_port
from tests.timeouts import within_time_limit
from tests.waiting import eventually


@pytest.fixture
def sql_settings(empty_sql_settings: Settings) -> Settings:
    return empty_sql_settings


async def test_a_transaction_is_atomic(sample_sql: Sql) -> None:
    async with sample_sql.begin() as tx:
        await tx.execute(CHILDREN.insert().values(parent=1, name="c1"))
        await tx.execute(update(PARENTS).values(amount=4))

    async def fail_half_way() -> None:
        async with sample_sql.begin() as tx:
            await tx.execute(CHILDREN.insert().values(parent=1, name="c2"))
            await tx.execute(update(PARENTS).values(amount=3))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_half_way()
    async with sample_sql.read() as tx:
        assert (await tx.execute(select(CHILDREN.c.name))).scalars().all() == ["c1"]
    assert await fetch_amount(sample_sql) == 4


async def test_a_hundred_concurrent_writers_queue_and_none_fails(sample_sql: Sql) -> None:
    async def take_and_give_back() -> None:
        async with sample_sql.begin() as tx:
            await tx.execute(update(PARENTS).values(amount=PARENTS.c.amount - 1))
            await asyncio.sleep(0)  # others run here
            await tx.execute(update(PARENTS).values(amount=PARENTS.c.amount + 2))

    await asyncio.gather(*(take_and_give_back() for _ in range(100)))
    assert await fetch_amount(sample_sql) == 105


async def test_writers_of_other_processes_queue_too(sample_sql: Sql, sql_settings: Settings) -> None:
    program = f"""
        import asyncio
        from pathlib import Path
        from sqlalchemy import text
        from plaza.core.settings import Settings
        from plaza.core.sql import Sql

        async def main():
            sql = await Sql.open(
                Settings(data_dir=Path({str(sql_settings.data_dir)!r}), database_url={sql_settings.database_url!r}),
                [],
            )
            for _ in range(50):
                async with sql.begin() as tx:
                    # A read, then a write: this fails at once in SQLite if the transaction began as a reader.
                    have = (await tx.execute(text("SELECT amount FROM parents FOR UPDATE" if sql.dialect == "postgresql"
                                                  else "SELECT amount FROM parents"))).scalar_one()
                    await tx.execute(text("UPDATE parents SET amount = :n"), {{"n": have + 1}})
            await sql.close()

        asyncio.run(main())
    """
    await asyncio.gather(*(run_program(program) for _ in range(2)))
    assert await fetch_amount(sample_sql) == 105


async def test_a_reader_never_waits_for_a_writer_and_sees_one_snapshot(sample_sql: Sql) -> None:
    async with sample_sql.begin() as writer:
        await writer.execute(update(PARENTS).values(amount=1))
        async with sample_sql.read() as reader:
            assert (await reader.execute(select(PARENTS.c.amount))).scalar_one() == 5
            await writer.commit()
            assert (await reader.execute(select(PARENTS.c.amount))).scalar_one() == 5
    assert await fetch_amount(sample_sql) == 1


async def test_a_read_cannot_write(sample_sql: Sql) -> None:
    with pytest.raises(exc.DBAPIError, match=r"(?i)read-?only"):
        async with sample_sql.read() as tx:
            await tx.execute(update(PARENTS).values(amount=0))
    assert await fetch_amount(sample_sql) == 5


async def test_constraint_errors_are_not_converted(sample_sql: Sql) -> None:
    for statement in (
        CHILDREN.insert().values(parent=99, name="no such parent"),
        PARENTS.insert().values(name="p1", amount=1),
        update(PARENTS).values(amount=-1),
    ):
        with pytest.raises(exc.IntegrityError):
            async with sample_sql.begin() as tx:
                await tx.execute(statement)


async def test_an_insert_can_update_an_existing_row(sample_sql: Sql) -> None:
    insert = sample_sql.insert(PARENTS).values(id=1, name="p1", amount=9)
    async with sample_sql.begin() as tx:
        await tx.execute(insert.on_conflict_do_update(index_elements=["id"], set_={"amount": insert.excluded.amount}))
    assert await fetch_amount(sample_sql) == 9


async def test_a_cancelled_writer_is_rolled_back_and_unblocks_the_next(sample_sql: Sql) -> None:
    inside = asyncio.Event()

    async def stall() -> None:
        async with sample_sql.begin() as tx:
            await tx.execute(update(PARENTS).values(amount=0))
            inside.set()
            await asyncio.sleep(60)

    writer = asyncio.create_task(stall())
    await inside.wait()
    writer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writer
    async with within_time_limit(), sample_sql.begin() as tx:
        await tx.execute(update(PARENTS).values(amount=PARENTS.c.amount + 1))
    assert await fetch_amount(sample_sql) == 6


async def test_cancelling_writers_never_blocks_the_database(sample_sql: Sql) -> None:
    async def write() -> None:
        async with sample_sql.begin() as tx:
            await tx.execute(update(PARENTS).values(amount=PARENTS.c.amount + 1))

    for round_ in range(30):
        writers = [asyncio.create_task(write()) for _ in range(5)]
        for _ in range(round_):
            await asyncio.sleep(0)
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
    async with within_time_limit():
        before = await fetch_amount(sample_sql)
        await write()
    assert await fetch_amount(sample_sql) == before + 1


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_the_statement_of_a_cancelled_caller_ends_with_its_thread(
    tmp_path: Path, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    before, tasks = set(threading.enumerate()), asyncio.all_tasks()
    sql = await Sql.open(Settings(data_dir=tmp_path))

    async def count_without_end() -> None:
        async with sql.read() as tx:
            await tx.execute(
                text("WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i FROM n) SELECT count(*) FROM n")
            )

    reader = asyncio.create_task(count_without_end())
    await asyncio.sleep(0.05)
    for _ in range(times):  # the second cancellation interrupts the clean-up of the first
        reader.cancel()
        await asyncio.sleep(0)
    async with within_time_limit():
        await asyncio.gather(reader, return_exceptions=True)
        await sql.close()
        await eventually(lambda: set(threading.enumerate()) <= before)
        await eventually(lambda: asyncio.all_tasks() <= tasks)  # the clean-up has ended too
    assert not [record for record in caplog.records if record.name.startswith("sqlalchemy")]


async def test_closing_waits_for_a_thread_that_cannot_be_interrupted(tmp_path: Path) -> None:
    connections, begun, ended = SqliteConnections(tmp_path / "file.sqlite"), threading.Event(), threading.Event()

    def nap() -> None:
        begun.set()
        time.sleep(0.3)
        ended.set()

    connection = await connections.open()
    await connection.create_function("nap", 0, nap)
    asking = asyncio.ensure_future(connection.execute_fetchall("SELECT nap()"))
    await eventually(begun.is_set)
    asking.cancel()
    connection.stop()
    await connections.wait_closed()
    assert ended.is_set()


async def test_ping_answers(sample_sql: Sql) -> None:
    await sample_sql.ping()


async def test_sqlite_is_configured_for_durable_commits(tmp_path: Path) -> None:
    sql = await Sql.open(Settings(data_dir=tmp_path))
    async with sql.begin() as tx:
        asked = [(await tx.execute(text(f"PRAGMA {name}"))).scalar() for name in ("journal_mode", "synchronous")]
        references = (await tx.execute(text("PRAGMA foreign_keys"))).scalar()
    await sql.close()
    assert (asked, references) == (["wal", 2], 1)


async def test_closing_merges_the_write_ahead_log(tmp_path: Path) -> None:
    sql = await Sql.open(Settings(data_dir=tmp_path))
    async with sql.begin() as tx:
        await tx.execute(text("CREATE TABLE kept (id INTEGER)"))
    await sql.ping()
    await sql.close()
    assert not [name for name in os.listdir(tmp_path) if name.startswith("plaza.sqlite-")]
    with contextlib.closing(sqlite3.connect(f"file:{tmp_path}/plaza.sqlite?immutable=1", uri=True)) as database:
        assert database.execute("SELECT name FROM sqlite_master WHERE name = 'kept'").fetchall() == [("kept",)]


async def test_a_locked_sqlite_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_module, "BUSY_WAIT_MS", 50)
    mine, theirs = await Sql.open(Settings(data_dir=tmp_path)), await Sql.open(Settings(data_dir=tmp_path))
    async with theirs.begin():
        with pytest.raises(Unavailable):
            async with mine.begin():
                raise AssertionError("two wrote at once")
    async with mine.begin():
        pass
    await mine.close()
    await theirs.close()


async def test_a_full_pool_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_module, "POOL_WAIT_SECONDS", 0.05)
    sql = await Sql.open(Settings(data_dir=tmp_path))
    async with sql.begin():
        with pytest.raises(Unavailable):
            async with sql.begin():
                raise AssertionError("two wrote at once")
    await sql.close()


async def test_a_lost_connection_is_unavailable_and_the_next_call_recovers(postgres: Postgres, tmp_path: Path) -> None:
    async with postgres.database() as url:
        sql = await Sql.open(Settings(data_dir=tmp_path, database_url=url))
        end_all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'plaza'"

        async def lose_it_half_way() -> None:
            async with sql.begin() as tx:
                await postgres.run(end_all)
                await tx.execute(text("SELECT 1"))

        with pytest.raises(Unavailable) as caught:
            await lose_it_half_way()
        assert caught.value.status == 503
        await sql.ping()
        await postgres.run(end_all)  # idle in the pool this time, so no caller notices
        await sql.ping()
        await sql.close()


async def test_a_deadlock_is_unavailable_so_that_the_caller_tries_again(postgres: Postgres, tmp_path: Path) -> None:
    async with postgres.database() as url:
        sql = await Sql.open(Settings(data_dir=tmp_path, database_url=url), sample_folders())
        async with sql.begin() as tx:
            await tx.execute(PARENTS.insert().values([{"id": i, "name": str(i), "amount": 0} for i in (1, 2)]))
        both = asyncio.Barrier(2)

        async def lock(first: int, second: int) -> None:
            async with sql.begin() as tx:
                await tx.execute(select(PARENTS).where(PARENTS.c.id == first).with_for_update())
                await both.wait()
                await tx.execute(select(PARENTS).where(PARENTS.c.id == second).with_for_update())

        ends = await asyncio.gather(lock(1, 2), lock(2, 1), return_exceptions=True)
        assert sorted(type(end).__name__ for end in ends) == ["NoneType", "Unavailable"]
        await sql.close()


async def test_a_text_with_a_nul_is_invalid(postgres: Postgres, tmp_path: Path) -> None:
    async with postgres.database() as url:
        sql = await Sql.open(Settings(data_dir=tmp_path, database_url=url), sample_folders())
        with pytest.raises(Invalid, match=r"U\+0000"):
            await sql.fetch_all(select(PARENTS).where(PARENTS.c.name == "a\0b"))
        assert await sql.fetch_all(select(PARENTS)) == []
        await sql.close()


async def test_a_slow_statement_is_cancelled_by_the_server(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_module, "STATEMENT_SECONDS", 0.5)
    async with postgres.database() as url:
        sql = await Sql.open(Settings(data_dir=tmp_path, database_url=url))
        with pytest.raises(Unavailable):
            await sleep_in(sql, 60)
        await sql.ping()
        await sql.close()


async def test_a_silent_server_times_out(postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_module, "STATEMENT_SECONDS", 1)
    monkeypatch.setattr(postgres_module, "SILENCE_SECONDS", 1)
    async with postgres.database() as url:
        sql = await Sql.open(Settings(data_dir=tmp_path, database_url=url))
        async with sql.read() as tx:
            backend = (await tx.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        os.kill(backend, signal.SIGSTOP)
        try:
            async with within_time_limit():
                with pytest.raises(Unavailable):
                    await sleep_in(sql, 0)
                await sleep_in(sql, 0)  # on another connection
                await sql.ping()
        finally:
            os.kill(backend, signal.SIGCONT)
        await sql.close()


async def sleep_in(sql: Sql, seconds: float) -> None:
    async with sql.begin() as tx:
        await tx.execute(text("SELECT pg_sleep(:s)"), {"s": seconds})


async def test_an_unreachable_database_is_unavailable_without_its_password(tmp_path: Path) -> None:
    url = f"postgresql://plaza:hunter2@127.0.0.1:{free_port()}/plaza"
    with pytest.raises(Unavailable, match=r"PostgreSQL at 127\.0\.0\.1:\d+/plaza cannot be used now") as caught:
        await Sql.open(Settings(data_dir=tmp_path, database_url=url))
    assert "hunter2" not in full_text(caught.value)


async def test_the_operator_sees_the_error_of_postgresql(postgres: Postgres, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match='database "missing" does not exist'):
        await Sql.open(Settings(data_dir=tmp_path, database_url=postgres.url("missing")))


async def test_one_reachable_host_of_several_is_used(postgres: Postgres, tmp_path: Path) -> None:
    async with postgres.database() as url:
        several = url.replace("host=", "host=/nowhere,") + "&port=5432,5432"
        sql = await Sql.open(Settings(data_dir=tmp_path, database_url=several))
        await sql.ping()
        await sql.close()


async def test_only_the_owner_can_read_the_sqlite_file(tmp_path: Path) -> None:
    sql = await Sql.open(Settings(data_dir=tmp_path))
    async with sql.begin() as tx:
        await tx.execute(text("INSERT INTO fences (lease, token) VALUES ('a', 1)"))
    modes = open_to_others(tmp_path)
    await sql.close()
    assert set(modes) >= {"plaza.sqlite", "plaza.sqlite-wal"}
    assert set(modes.values()) == {0}


@pytest.mark.parametrize(
    "url",
    [
        "mysql://plaza:hunter2@somewhere/plaza",
        "postgresql://plaza:hunter2@somewhere:port/plaza",
        "postgresql://plaza:hunter2@127.0.0.1:99999/plaza",
        "plaza:hunter2@somewhere",
        "postgresql://plaza:hunter2@127.0.0.1/plaza?sslmode=hunter2",
    ],
)
async def test_the_error_of_a_wrong_database_url_does_not_contain_it(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingError, match="PLAZA_DATABASE_URL") as caught:
        await Sql.open(Settings(data_dir=tmp_path, database_url=url))
    assert "hunter2" not in full_text(caught.value)


async def test_parameters_are_not_in_the_error_of_a_statement(sample_sql: Sql) -> None:
    with pytest.raises(exc.IntegrityError) as caught:
        async with sample_sql.begin() as tx:
            await tx.execute(CHILDREN.insert().values(parent=99, name="hunter2"))
    assert "hunter2" not in str(caught.value)


def open_to_others(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o077 for file in folder.iterdir()}


def full_text(error: BaseException | None) -> str:
    """Return an error with its causes, as a log shows it."""
    messages = ""
    while error is not None:
        messages += f"{error!r} {error} "
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return messages
