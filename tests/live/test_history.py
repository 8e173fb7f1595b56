"""The SQL tables: writing a row again, or an older version of it, changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from plaza.core.sql import Sql
from plaza.live.history import PAGE_SIZE, AudienceHistory, AudienceTotals, ViewingSession


@pytest.fixture
def history(sql: Sql) -> AudienceHistory:
    return AudienceHistory(sql)


async def save(history: AudienceHistory, event: str, viewings: Sequence[ViewingSession]) -> None:
    async def read() -> Sequence[ViewingSession]:
        return viewings

    await history.viewings.save(event, read)


async def test_a_viewing_session_written_twice_is_one_row_with_the_later_end(history: AudienceHistory) -> None:
    for end in (20, 30, 10):
        await save(history, "E1", [ViewingSession("", "web", "ana", 5, end)])
    assert [v async for v in history.viewings.iterate("E1")] == [ViewingSession("", "web", "ana", 5, 30)]


async def test_a_record_written_twice_is_one_record(history: AudienceHistory) -> None:
    text = '{"viewerCount":1,"timestamp":300000,"countByUserGroup":{},"countByViewingCountry":{"NZ":1}}'
    for _ in range(2):
        await history.save_records("E1", "S1", {"300000": text})
    (record,) = await history.get_records("E1", "S1", 0, 300_000)
    assert (record.viewer_count, record.count_by_viewing_country) == (1, {"NZ": 1})
    assert await history.get_records("E1", "", 0, 300_000) == []
    assert await history.get_records("E1", "S1", 0, 299_999) == []


async def test_totals_only_grow(history: AudienceHistory) -> None:
    await history.save_totals("E1", [("", AudienceTotals(1, 5, 100, 9, 7)), ("S1", AudienceTotals(0, 0, 0, 0, 0))])
    await history.save_totals("E1", [("", AudienceTotals(1, 4, 200, 8, 6))])
    await history.save_totals("E1", [("", AudienceTotals(2, 1, 300, 1, 1))])
    lives = await history.get_lives("E1")
    assert sorted(lives[""], key=lambda life: life.born_at) == [
        AudienceTotals(1, 5, 100, 9, 7),
        AudienceTotals(2, 1, 300, 1, 1),
    ]
    assert "S1" not in lives, "an audience without keys has no row"


async def test_all_pages_are_read(history: AudienceHistory) -> None:
    count = PAGE_SIZE + 5
    rows = [ViewingSession("S1", "web", f"p{i % 50}", i, i + 1) for i in range(count)]
    await save(history, "E1", rows)
    await save(history, "E2", rows[:3])
    found = [v async for v in history.viewings.iterate("E1", "S1")]
    assert len(found) == len(set(found)) == count
    assert await history.viewings.count_attended("E1") == 50
    assert await history.viewings.find_attended("E1", "S1", ["p1", "unknown"]) == {"p1"}


async def test_the_latest_viewing_session_is_the_one_that_ended_last(history: AudienceHistory) -> None:
    late = ViewingSession("S1", "phone", "ana", 3, 9)
    await save(history, "E1", [ViewingSession("", "web", "ana", 1, 5), late, ViewingSession("", "web", "ana", 4, 6)])
    await save(history, "E2", [ViewingSession("", "web", "ben", 1, 20)])
    assert await history.viewings.find_latest("E1", ["ana", "ben"]) == {"ana": late}


async def test_a_viewer_can_be_deleted(history: AudienceHistory) -> None:
    await save(history, "E1", [ViewingSession("", "web", "ana", 1, 2), ViewingSession("", "web", "ben", 1, 2)])
    assert await history.viewings.list_for_viewer("ana") == [("E1", ViewingSession("", "web", "ana", 1, 2))]
    await history.viewings.delete_viewer("ana")
    assert await history.viewings.list_for_viewer("ana") == []
    assert await history.viewings.count_attended("E1") == 1


async def test_a_viewer_can_be_renamed(history: AudienceHistory) -> None:
    await save(history, "E1", [ViewingSession("", "web", "ana", 1, 2), ViewingSession("", "web", "ana", 5, 6)])
    await save(history, "E1", [ViewingSession("", "web", "eva", 5, 7)])
    for _ in range(2):
        await history.viewings.rename_viewer("ana", "eva")
    assert await history.viewings.list_for_viewer("ana") == []
    assert [v async for v in history.viewings.iterate("E1")] == [
        ViewingSession("", "web", "eva", 1, 2),
        ViewingSession("", "web", "eva", 5, 7),
    ]


@pytest.mark.parametrize("new", ["eva", None])
async def test_a_viewing_session_that_is_being_written_is_renamed_or_deleted_too(
    history: AudienceHistory, new: str | None
) -> None:
    """The name changes after a worker has read the viewing session."""
    changing: list[asyncio.Task[None]] = []

    async def read() -> Sequence[ViewingSession]:
        change = history.viewings.delete_viewer("ana") if new is None else history.viewings.rename_viewer("ana", new)
        changing.append(asyncio.create_task(change))
        await asyncio.wait(changing, timeout=0.2)  # enough time for a change that does not wait
        return [ViewingSession("", "web", "ana", 1, 2)]

    await history.viewings.save("E1", read)
    await asyncio.gather(*changing)
    assert [v async for v in history.viewings.iterate("E1")] == (
        [] if new is None else [ViewingSession("", "web", new, 1, 2)]
    )
