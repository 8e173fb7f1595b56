"""Paging, on one server and on a cluster."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from plaza.core import paging
from plaza.core.clock import ManualClock
from plaza.core.errors import Gone, Invalid
from plaza.core.functions import Functions
from plaza.core.keys import SNAPSHOT
from plaza.core.paging import (
    EncodedItems,
    Page,
    PageResult,
    Position,
    SnapshotPosition,
    Snapshots,
    decode_cursor,
    encode_cursor,
    fill_page,
    ids_in_sorted_set,
    list_checksum,
    page_by_position,
)
from plaza.core.valkey import REQUEST_USAGE, RequestUsage, Valkey

KEY = "news:{all}"


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    functions = Functions(valkey, [paging.LIBRARY])
    await functions.load()
    return functions


async def load_all(ids: Sequence[str]) -> list[str | None]:
    return list(ids)


def load_without(hidden: set[str]) -> Any:
    async def load(ids: Sequence[str]) -> list[str | None]:
        return [None if id in hidden else id for id in ids]

    return load


async def add(valkey: Valkey, *rows: tuple[str, float]) -> None:
    await valkey.call("ZADD", KEY, *(part for id, score in rows for part in (repr(score), id)))


class ListReader:
    """Reads a list page by page, as a client that only has the cursor."""

    def __init__(self, functions: Functions, *, load: Any = load_all, newest_first: bool = True) -> None:
        self.after = ids_in_sorted_set(functions, KEY, newest_first=newest_first)
        self.load = load

    async def page(self, limit: int, cursor: str | None = None, offset: int = 0) -> PageResult[str]:
        return await page_by_position(KEY, Page(limit, cursor, offset), self.after, self.load)

    async def rest(self, limit: int, cursor: str | None = None) -> list[str]:
        read: list[str] = []
        while True:
            paged = await self.page(limit, cursor)
            read += paged.items
            cursor = paged.pagination.next_cursor
            if cursor is None:
                return read


@pytest.mark.parametrize("newest_first", [True, False])
async def test_all_pages_together_are_the_list_also_with_equal_scores(functions: Functions, newest_first: bool) -> None:
    rows = [(f"p{i}", float(i // 7)) for i in range(100)]  # seven per score
    rows += [("ünï", 3.0), ("p1", 0.1 + 0.2), ("Z", 3.0), ("", 3.0)]
    await add(functions.valkey, *rows)
    command = "ZREVRANGE" if newest_first else "ZRANGE"
    whole = await functions.valkey.call(command, KEY, 0, -1)
    for limit in (1, 7, 20, 100):
        assert await ListReader(functions, newest_first=newest_first).rest(limit) == whole


@pytest.mark.parametrize("newest_first", [True, False])
async def test_infinite_scores_of_other_services_do_not_break_paging(functions: Functions, newest_first: bool) -> None:
    rows = [(f"p{i}", score) for i, score in enumerate([math.inf, math.inf, 3.5, 1e300, -math.inf, -math.inf, 0.0])]
    await add(functions.valkey, *rows)
    found = await ListReader(functions, newest_first=newest_first).rest(2)
    assert sorted(found) == [f"p{i}" for i in range(7)]


async def test_a_page_has_its_limit_count_and_cursor(functions: Functions) -> None:
    await add(functions.valkey, *((f"p{i}", float(i)) for i in range(6)))
    reader = ListReader(functions)
    first = await reader.page(4)
    assert (first.pagination.limit, first.pagination.count) == (4, 4)
    second = await reader.page(4, first.pagination.next_cursor)
    assert (second.items, second.pagination.count, second.pagination.next_cursor) == (["p1", "p0"], 2, None)
    assert (await reader.page(6)).pagination.next_cursor is None  # the list ends exactly here


async def test_additions_and_removals_between_pages_repeat_and_skip_nothing(functions: Functions) -> None:
    chance = random.Random(5)
    stays = {f"s{i}": float(chance.randrange(20)) for i in range(200)}
    goes = {f"g{i}": float(chance.randrange(20)) for i in range(200)}
    await add(functions.valkey, *stays.items(), *goes.items())
    reader, read, cursor = ListReader(functions), [], None
    waiting = list(goes)
    chance.shuffle(waiting)
    while True:
        paged = await reader.page(10, cursor)
        read += paged.items
        cursor = paged.pagination.next_cursor
        if cursor is None:
            break
        # The last item is removed too: a position outlives its item.
        removed, waiting = {read[-1], *waiting[:8]} - set(stays), waiting[8:]
        await functions.valkey.call("ZREM", KEY, "missing", *removed)
        await add(functions.valkey, *((f"n{chance.random()}", float(chance.randrange(20))) for _ in range(5)))
    assert len(read) == len(set(read)), "repeated"
    assert set(stays) <= set(read), "skipped"


async def test_a_changed_score_does_not_move_the_cursor(functions: Functions) -> None:
    await add(functions.valkey, *((f"p{i}", float(i)) for i in range(9)))
    reader = ListReader(functions)
    first = await reader.page(3)
    await add(functions.valkey, (first.items[-1], 100.0))
    assert await reader.rest(3, first.pagination.next_cursor) == [f"p{i}" for i in range(5, -1, -1)]


async def test_paging_among_100_000_equal_scores_takes_one_round_trip(functions: Functions) -> None:
    for first in range(0, 100_000, 10_000):
        await add(functions.valkey, *((f"p{i:06}", 1.0) for i in range(first, first + 10_000)))
    await functions.valkey.call("ZREM", KEY, "p050000")
    cursor = encode_cursor(Position(paging.list_checksum(KEY), 1.0, "p050000"))
    usage = RequestUsage()
    mark = REQUEST_USAGE.set(usage)
    paged = await ListReader(functions).page(3, cursor)
    REQUEST_USAGE.reset(mark)
    assert paged.items == ["p049999", "p049998", "p049997"]
    assert usage.trips == 1


async def test_a_page_is_filled_when_items_are_hidden(functions: Functions) -> None:
    await add(functions.valkey, *((f"p{i:03}", float(i)) for i in range(300)))
    hidden = {f"p{i:03}" for i in range(300) if i % 10}
    reader = ListReader(functions, load=load_without(hidden))
    first = await reader.page(5)
    assert first.items == ["p290", "p280", "p270", "p260", "p250"]
    assert first.items + await reader.rest(5, first.pagination.next_cursor) == [f"p{i:03}" for i in range(290, -1, -10)]


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
async def test_pages_are_full_and_complete_also_of_items_that_are_encoded_together(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "FILL_STEP", 4)
    for is_hidden in itertools.product([False, True], repeat=9):
        shown = [str(place) for place, hides in enumerate(is_hidden) if not hides]
        assert await all_encoded_pages(len(is_hidden), set(shown), limit) == shown


async def all_encoded_pages(size: int, shown: set[str], limit: int) -> list[str]:
    """Read a list page by page. Items of which none is hidden are encoded together, as known pages are."""

    async def after(start: int | None, count: int) -> list[tuple[str, int]]:
        first = 0 if start is None else start + 1
        return [(str(place), place) for place in range(first, size)[:count]]

    async def load(ids: Sequence[str]) -> list[str | None]:
        found = [id if id in shown else None for id in ids]
        return found if None in found else EncodedItems(found)

    read: list[str] = []
    position: int | None = None
    while True:
        items, position = await fill_page(Page(limit), after, position, load)
        read += items
        if position is None:
            assert len(items) <= limit
            return read
        assert len(items) == limit


async def test_a_page_reads_at_most_a_thousand_ids(functions: Functions) -> None:
    await add(functions.valkey, *((f"p{i:04}", float(i)) for i in range(2_500)))
    looked_at: list[str] = []

    async def load(ids: Sequence[str]) -> list[str | None]:
        looked_at.extend(ids)
        return [id if id == "p0000" else None for id in ids]

    reader = ListReader(functions, load=load)
    paged = await reader.page(20)
    assert (paged.items, len(looked_at), len(set(looked_at))) == ([], 1_000, 1_000)
    assert paged.pagination.next_cursor is not None, "there is more, so the client may go on"
    assert await reader.rest(20, paged.pagination.next_cursor) == ["p0000"]
    assert sorted(looked_at) == sorted({f"p{i:04}" for i in range(2_500)}), "each was looked at once"


async def test_an_offset_counts_visible_items(functions: Functions) -> None:
    await add(functions.valkey, *((f"p{i:03}", float(i)) for i in range(100)))
    reader = ListReader(functions, load=load_without({"p099", "p097", "p050"}))
    whole = await reader.rest(100)
    assert (await reader.page(10, offset=10)).items == whole[10:20]
    after_offset = await reader.page(10, offset=10)
    assert (await reader.page(10, after_offset.pagination.next_cursor)).items == whole[20:30]
    assert (await reader.page(10, offset=97)).items == []
    assert (await reader.page(10, offset=200)).items == []


async def test_items_skipped_by_an_offset_are_counted_and_not_loaded(functions: Functions) -> None:
    await add(functions.valkey, *((f"p{i:04}", float(i)) for i in range(2_500)))
    loaded: list[int] = []
    counted: list[int] = []

    async def load(ids: Sequence[str]) -> list[str | None]:
        loaded.append(len(ids))
        return list(ids)

    async def visible(ids: Sequence[str]) -> list[bool]:
        counted.append(len(ids))
        return [int(id[1:]) % 2 == 0 for id in ids]

    after = ids_in_sorted_set(functions, KEY)
    found = await page_by_position(KEY, Page(20, None, 900), after, load, visible)
    assert found.items[0] == "p0699", "behind the 900th that is seen"
    assert (sum(loaded), max(counted) <= 250) == (20, True)
    unseen = await page_by_position(KEY, Page(20, None, 1_000), after, load, lambda ids: _none(ids))
    assert unseen.items == []
    assert unseen.pagination.next_cursor is not None, "there is more, so the client may go on"


async def _none(ids: Sequence[str]) -> list[bool]:
    return [False] * len(ids)


async def test_a_cursor_with_an_offset_is_rejected(functions: Functions) -> None:
    await add(functions.valkey, *((f"p{i}", float(i)) for i in range(9)))
    reader = ListReader(functions)
    cursor = (await reader.page(2)).pagination.next_cursor
    with pytest.raises(Invalid) as refused:
        await reader.page(2, cursor, offset=1)
    assert refused.value.extra == {"field": "offset"}


@pytest.mark.parametrize("cursor", ["x", "AAAA", "é", "%", encode_cursor(Position(1, 1.0, "a")), "A" * 511])
async def test_an_invalid_cursor_is_rejected_with_its_field(functions: Functions, cursor: str) -> None:
    with pytest.raises(Invalid) as refused:
        await ListReader(functions).page(2, cursor)
    assert refused.value.extra == {"field": "cursor"}


class Ranking:
    """A list by a changing score."""

    def __init__(self, valkey: Valkey, clock: ManualClock, count: int) -> None:
        self.ids = [f"p{i:04}" for i in range(count)]
        self.counts: list[int] = []
        self.snapshots = Snapshots(valkey, clock)
        self.name = "ranked"

    @property
    def asked(self) -> int:
        return len(self.counts)

    async def best(self, count: int) -> list[str]:
        self.counts.append(count)
        return self.ids[:count]

    async def page(
        self, limit: int, cursor: str | None = None, load: Any = load_all, offset: int = 0
    ) -> PageResult[str]:
        return await self.snapshots.page(self.name, Page(limit, cursor, offset), self.best, load)


async def test_pages_of_a_changing_list_repeat_and_skip_nothing(valkey: Valkey, clock: ManualClock) -> None:
    ranking = Ranking(valkey, clock, 300)
    before = set(ranking.ids)
    paged = await ranking.page(20)
    read = list(paged.items)
    while paged.pagination.next_cursor:
        random.shuffle(ranking.ids)
        paged = await ranking.page(20, paged.pagination.next_cursor)
        read += paged.items
    assert len(read) == len(before)
    assert set(read) == before
    assert ranking.asked == 2


async def test_pages_after_the_second_read_its_snapshot(valkey: Valkey, clock: ManualClock) -> None:
    ranking = Ranking(valkey, clock, 80)
    first = await ranking.page(20)
    moved = ranking.ids.pop(70)
    ranking.ids.insert(0, moved)
    second = await ranking.page(20, first.pagination.next_cursor)
    assert second.items == [moved, *ranking.ids[21:40]]
    expected = ranking.ids[40:60]
    random.shuffle(ranking.ids)
    assert (await ranking.page(20, second.pagination.next_cursor)).items == expected


async def test_a_first_page_stores_nothing_and_reads_few_ids(
    valkey: Valkey, clock: ManualClock, redis_client: Any
) -> None:
    ranking = Ranking(valkey, clock, 1_000)
    paged = await ranking.page(20)
    assert paged.items == ranking.ids[:20]
    assert ranking.counts == [20 + 20 + 1]
    assert len(paged.pagination.next_cursor or "") < 200
    key = SNAPSHOT(paging._snapshot_id(ranking.name, ranking.ids[20:]))
    assert await redis_client.exists(key) == 0
    assert len((await ranking.page(100)).pagination.next_cursor or "") <= 1_024
    await ranking.page(20, paged.pagination.next_cursor)
    assert await redis_client.exists(key) == 1


async def test_a_first_page_with_many_hidden_items_stores_a_snapshot(valkey: Valkey, clock: ManualClock) -> None:
    ranking = Ranking(valkey, clock, 600)
    load = load_without(set(ranking.ids[:300]))
    first = await ranking.page(20, load=load)
    assert first.items == ranking.ids[300:320]
    expected = ranking.ids[320:340]
    random.shuffle(ranking.ids)
    assert (await ranking.page(20, first.pagination.next_cursor, load=load)).items == expected


async def test_a_snapshot_has_at_most_a_thousand_ids(valkey: Valkey, clock: ManualClock) -> None:
    ranking = Ranking(valkey, clock, 1_500)
    paged = await ranking.page(100)
    read = paged.items
    while paged.pagination.next_cursor:
        paged = await ranking.page(100, paged.pagination.next_cursor)
        read += paged.items
    assert read == ranking.ids[:1_000]


async def test_a_snapshot_cursor_expires_after_ten_minutes(
    valkey: Valkey, clock: ManualClock, redis_client: Any
) -> None:
    ranking = Ranking(valkey, clock, 50)
    cursor = (await ranking.page(20)).pagination.next_cursor
    clock.advance(seconds=600)
    assert (await ranking.page(20, cursor)).items == ranking.ids[20:40]
    clock.advance(seconds=0.001)
    with pytest.raises(Gone):
        await ranking.page(20, cursor)
    key = SNAPSHOT(paging._snapshot_id(ranking.name, ranking.ids[20:]))
    assert await redis_client.lrange(key, 0, -1) == ranking.ids[20:]
    assert 600 < await redis_client.ttl(key) <= 660, "Valkey drops it by itself"


async def test_a_lost_snapshot_is_an_error_not_the_end_of_the_list(
    valkey: Valkey, clock: ManualClock, redis_client: Any
) -> None:
    ranking = Ranking(valkey, clock, 50)
    cursor = (await ranking.page(10)).pagination.next_cursor
    cursor = (await ranking.page(20, cursor)).pagination.next_cursor
    await redis_client.delete(SNAPSHOT(paging._snapshot_id(ranking.name, ranking.ids[10:])))
    with pytest.raises(Gone):
        await ranking.page(20, cursor)


async def test_readers_of_an_unchanged_list_share_one_snapshot(
    valkey: Valkey, clock: ManualClock, redis_client: Any
) -> None:
    ranking = Ranking(valkey, clock, 50)
    first = (await ranking.page(10)).pagination.next_cursor
    second = await ranking.page(20, first)
    key = SNAPSHOT(paging._snapshot_id(ranking.name, ranking.ids[10:]))
    await redis_client.pexpire(key, 500_000)
    await ranking.page(20, first)
    assert await redis_client.pttl(key) <= 500_000, "not written again within a minute"
    clock.advance(seconds=60)
    await ranking.page(20, first)
    assert await redis_client.pttl(key) > 600_000, "but in time for the newest reader's ten minutes"
    assert (await ranking.page(20, second.pagination.next_cursor)).items == ranking.ids[30:]


async def test_a_list_of_one_page_stores_no_snapshot(valkey: Valkey, clock: ManualClock, redis_client: Any) -> None:
    ranking = Ranking(valkey, clock, 20)
    assert (await ranking.page(20)).pagination.next_cursor is None
    assert await redis_client.exists(SNAPSHOT(paging._snapshot_id(ranking.name, ranking.ids))) == 0


async def test_pages_of_a_snapshot_are_filled_too(valkey: Valkey, clock: ManualClock) -> None:
    ranking = Ranking(valkey, clock, 300)
    load = load_without({id for i, id in enumerate(ranking.ids) if i % 3})
    paged = await ranking.page(20, load=load)
    read = list(paged.items)
    assert len(read) == 20
    while paged.pagination.next_cursor:
        paged = await ranking.page(20, paged.pagination.next_cursor, load=load)
        read += paged.items
    assert read == ranking.ids[::3]
    assert (await ranking.page(20, load=load, offset=30)).items == ranking.ids[::3][30:50]


async def test_a_cursor_of_another_viewer_is_rejected(valkey: Valkey, clock: ManualClock) -> None:
    ranking = Ranking(valkey, clock, 50)
    cursor = (await ranking.page(20)).pagination.next_cursor
    ranking.name = "ranked for ana"
    with pytest.raises(Invalid):
        await ranking.page(20, cursor)


async def test_a_forged_cursor_cannot_read_another_snapshot(valkey: Valkey, clock: ManualClock) -> None:
    ranking = Ranking(valkey, clock, 50)
    cursor = (await ranking.page(20)).pagination.next_cursor
    cursor = (await ranking.page(20, cursor)).pagination.next_cursor
    assert cursor is not None
    mark = decode_cursor(cursor, ranking.name, SnapshotPosition)
    ranking.name = "of another kind"
    forged = SnapshotPosition(list_checksum(ranking.name), mark.snapshot, mark.index, mark.made_ms)
    with pytest.raises(Invalid) as caught:
        await ranking.page(20, encode_cursor(forged))
    assert caught.value.extra == {"field": "cursor"}
