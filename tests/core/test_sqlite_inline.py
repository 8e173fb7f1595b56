"""Short reads, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import bindparam, exc, select, text, update

from plaza.core.settings import Settings
from plaza.core.sql import Sql
from tests.core.sample_migrations import PARENTS, sample_folders
from tests.core.test_telemetry import number

AMOUNT = select(PARENTS.c.amount).where(PARENTS.c.id == bindparam("parent"))

# More than a million steps: about 100 ms.
LONG = text(
    "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 200000) "
    "SELECT count(*) FROM counted"
)


async def test_a_short_read_sees_only_committed_rows(sample_sql: Sql) -> None:
    assert await sample_sql.fetch_all(AMOUNT, parent=1) == [(5,)]
    assert await sample_sql.fetch_all(AMOUNT, parent=2) == []
    async with sample_sql.begin() as tx:
        await tx.execute(update(PARENTS).values(amount=4))
        assert await sample_sql.fetch_all(AMOUNT, parent=1) == [(5,)]
    assert await sample_sql.fetch_all(AMOUNT, parent=1) == [(4,)]


async def test_short_reads_do_not_disturb_other_transactions(sample_sql: Sql) -> None:
    async def take() -> None:
        async with sample_sql.begin() as tx:
            await tx.execute(update(PARENTS).values(amount=PARENTS.c.amount + 1))

    async def read_free() -> int:
        return int((await sample_sql.fetch_all(AMOUNT, parent=1))[0].amount)

    took = [asyncio.create_task(take()) for _ in range(20)]
    seen = await asyncio.gather(*(read_free() for _ in range(200)))
    await asyncio.gather(*took)
    assert set(seen) <= set(range(5, 26))
    assert await read_free() == 25


async def test_a_short_read_on_sqlite_runs_without_a_thread(tmp_path: Path) -> None:
    sql = await Sql.open(Settings(data_dir=tmp_path), sample_folders())
    reading = sql.fetch_all(select(PARENTS.c.id))
    with pytest.raises(StopIteration) as done:
        reading.send(None)  # it ends without waiting
    assert done.value.value == []
    await sql.close()


async def test_a_long_read_succeeds_and_blocks_no_one(sample_sql: Sql) -> None:
    done = number("plaza_sql_transactions_total", kind="look", result="done")
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    meanwhile = asyncio.create_task(others())
    await asyncio.sleep(0)
    assert (await sample_sql.fetch_all(LONG))[0][0] == 200_000
    meanwhile.cancel()
    assert turns > 10
    assert number("plaza_sql_transactions_total", kind="look", result="done") == done + 1
    assert await sample_sql.fetch_all(AMOUNT, parent=1) == [(5,)], "and the next one is a short one again"


async def test_a_short_read_on_sqlite_cannot_write(tmp_path: Path) -> None:
    sql = await Sql.open(Settings(data_dir=tmp_path), sample_folders())
    with pytest.raises(exc.DBAPIError, match=r"(?i)read-?only"):
        await sql.fetch_all(update(PARENTS).values(amount=0).returning(PARENTS.c.amount))
    await sql.close()


async def test_parameters_are_not_in_the_error_of_a_short_read(sample_sql: Sql) -> None:
    with pytest.raises(exc.DBAPIError) as caught:
        await sample_sql.fetch_all(text("SELECT amount FROM nowhere WHERE name = :name"), name="hunter2")
    assert "hunter2" not in str(caught.value)
