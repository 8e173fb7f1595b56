"""Figures are computed once a second per event, for any number of clients."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from plaza.core.errors import Unavailable
from plaza.live import keys
from plaza.live.model import LiveFigures
from plaza.live.statistics import AudienceFigures
from plaza.live.stream import FigureStreams
from tests.live.conftest import ViewerActions
from tests.timeouts import within_time_limit
from tests.waiting import eventually


class CountingFigures(AudienceFigures):
    """Counts how often figures are computed, and can fail."""

    computed = 0
    fails = 0

    async def live(self, event: str) -> LiveFigures:
        type(self).computed += 1
        if CountingFigures.fails:
            CountingFigures.fails -= 1
            raise Unavailable("away")
        return await super().live(event)


async def _take(stream: FigureStreams, count: int, last_id: str | None = None) -> list[Any]:
    found = []
    watching = stream.subscribe("E1", last_id)
    async for item in watching:
        found.append(item)
        if len(found) == count:
            break
    await watching.aclose()  # type: ignore[attr-defined]
    return found


async def test_figures_are_computed_once_a_tick_for_any_number_of_clients(
    viewers: ViewerActions, figures: AudienceFigures
) -> None:
    await viewers.beat("ana")
    figures.__class__, CountingFigures.computed = CountingFigures, 0
    stream = FigureStreams(figures._valkey, figures, tick_seconds=0.05, linger_seconds=0.02)
    received = await asyncio.gather(*(_take(stream, 3) for _ in range(40)))
    assert all(seen == received[0] for seen in received)
    assert len({item.id for item in received[0]}) == 3
    assert CountingFigures.computed <= 4
    await eventually(lambda: not stream._feeds)
    computed = CountingFigures.computed
    await asyncio.sleep(0.15)
    assert CountingFigures.computed == computed, "without clients nothing is computed"


async def test_several_processes_share_the_computed_figures(
    viewers: ViewerActions, figures: AudienceFigures, redis_client: Any
) -> None:
    await viewers.beat("ana")
    figures.__class__, CountingFigures.computed = CountingFigures, 0
    one, other = (FigureStreams(figures._valkey, figures, tick_seconds=0.1) for _ in range(2))
    here, there = await asyncio.gather(_take(one, 4), _take(other, 4))
    assert {item.id for item in here} & {item.id for item in there}
    assert CountingFigures.computed <= 6, "one per figure, and one more for a client between two ticks"
    one.close()
    missed = await _take(other, 3, here[0].id)
    assert missed == here[1:], "from any process"
    other.close()


async def test_the_keys_of_a_stream_expire_as_declared(
    viewers: ViewerActions, figures: AudienceFigures, redis_client: Any
) -> None:
    stream = FigureStreams(figures._valkey, figures, tick_seconds=0.1)
    await _take(stream, 1)
    for key in (keys.EVENT_FEED, keys.EVENT_FEED_TURN):
        left = await eventually(partial(_time_left, redis_client, key("E1")))
        assert left <= (key.ttl_seconds or 0) * 1000
    stream.close()


async def _time_left(redis_client: Any, name: str) -> int:
    return max(0, int(await redis_client.pttl(name)))


async def test_a_client_that_reconnects_gets_what_it_missed(viewers: ViewerActions, figures: AudienceFigures) -> None:
    stream = FigureStreams(figures._valkey, figures, tick_seconds=0.02, linger_seconds=5)
    first = await _take(stream, 1)
    await asyncio.sleep(0.1)
    again = await _take(stream, 4, first[0].id)
    assert again[:3] == (await _take(stream, 3, first[0].id)), "the next figure, not the latest"
    assert again[0].id > first[0].id
    for nonsense in ("x", "", "-1", "1-", "²-0", "9" * 40 + "-0"):
        assert len(await _take(stream, 1, nonsense)) == 1
    stream.close()


async def test_a_stream_survives_a_short_loss_of_valkey(viewers: ViewerActions, figures: AudienceFigures) -> None:
    figures.__class__, CountingFigures.fails = CountingFigures, 2
    stream = FigureStreams(figures._valkey, figures, tick_seconds=0.01, linger_seconds=0)
    assert len(await _take(stream, 1)) == 1
    stream.close()


async def test_a_failed_feed_ends_its_streams_and_the_next_client_gets_a_new_one(
    viewers: ViewerActions, figures: AudienceFigures, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = FigureStreams(figures._valkey, figures, tick_seconds=0.01, linger_seconds=5)
    assert len(await _take(stream, 2)) == 2
    monkeypatch.setattr(figures, "live", None)  # a bug in Plaza
    async with within_time_limit():
        assert len(await _take(stream, 100, "0-0")) < 100
    (_, task) = stream._feeds["E1"]
    assert isinstance(task.exception(), TypeError)
    monkeypatch.undo()
    assert len(await _take(stream, 2)) == 2
    stream.close()
