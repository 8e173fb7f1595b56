"""Scheduled rows: one worker copies each due row, by the documented keys."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from plaza.caching.keys import CACHED_ROW, ROW_DELAYS, ROW_SCHEDULE, ROW_STATE
from plaza.caching.library import BRIEF_SECONDS
from plaza.caching.row_cache import RowCache
from plaza.caching.row_store import DUE_LEASE_SECONDS, LOAD_LEASE_MS
from plaza.core.clock import ManualClock
from plaza.core.due_times import make_all_due
from plaza.core.functions import Functions
from plaza.core.paging import Page
from plaza.core.valkey import Valkey
from tests.caching.conftest import Table
from tests.shop.conftest import CreateItem, Shop
from tests.waiting import eventually


async def test_a_scheduled_row_is_copied_when_due_and_has_the_documented_keys(
    rows: RowCache, table: Table, clock: ManualClock, redis_client: Any
) -> None:
    table.put("273", name="GTab 7inch", qty=629)
    await rows.schedule("273", 10)
    assert await redis_client.zscore(ROW_DELAYS(), "273") == 10.0
    assert await redis_client.zscore(ROW_SCHEDULE(), "273") == clock.now_s()
    await rows.worker.copy_due()
    assert json.loads(await redis_client.get(CACHED_ROW("273")))["qty"] == 629
    assert await redis_client.zscore(ROW_SCHEDULE(), "273") == clock.now_s() + 10
    table.put("273", name="GTab 7inch", qty=628)
    clock.advance(seconds=9)
    await rows.worker.copy_due()
    assert json.loads(await redis_client.get(CACHED_ROW("273")))["qty"] == 629
    clock.advance(seconds=1)
    await rows.worker.copy_due()
    assert json.loads(await redis_client.get(CACHED_ROW("273")))["qty"] == 628
    assert await redis_client.pttl(CACHED_ROW("273")) == -1
    assert table.queries == 2


@pytest.mark.parametrize("how", ["by us", "by a plain Redis client"])
async def test_a_delay_of_zero_or_less_removes_a_row(
    rows: RowCache, table: Table, clock: ManualClock, redis_client: Any, how: str
) -> None:
    table.put("1")
    await rows.schedule("1", 5)
    await rows.worker.copy_due()
    if how == "by us":
        await rows.schedule("1", -1)
    else:
        await redis_client.zadd(ROW_DELAYS(), {"1": 0})
        clock.advance(seconds=5)
        await rows.worker.copy_due()
    assert await redis_client.exists(CACHED_ROW("1")) == 0
    assert await redis_client.zscore(ROW_DELAYS(), "1") is None
    assert await redis_client.zscore(ROW_SCHEDULE(), "1") is None


async def test_rows_are_copied_after_the_clock_was_set_back(
    rows: RowCache, table: Table, clock: ManualClock, redis_client: Any, valkey: Valkey
) -> None:
    table.put("1", qty=1)
    await rows.schedule("1", 10)
    await rows.worker.copy_due()
    clock.advance(seconds=-3600)
    table.put("1", qty=2)
    await make_all_due(valkey, ROW_SCHEDULE(), clock.now_s())
    await rows.worker.copy_due()
    assert json.loads(await redis_client.get(CACHED_ROW("1")))["qty"] == 2


async def test_another_service_can_schedule_a_row_by_the_documented_keys(
    rows: RowCache, table: Table, redis_client: Any
) -> None:
    table.put("9", qty=4)
    await redis_client.zadd(ROW_DELAYS(), {"9": 2.5})
    await redis_client.zadd(ROW_SCHEDULE(), {"9": 0})
    await rows.worker.copy_due()
    assert json.loads(await redis_client.get(CACHED_ROW("9")))["qty"] == 4


async def test_a_row_unscheduled_by_another_service_is_cached_briefly_again(
    rows: RowCache, table: Table, clock: ManualClock, redis_client: Any
) -> None:
    table.put("1", qty=5)
    await rows.schedule("1", 10)
    await rows.worker.copy_due()
    assert await redis_client.pttl(CACHED_ROW("1")) == -1
    await redis_client.zrem(ROW_DELAYS(), "1")
    await redis_client.zrem(ROW_SCHEDULE(), "1")
    await redis_client.delete(CACHED_ROW("1"))
    assert (await rows.get("1")) is not None
    assert 0 < await redis_client.pttl(CACHED_ROW("1")) <= BRIEF_SECONDS * 1000
    await rows.put("1", {**table.rows["1"], "version": 9})
    assert 0 < await redis_client.pttl(CACHED_ROW("1")) <= BRIEF_SECONDS * 1000
    assert await redis_client.hget(ROW_STATE("1"), "delay") is None


async def test_a_row_that_another_service_only_removed_from_the_schedule_does_not_stay_stale(
    rows: RowCache, table: Table, clock: ManualClock, redis_client: Any
) -> None:
    table.put("1", qty=5)
    await rows.schedule("1", 10)
    await rows.worker.copy_due()
    await redis_client.zrem(ROW_DELAYS(), "1")
    await redis_client.zrem(ROW_SCHEDULE(), "1")
    table.put("1", qty=4)
    clock.advance(seconds=20)
    await rows.worker.copy_due()
    row = await rows.get("1")
    assert row is not None
    assert (row.data["qty"], row.stale) == (4, False)
    assert 0 < await redis_client.pttl(CACHED_ROW("1")) <= BRIEF_SECONDS * 1000


async def test_an_invalid_id_in_the_schedule_is_kept_and_delays_no_row(
    rows: RowCache, table: Table, redis_client: Any
) -> None:
    table.put("9")
    for id in ("no id", "{9}", "x" * 201, "9"):
        await redis_client.zadd(ROW_DELAYS(), {id: 5})
        await redis_client.zadd(ROW_SCHEDULE(), {id: 0})
    await rows.worker.copy_due()
    assert await redis_client.exists(CACHED_ROW("9")) == 1
    assert await redis_client.zcard(ROW_SCHEDULE()) == await redis_client.zcard(ROW_DELAYS()) == 4
    assert await redis_client.zrange(ROW_SCHEDULE(), 0, 0) == ["9"], "the others are due much later"


async def test_a_row_that_only_another_service_has_stays_scheduled(
    rows: RowCache, table: Table, clock: ManualClock, redis_client: Any
) -> None:
    await redis_client.set(CACHED_ROW("7"), '{"qty": 629}')
    await redis_client.zadd(ROW_DELAYS(), {"7": 5})
    await redis_client.zadd(ROW_SCHEDULE(), {"7": 0})
    await rows.worker.copy_due()
    assert await redis_client.zscore(ROW_SCHEDULE(), "7") == clock.now_s() + 5
    assert await redis_client.zscore(ROW_DELAYS(), "7") == 5
    assert await redis_client.get(CACHED_ROW("7")) == '{"qty": 629}'
    assert await rows.load("7") is None
    assert await redis_client.exists(CACHED_ROW("7")) == 1


async def test_many_workers_share_the_work_and_do_nothing_twice(
    functions: Functions, table: Table, clock: ManualClock
) -> None:
    for n in range(1200):
        table.put(str(n))
    workers = [RowCache(functions, table.load, clock=clock) for _ in range(6)]
    await asyncio.gather(*(workers[0].schedule(str(n), 30) for n in range(1200)))
    for _ in range(3):
        await asyncio.gather(*(worker.worker.copy_due() for worker in workers))
    assert sorted(table.asked) == sorted(table.rows)


async def test_after_the_clock_was_set_back_a_lease_from_before_delays_no_row(
    rows: RowCache, functions: Functions, table: Table, clock: ManualClock
) -> None:
    table.put("1", qty=5)

    async def claim(reader: str) -> str:
        keys = [CACHED_ROW("1"), ROW_STATE("1")]
        return str(await functions.run("caching_claim_row", keys, reader, clock.now_ms(), LOAD_LEASE_MS))

    assert (await claim("the dead"), await claim("another")) == ("yours", "busy")
    clock.advance(seconds=-3600)
    assert (await claim("the next"), await claim("another")) == ("yours", "busy")
    clock.advance(seconds=LOAD_LEASE_MS / 1000 + 1)
    row = await rows.get("1")
    assert row is not None
    assert row.data["qty"] == 5


async def test_rows_of_a_dead_worker_are_copied_by_another(
    functions: Functions, table: Table, clock: ManualClock, redis_client: Any
) -> None:
    table.put("1")
    dying, living = RowCache(functions, table.load, clock=clock), RowCache(functions, table.load, clock=clock)
    await living.schedule("1", 60)
    table.gate = asyncio.Event()
    work = asyncio.create_task(dying.worker.copy_due())
    await eventually(lambda: table.queries)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    table.gate = None
    await living.worker.copy_due()
    assert await redis_client.exists(CACHED_ROW("1")) == 0, "the dead one's lease is not over yet"
    clock.advance(seconds=DUE_LEASE_SECONDS)
    await living.worker.copy_due()
    assert await redis_client.exists(CACHED_ROW("1")) == 1


async def test_ten_thousand_rows_with_delays_of_1_to_60_seconds_are_copied_when_due(
    functions: Functions, table: Table, clock: ManualClock, redis_client: Any
) -> None:
    """The clock is manual: this tests the schedule; `bench/shop.py` measures the speed."""
    chance = random.Random(1)
    delays = {str(n): chance.uniform(1, 60) for n in range(10_000)}
    for id in delays:
        table.put(id)
    # As after a long run: each somewhere within its own period.
    due = {id: clock.now_s() + chance.uniform(0, delay) for id, delay in delays.items()}
    await redis_client.zadd(ROW_DELAYS(), delays)
    await redis_client.zadd(ROW_SCHEDULE(), due)
    workers = [RowCache(functions, table.load, clock=clock) for _ in range(2)]
    for _ in range(5):
        clock.advance(seconds=0.2)
        while 0.0 in await asyncio.gather(*(worker.worker.copy_due() for worker in workers)):
            continue
        ((_, first),) = await redis_client.zrange(ROW_SCHEDULE(), 0, 0, withscores=True)
        assert first > clock.now_s(), "nothing is left behind"
    expected = sum(1 for id in delays if due[id] <= clock.now_s())
    assert expected > 500
    again = sum(1 for id in delays if due[id] + delays[id] <= clock.now_s())
    assert len(table.asked) == expected + again
    assert table.queries < 30, "in batches"


async def test_operators_list_and_change_scheduled_rows(shop: Shop, create_item: CreateItem) -> None:
    one, two = await create_item(), await create_item()
    await shop.row_schedules.schedule(one.id, 30)
    row = await shop.row_schedules.schedule(two.id, 5)
    assert (row.id, row.delay, row.due_at) == (two.id, 5.0, shop.clock.now_s())
    shop.clock.advance(seconds=2)
    state = await shop.row_schedules.state(Page())
    assert [row.id for row in state.rows] == [two.id, one.id]
    assert (state.scheduled, state.late_seconds) == (2, 2.0)
    await shop.row_schedules.remove(one.id)
    assert (await shop.row_schedules.state(Page())).scheduled == 1
