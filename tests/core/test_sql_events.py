"""Events of SQL transactions: every committed one is in its stream once, those of one row in the order of commits."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import msgspec
import pytest
from sqlalchemy import func, select, text

from plaza.core import sql_events
from plaza.core.event_streams import stream_of
from plaza.core.events import EVENTS, EventData
from plaza.core.functions import Functions
from plaza.core.outbox import UpdateTooLate
from plaza.core.sequences import pairs_to_dict
from plaza.core.sql import Sql
from plaza.core.sql_events import EVENT_OUTBOX, SqlEventRelay, add_events
from plaza.core.valkey import Valkey
from tests.event_reader import read_events
from tests.servers import Server
from tests.timeouts import connect_for_test
from tests.waiting import eventually


class Counted(EventData):
    type: ClassVar[str] = "counter.counted"
    subject: ClassVar[str] = "counter"
    counter: str
    n: int


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    functions = Functions(valkey, [EVENTS])
    await functions.load()
    return functions


@pytest.fixture
async def on_server(server: Server) -> AsyncIterator[Functions]:
    valkey = await connect_for_test(server.url)
    functions = Functions(valkey, [EVENTS])
    await functions.load()
    yield functions
    await valkey.close()


@contextlib.asynccontextmanager
async def relaying(functions: Functions, sql: Sql) -> AsyncIterator[SqlEventRelay]:
    relay = SqlEventRelay(functions, sql)
    relay.start()
    yield relay
    await relay.close()


async def create_counters(sql: Sql, names: str) -> None:
    async with sql.begin() as tx:
        await tx.execute(text("CREATE TABLE counters (name VARCHAR(10) PRIMARY KEY, n INTEGER NOT NULL)"))
        for name in names:
            await tx.execute(text("INSERT INTO counters VALUES (:name, 0)"), {"name": name})


async def count(sql: Sql, name: str, *, fails: bool = False) -> None:
    """Count one more, with an event in the same transaction."""
    async with sql.begin() as tx:
        statement = text("UPDATE counters SET n = n + 1 WHERE name = :name RETURNING n")
        n = (await tx.execute(statement, {"name": name})).scalar_one()
        await add_events(tx, "things", [Counted(name, n)], 1_000)
        if fails:
            raise ZeroDivisionError


async def rows_left(sql: Sql) -> int:
    return int((await sql.fetch_all(select(func.count()).select_from(EVENT_OUTBOX)))[0][0])


async def numbers(functions: Functions) -> list[tuple[str, int]]:
    """Return counter and number of each event, in the order of the stream."""
    entries = await functions.valkey.call("XRANGE", stream_of("things", "a").key, "-", "+")
    data = [msgspec.json.decode(pairs_to_dict(words)["data"]) for _, words in entries]
    return [(each["counter"], each["n"]) for each in data]


async def test_a_committed_event_is_relayed_at_once_and_one_that_is_rolled_back_never(
    functions: Functions, sql: Sql, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_events, "SWEEP_SECONDS", 60.0)
    monkeypatch.setattr(sql_events, "DELETE_SECONDS", 0.05)
    await create_counters(sql, "a")
    async with relaying(functions, sql):
        with pytest.raises(ZeroDivisionError):
            await count(sql, "a", fails=True)
        await count(sql, "a")
        (event,) = await eventually(lambda: read_events(redis_client, "things"))
        await eventually(lambda: _is_empty(sql))
    assert (event.type, event.subject, event.data) == ("counter.counted", "a", {"counter": "a", "n": 1})
    assert event.time == 1_000
    assert event.id.startswith("things-")


async def _is_empty(sql: Sql) -> bool:
    return await rows_left(sql) == 0


async def test_events_of_one_row_are_in_the_order_of_commits_however_many_processes_relay(
    on_server: Functions, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_events, "DELETE_SECONDS", 0.02)
    await create_counters(sql, "abc")
    chance = random.Random(7)
    async with relaying(on_server, sql), relaying(on_server, sql), relaying(on_server, sql):
        await asyncio.gather(*(count(sql, chance.choice("abc")) for _ in range(150)))
    counted = await numbers(on_server)
    assert len(counted) == 150
    for row in await sql.fetch_all(text("SELECT name, n FROM counters")):
        assert [n for name, n in counted if name == row.name] == list(range(1, row.n + 1))
    assert await rows_left(sql) == 0


async def test_rows_of_a_dead_process_are_relayed_by_another_one_without_duplicates(
    functions: Functions, sql: Sql, redis_client: Any
) -> None:
    """It died after the commit, or after appending and before deleting."""
    await create_counters(sql, "ab")
    await count(sql, "a")
    died = SqlEventRelay(functions, sql)
    assert await died.relay_all() == 1
    await count(sql, "b")
    assert await rows_left(sql) == 2
    async with relaying(functions, sql):
        pass
    events = await read_events(redis_client, "things")
    assert sorted(event.subject for event in events) == ["a", "b"]
    assert await rows_left(sql) == 0


async def test_a_relay_that_stalls_between_reading_and_appending_changes_nothing(
    on_server: Functions, sql: Sql
) -> None:
    await create_counters(sql, "a")
    await count(sql, "a")
    rows = list(await sql.fetch_all(sql_events._OLDEST))
    stalled, stream = SqlEventRelay(on_server, sql), stream_of("things", "a")
    await count(sql, "a")
    await SqlEventRelay(on_server, sql).close()
    before = await on_server.valkey.call("XRANGE", stream.key, "-", "+")
    await stalled._append(stream, str(10**15), rows)
    with pytest.raises(UpdateTooLate):
        await stalled._append(stream, "1000", rows)
    assert await on_server.valkey.call("XRANGE", stream.key, "-", "+") == before
    assert len(before) == 2


async def test_more_rows_than_a_batch_are_relayed_in_order(on_server: Functions, sql: Sql) -> None:
    await create_counters(sql, "a")
    async with sql.begin() as tx:
        await add_events(tx, "things", [Counted("a", n) for n in range(1_100)], 1)
    await SqlEventRelay(on_server, sql).close()
    assert await numbers(on_server) == [("a", n) for n in range(1_100)]
    assert await rows_left(sql) == 0
