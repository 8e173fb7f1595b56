"""One computation a second per event, however many watch."""

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
from tests.live.conftest import Crowd
from tests.timeouts import within_time_limit
from tests.waiting import eventually


class Counted(AudienceFigures):
    """Figures that count how often they are computed, and fail when told to."""

    computed = 0
    fails = 0

    async def live(self, event: str) -> LiveFigures:
        type(self).computed += 1
        if Counted.fails:
            Counted.fails -= 1
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


async def test_however_many_watch_it_is_computed_once_a_tick(crowd: Crowd, figures: AudienceFigures) -> None:
    await crowd.beat("ana")
    figures.__class__, Counted.computed = Counted, 0
    stream = FigureStreams(figures._valkey, figures, tick_seconds=0.05, linger_seconds=0.02)
    everyone = await asyncio.gather(*(_take(stream, 3) for _ in range(40)))
    assert all(seen == everyone[0] for seen in everyone)
    assert len({item.id for item in everyone[0]}) == 3
    assert Counted.computed <= 4
    await eventually(lambda: not stream._feeds)
    computed = Counted.computed
    await asyncio.sleep(0.15)
    assert Counted.computed == computed, "nobody watches, nothing is computed"


async def test_several_processes_compute_once_together_and_go_on_for_each_other(
    crowd: Crowd, figures: AudienceFigures, redis_client: Any
) -> None:
    await crowd.beat("ana")
    figures.__class__, Counted.computed = Counted, 0
    one, other = (FigureStreams(figures._valkey, figures, tick_seconds=0.1) for _ in range(2))
    here, there = await asyncio.gather(_take(one, 4), _take(other, 4))
    assert {item.id for item in here} & {item.id for item in there}
    assert Counted.computed <= 6, "one for each, and one more for who came between two"
    one.close()
    missed = await _take(other, 3, here[0].id)
    assert missed == here[1:], "whoever computed it, and whichever process is asked"
    other.close()


async def test_what_a_stream_leaves_in_valkey_goes_by_itself_as_declared(
    crowd: Crowd, figures: AudienceFigures, redis_client: Any
) -> None:
    stream = FigureStreams(figures._valkey, figures, tick_seconds=0.1)
    await _take(stream, 1)
    for key in (keys.EVENT_FEED, keys.EVENT_FEED_TURN):
        left = await eventually(partial(_time_left, redis_client, key("E1")))
        assert left <= (key.ttl_seconds or 0) * 1000
    stream.close()


async def _time_left(redis_client: Any, name: str) -> int:
    return max(0, int(await redis_client.pttl(name)))


async def test_a_watcher_that_comes_back_gets_what_it_missed(crowd: Crowd, figures: AudienceFigures) -> None:
    stream = FigureStreams(figures._valkey, figures, tick_seconds=0.02, linger_seconds=5)
    first = await _take(stream, 1)
    await asyncio.sleep(0.1)
    again = await _take(stream, 4, first[0].id)
    assert again[:3] == (await _take(stream, 3, first[0].id)), "the next one, not the latest"
    assert again[0].id > first[0].id
    for nonsense in ("x", "", "-1", "1-", "²-0", "9" * 40 + "-0"):
        assert len(await _take(stream, 1, nonsense)) == 1
    stream.close()


async def test_a_stream_outlasts_a_moment_without_valkey(crowd: Crowd, figures: AudienceFigures) -> None:
    figures.__class__, Counted.fails = Counted, 2
    stream = FigureStreams(figures._valkey, figures, tick_seconds=0.01, linger_seconds=0)
    assert len(await _take(stream, 1)) == 1
    stream.close()


async def test_a_feed_that_fails_ends_its_streams_and_the_next_watcher_gets_another(
    crowd: Crowd, figures: AudienceFigures, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = FigureStreams(figures._valkey, figures, tick_seconds=0.01, linger_seconds=5)
    assert len(await _take(stream, 2)) == 2
    monkeypatch.setattr(figures, "live", None)  # a mistake of ours
    async with within_time_limit():
        assert len(await _take(stream, 100, "0-0")) < 100
    (_, task) = stream._feeds["E1"]
    assert isinstance(task.exception(), TypeError)
    monkeypatch.undo()
    assert len(await _take(stream, 2)) == 2
    stream.close()
