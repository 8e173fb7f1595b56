"""The history of requests: the counts of all processes add up, in fixed buckets that expire."""

from __future__ import annotations

from collections import Counter
from typing import Any

from plaza.core import metrics
from plaza.core.clock import ManualClock
from plaza.core.health_history import HealthBucket, HealthHistory, merged, own_counts
from plaza.core.keys import HEALTH_MINUTES, HEALTH_SECONDS
from plaza.core.valkey import Valkey


async def test_counts_of_all_processes_add_up_in_their_bucket(
    valkey: Valkey, clock: ManualClock, redis_client: Any
) -> None:
    second = int(clock.now_s()) // 300 * 300
    clock.advance(seconds=second + 40 - clock.now_s())
    for process in (HealthHistory(valkey, clock), HealthHistory(valkey, clock)):
        await process.add(second + 20, {"n": 5, "f": 1, "t": 30, "l0": 4, "l4": 1})
    history = HealthHistory(valkey, clock)
    page = await history.page("hour")
    assert (page.seconds, len(page.points)) == (10, 360), "full, also where nothing was counted"
    point = next(point for point in page.points if point.at == second + 20)
    assert (point.requests_per_second, point.failed, point.round_trips_per_second) == (1.0, 2, 6.0)
    assert (point.p50, point.p95, point.p99) == (0.16, 3.5, 3.9)
    others = [point for point in page.points if point.at != second + 20]
    assert {(point.requests_per_second, point.p50) for point in others} == {(0, None)}
    clock.advance(seconds=600)
    week = await history.page("week")
    assert (week.seconds, len(week.points)) == (300, 2016)
    assert [point.at for point in week.points if point.requests_per_second] == [second]
    assert 0 < await redis_client.ttl(HEALTH_SECONDS(second // 3600)) <= 7_200
    assert 0 < await redis_client.ttl(HEALTH_MINUTES(second // 86_400)) <= 8 * 86_400
    clock.advance(seconds=3_600)
    assert not any(point.requests_per_second for point in (await history.page("hour")).points)


def test_longer_buckets_have_the_percentiles_of_all_requests() -> None:
    buckets = [HealthBucket(n * 10, 10, Counter({"n": 1, "l0": 9 * (n < 2), "l10": 1})) for n in range(3)]
    first, last = merged(buckets, 2)
    assert (first.at, first.seconds, last.at, last.seconds) == (0, 10, 10, 20), "whole from the newest back"
    assert last.counts["n"] == 2
    assert last.point().p99 == 243.13
    assert HealthBucket(0, 10).point().p50 is None


def test_a_process_counts_its_own_requests() -> None:
    before = own_counts()
    metrics.HTTP_REQUESTS.labels("GET", "/x", "5xx").inc(2)
    metrics.HTTP_LATENCY.observe(0.003)
    metrics.HTTP_LATENCY.observe(99)
    after = own_counts()
    after.subtract(before)
    changed = {name: count for name, count in after.items() if count and name != "t"}
    assert changed == {"n": 2, "f": 2, "l4": 1, "l16": 1}
