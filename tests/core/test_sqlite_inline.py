"""Short reads, each promise on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import bindparam, exc, select, text, update

from plaza.core.settings import Settings
from plaza.core.sql import Sql
from tests.core.sample_migrations import BEDS, with_garden
from tests.core.test_telemetry import number

FREE = select(BEDS.c.free).where(BEDS.c.id == bindparam("bed"))

# A million steps and more: some 100 ms.
LONG = text(
    "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 200000) "
    "SELECT count(*) FROM counted"
)


async def test_a_look_finds_what_was_committed_and_nothing_else(garden: Sql) -> None:
    assert await garden.fetch_all(FREE, bed=1) == [(5,)]
    assert await garden.fetch_all(FREE, bed=2) == []
    async with garden.begin() as tx:
        await tx.execute(update(BEDS).values(free=4))
        assert await garden.fetch_all(FREE, bed=1) == [(5,)]
    assert await garden.fetch_all(FREE, bed=1) == [(4,)]


async def test_looks_do_not_disturb_each_other_or_anybody_else(garden: Sql) -> None:
    async def take() -> None:
        async with garden.begin() as tx:
            await tx.execute(update(BEDS).values(free=BEDS.c.free + 1))

    async def look() -> int:
        return int((await garden.fetch_all(FREE, bed=1))[0].free)

    took = [asyncio.create_task(take()) for _ in range(20)]
    seen = await asyncio.gather(*(look() for _ in range(200)))
    await asyncio.gather(*took)
    assert set(seen) <= set(range(5, 26))
    assert await look() == 25


async def test_a_look_on_sqlite_needs_no_thread_and_no_turn_of_the_loop(tmp_path: Path) -> None:
    sql = await Sql.open(Settings(data_dir=tmp_path), with_garden())
    looking = sql.fetch_all(select(BEDS.c.id))
    with pytest.raises(StopIteration) as done:
        looking.send(None)  # it ends without having waited for anything
    assert done.value.value == []
    await sql.close()


async def test_what_turns_out_to_be_long_is_read_all_the_same_and_holds_up_nobody(garden: Sql) -> None:
    done = number("plaza_sql_transactions_total", kind="look", result="done")
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    meanwhile = asyncio.create_task(others())
    await asyncio.sleep(0)
    assert (await garden.fetch_all(LONG))[0][0] == 200_000
    meanwhile.cancel()
    assert turns > 10
    assert number("plaza_sql_transactions_total", kind="look", result="done") == done + 1
    assert await garden.fetch_all(FREE, bed=1) == [(5,)], "and the next one is a short one again"


async def test_a_look_on_sqlite_cannot_write(tmp_path: Path) -> None:
    sql = await Sql.open(Settings(data_dir=tmp_path), with_garden())
    with pytest.raises(exc.DBAPIError, match=r"(?i)read-?only"):
        await sql.fetch_all(update(BEDS).values(free=0).returning(BEDS.c.free))
    await sql.close()


async def test_what_a_look_was_given_is_not_in_its_error(garden: Sql) -> None:
    with pytest.raises(exc.DBAPIError) as caught:
        await garden.fetch_all(text("SELECT free FROM nowhere WHERE name = :name"), name="hunter2")
    assert "hunter2" not in str(caught.value)
