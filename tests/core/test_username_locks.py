"""A row of a username that is being renamed or deleted is committed before its rows move, or never."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from plaza.core.clock import ManualClock
from plaza.core.errors import Unauthenticated
from plaza.core.revocations import Revocations
from plaza.core.sql import Sql
from plaza.core.username_locks import lock_username, wait_for_username_locks
from plaza.core.valkey import Valkey

in_pairs = pytest.mark.parametrize(
    ("place", "sql_settings"), [("server", "postgresql"), ("cluster", "sqlite")], indirect=True
)


@pytest.fixture
async def notes(sql: Sql) -> Sql:
    async with sql.begin() as tx:
        await tx.execute(text("CREATE TABLE notes (author TEXT NOT NULL)"))
    return sql


async def authors(sql: Sql) -> list[str]:
    return [row.author for row in await sql.fetch_all(text("SELECT author FROM notes"))]


@in_pairs
async def test_renaming_waits_for_a_row_in_progress_and_moves_it(
    notes: Sql, valkey: Valkey, clock: ManualClock
) -> None:
    since, written, go_on = clock.now_ms(), asyncio.Event(), asyncio.Event()
    clock.advance(seconds=1)

    async def write() -> None:
        async with notes.begin() as tx:
            await lock_username(tx, valkey, "ana", since)
            await tx.execute(text("INSERT INTO notes VALUES ('ana')"))
            written.set()
            await go_on.wait()

    async def rename() -> None:
        await Revocations(valkey, clock=clock).revoke("ana")
        await wait_for_username_locks(notes, "ana")
        async with notes.begin() as tx:
            await tx.execute(text("UPDATE notes SET author = 'anna' WHERE author = 'ana'"))

    writing = asyncio.create_task(write())
    await written.wait()
    renaming = asyncio.create_task(rename())
    # Enough time for code that does not wait. Code that waits is never done here, on any machine.
    done, _ = await asyncio.wait({renaming}, timeout=0.2)
    go_on.set()
    await asyncio.gather(writing, renaming)
    assert not done
    assert await authors(notes) == ["anna"]


@in_pairs
async def test_a_later_writer_is_rejected_and_the_next_owner_of_the_name_is_not(
    notes: Sql, valkey: Valkey, clock: ManualClock
) -> None:
    since = clock.now_ms()
    clock.advance(seconds=1)
    cut_off = await Revocations(valkey, clock=clock).revoke("ana")
    await wait_for_username_locks(notes, "ana")

    async def write(since: int | None) -> None:
        async with notes.begin() as tx:
            await lock_username(tx, valkey, "ana", since)
            await tx.execute(text("INSERT INTO notes VALUES ('ana')"))

    for void in (since, cut_off):
        with pytest.raises(Unauthenticated):
            await write(void)
    assert await authors(notes) == []
    await write(cut_off + 1)
    await write(None)
    assert await authors(notes) == ["ana", "ana"]
