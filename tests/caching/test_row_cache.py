"""The row cache: misses load a row once, stale rows are served on failure, and changes are visible at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from plaza.caching.keys import CACHED_PAGE, CACHED_ROW, ROW_DELAYS, ROW_SCHEDULE, ROW_STATE
from plaza.caching.library import BRIEF_SECONDS
from plaza.caching.page_cache import Computation, PageCache
from plaza.caching.page_store import CachedPage
from plaza.caching.row_cache import RowCache
from plaza.caching.row_store import RowData
from plaza.caching.standalone import connect
from plaza.core.clock import ManualClock
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from plaza.core.valkey import REQUEST_USAGE, RequestUsage, Valkey
from tests.caching.conftest import Table
from tests.servers import Cluster, Server
from tests.waiting import eventually


async def test_a_row_deleted_from_the_database_leaves_the_cache(
    rows: RowCache, table: Table, clock: ManualClock, redis_client: Any
) -> None:
    table.put("1")
    await rows.schedule("1", 5)
    await rows.worker.copy_due()
    del table.rows["1"]
    clock.advance(seconds=5)
    await rows.worker.copy_due()
    assert await redis_client.exists(CACHED_ROW("1")) == 0
    assert await redis_client.zcard(ROW_SCHEDULE()) == 0
    assert await rows.get("1") is None


async def test_while_the_database_is_down_the_last_row_is_served_as_stale(
    rows: RowCache, table: Table, clock: ManualClock
) -> None:
    table.put("1", qty=5)
    await rows.schedule("1", 10)
    await rows.worker.copy_due()
    table.dead = True
    table.put("1", qty=4)
    clock.advance(seconds=10)
    await rows.worker.copy_due()
    row = await rows.get("1")
    assert row is not None
    assert (row.data["qty"], row.stale) == (5, False), "a second late is not late"
    clock.advance(seconds=2)
    await rows.worker.copy_due()
    row = await rows.get("1")
    assert row is not None
    assert (row.data["qty"], row.stale) == (5, True)
    table.dead = False
    clock.advance(seconds=2)
    await rows.worker.copy_due()
    row = await rows.get("1")
    assert row is not None
    assert (row.data["qty"], row.stale) == (4, False)


async def test_a_slow_database_delays_no_reader_that_can_get_the_last_row(
    rows: RowCache, table: Table, clock: ManualClock, redis_client: Any
) -> None:
    table.put("1", qty=5)
    assert (await rows.get("1")) is not None
    await redis_client.delete(CACHED_ROW("1"))  # as if its few seconds were over
    table.put("1", qty=4)
    table.gate = asyncio.Event()
    clock.advance(seconds=BRIEF_SECONDS + 1)
    old = await asyncio.gather(*(rows.get("1") for _ in range(50)))
    assert {(row.data["qty"], row.stale) for row in old if row is not None} == {(5, True)}
    table.gate.set()

    async def is_fresh() -> bool:
        row = await rows.get("1")
        return row is not None and not row.stale and row.data["qty"] == 4

    await eventually(is_fresh)
    assert table.queries == 2


async def test_an_unscheduled_row_is_cached_briefly(rows: RowCache, table: Table, redis_client: Any) -> None:
    table.put("1", qty=5)
    await rows.get("1")
    usage = RequestUsage()
    mark = REQUEST_USAGE.set(usage)
    await rows.get("1")
    REQUEST_USAGE.reset(mark)
    assert usage.trips == 1
    assert table.queries == 1
    assert 0 < await redis_client.pttl(CACHED_ROW("1")) <= BRIEF_SECONDS * 1000
    assert await redis_client.zcard(ROW_SCHEDULE()) == 0


async def test_concurrent_misses_in_many_processes_load_a_row_once(
    functions: Functions, table: Table, clock: ManualClock
) -> None:
    table.put("1", qty=5)
    table.gate = asyncio.Event()
    processes = [RowCache(functions, table.load, clock=clock) for _ in range(5)]
    readers = [asyncio.create_task(process.get("1")) for process in processes for _ in range(100)]
    await asyncio.sleep(0.1)
    table.gate.set()
    found = await asyncio.gather(*readers)
    assert {row.data["qty"] for row in found if row is not None} == {5}
    assert None not in found
    assert table.asked == ["1"]


async def test_a_row_just_loaded_by_another_process_is_not_loaded_again(
    rows: RowCache, functions: Functions, table: Table, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.put("1", qty=5)
    call, other = functions.run, RowCache(functions, table.load, clock=clock)

    async def overtaken(command: str, *args: Any) -> Any:
        if command == "caching_claim_row":  # it was missing when we looked …
            monkeypatch.setattr(functions, "run", call)
            await other.get("1")
        return await call(command, *args)

    monkeypatch.setattr(functions, "run", overtaken)
    row = await rows.get("1")
    assert row is not None
    assert (row.data["qty"], table.queries) == (5, 1)


async def test_concurrent_reads_of_many_rows_make_one_query(rows: RowCache, table: Table, valkey: Valkey) -> None:
    for n in range(30):
        table.put(str(n))
    found = await rows.get_many([str(n) for n in range(31)])
    assert [row is not None for row in found] == [True] * 30 + [False]
    assert table.queries <= len(valkey.primaries())


async def test_a_missing_row_is_remembered_briefly_and_a_new_one_is_visible_at_once(
    rows: RowCache, table: Table
) -> None:
    assert await rows.get("1") is None
    assert await rows.get("1") is None
    assert table.queries == 1
    table.put("1", qty=7)
    await rows.put("1", table.rows["1"])
    row = await rows.get("1")
    assert row is not None
    assert row.data["qty"] == 7


async def test_a_read_just_before_a_row_is_created_does_not_hide_it(rows: RowCache, table: Table) -> None:
    table.gate = asyncio.Event()
    looking = asyncio.create_task(rows.get("1"))
    await eventually(lambda: table.queries)
    table.put("1")
    await rows.put("1", table.rows["1"])
    table.gate.set()
    assert await looking is None
    assert await rows.get("1") is not None


async def test_a_row_read_before_a_change_does_not_replace_it(rows: RowCache, table: Table, clock: ManualClock) -> None:
    table.put("1", qty=5)
    await rows.schedule("1", 10)
    await rows.worker.copy_due()
    clock.advance(seconds=10)
    table.gate = asyncio.Event()
    copying = asyncio.create_task(rows.worker.copy_due())  # has read qty 5 …
    await eventually(lambda: table.queries == 2)
    table.put("1", qty=4)
    await rows.put("1", table.rows["1"])  # … when a customer buys one
    table.gate.set()
    await copying
    row = await rows.get("1")
    assert row is not None
    assert row.data["qty"] == 4


async def test_a_row_removed_during_its_copy_stays_removed(
    rows: RowCache, table: Table, clock: ManualClock, redis_client: Any
) -> None:
    table.put("1")
    await rows.schedule("1", 10)
    table.gate = asyncio.Event()
    copying = asyncio.create_task(rows.worker.copy_due())
    await eventually(lambda: table.queries)
    clock.advance(seconds=0.001)
    await rows.schedule("1", 0)
    table.gate.set()
    await copying
    assert await redis_client.exists(CACHED_ROW("1")) == 0
    assert await redis_client.zcard(ROW_SCHEDULE()) == 0


async def test_after_a_failed_load_the_next_reader_tries_at_once(
    rows: RowCache, table: Table, redis_client: Any
) -> None:
    table.put("1")
    table.dead = True
    with pytest.raises(Unavailable):
        await rows.get("1")
    assert await redis_client.hget(ROW_STATE("1"), "busy") is None
    table.dead = False
    assert await rows.get("1") is not None


@pytest.mark.parametrize("id", ["", "x" * 201, "é" * 50])
async def test_an_invalid_row_id_is_rejected(rows: RowCache, id: str) -> None:
    with pytest.raises(ValueError, match="id"):
        await rows.get(id)


@pytest.mark.parametrize(
    ("parse", "ids"),
    [
        (str, ["a:b", "a{b}", "a b", "50%", "%20", "~", "\u00fc", "a\n"]),
        (int, [273, -1]),
        (UUID, [UUID("7d0c2f63-5c0a-4f0e-9d53-1b7a5c3f9e21")]),
    ],
)
async def test_ids_of_any_kind_are_cached_and_copied(
    functions: Functions, redis_client: Any, parse: Any, ids: list[Any]
) -> None:
    async def load(wanted: Sequence[Any]) -> Mapping[Any, RowData]:
        assert all(type(id) is type(ids[0]) for id in wanted)
        return {id: {"name": str(id)} for id in wanted if id in ids}

    rows = RowCache(functions, load, parse_id=parse)
    assert [row and row.data["name"] for row in await rows.get_many(ids)] == [str(id) for id in ids]
    for id in ids:
        await rows.schedule(id, 5)
    if parse is not str:  # another service has scheduled what is no such id
        await redis_client.zadd(ROW_DELAYS(), {"other": 5})
        await redis_client.zadd(ROW_SCHEDULE(), {"other": 0})
    await rows.worker.copy_due()
    for id in ids:
        row = await rows.get(id)
        assert row is not None
        assert (row.data["name"], row.stale) == (str(id), False)
    assert await redis_client.zcard(ROW_DELAYS()) == len(ids) + (parse is not str)


async def test_caches_with_a_prefix_share_nothing_with_others(place: Server | Cluster, redis_client: Any) -> None:
    async def load(ids: Sequence[str]) -> Mapping[str, RowData]:
        return {id: {"name": prefix} for id in ids}

    for prefix in ("", "one:", "two:"):
        async with connect(place.url, prefix) as store:
            rows, pages = RowCache(store, load), PageCache(store)

            async def compute(_: Computation, prefix: str = prefix) -> CachedPage:
                return CachedPage(prefix.encode(), tags=("tag",))

            await rows.schedule("1", 10)
            await rows.worker.copy_due()
            row, served = await rows.get("1"), await pages.serve("page", compute)
            assert row is not None
            assert served is not None
            assert (row.data["name"], served.page.body) == (prefix, prefix.encode())
            names = {name async for name in redis_client.scan_iter(f"{prefix}*")}
            for key in (CACHED_ROW("1"), ROW_STATE("1"), ROW_DELAYS(), ROW_SCHEDULE(), CACHED_PAGE("page")):
                assert prefix + key in names
            if prefix == "two:":
                await pages.purge("tag")
            await pages.close()
    assert await redis_client.get("one:" + CACHED_PAGE("page")) == "one:"
    assert await redis_client.get("two:" + CACHED_PAGE("page")) is None
    with pytest.raises(ValueError, match="prefix"):
        async with connect(place.url, "a'b"):
            pass


async def test_a_locally_cached_row_costs_no_round_trip_and_is_dropped_when_it_changes(
    functions: Functions, rows: RowCache, table: Table, clock: ManualClock, place: Server | Cluster
) -> None:
    table.put("1", qty=5)
    await rows.get("1")
    await rows.get("1")
    usage = RequestUsage()
    mark = REQUEST_USAGE.set(usage)
    found = await asyncio.gather(*(rows.get("1") for _ in range(20)))
    REQUEST_USAGE.reset(mark)
    assert usage.trips == 0
    assert {row.data["qty"] for row in found if row is not None} == {5}
    for qty in (4, 3, 2):
        table.put("1", qty=qty)
        await rows.put("1", table.rows["1"])  # our own change is seen at once
        row = await rows.get("1")
        assert row is not None
        assert row.data["qty"] == qty
        await rows.get("1")
    table.put("1", qty=1)
    async with connect(place.url) as elsewhere:
        await RowCache(elsewhere, table.load, clock=clock).put("1", table.rows["1"])

        async def seen() -> bool:
            row = await rows.get("1")
            return row is not None and row.data["qty"] == 1

        await eventually(seen)
    clock.advance(seconds=BRIEF_SECONDS + 1)
    before = table.queries
    await rows.get("1")
    assert table.queries == before + 1, "a local copy is not served after its time"
