"""The history of requests and response times of all processes: ten seconds for an hour, five minutes for a week.

Every process adds what it has counted to the bucket that has just ended, once per bucket, in one batch. Counters add
up, so no process needs to know of another, and percentiles are those of all requests: a bucket has a histogram.
A process that cannot reach Valkey drops what it has counted: later it would look like a burst.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
import structlog
from msgspec import Struct, field

from plaza.core import keys as core
from plaza.core import metrics
from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.keyspace import Key
from plaza.core.number_parsing import parse_int
from plaza.core.prometheus import Metric, Sample
from plaza.core.valkey import Valkey

log = structlog.get_logger("plaza.health")

BUCKET_SECONDS: Final = 10
# A process writes so long after the end of a bucket: the clocks of machines differ a little.
WRITE_DELAY_SECONDS: Final = 0.2

HistorySpan = Literal["hour", "week"]
_BOUNDS: Final = tuple(float(bound) for bound in metrics.LATENCY_BUCKETS)


class _Resolution(Struct, frozen=True):
    """How long a bucket is, how many are shown, and how many seconds share a key."""

    key: Key
    step: int
    shown: int
    period: int

    def key_at(self, second: int) -> str:
        return self.key(second // self.period)


_RESOLUTIONS: Final[Mapping[HistorySpan, _Resolution]] = {
    "hour": _Resolution(core.HEALTH_SECONDS, BUCKET_SECONDS, 360, 3_600),
    "week": _Resolution(core.HEALTH_MINUTES, 300, 2_016, 86_400),
}


class HealthPoint(msgspec.Struct, frozen=True):
    """A bucket. `at` is its start, Unix seconds; `p50`, `p95` and `p99` are milliseconds, null without responses."""

    at: int
    requests_per_second: float
    failed: int
    round_trips_per_second: float
    p50: float | None
    p95: float | None
    p99: float | None


class HealthHistoryPage(msgspec.Struct, frozen=True):
    """The history, oldest first. `seconds` is the length of a bucket."""

    seconds: int
    points: list[HealthPoint]


class HealthBucket(Struct):
    """What all processes counted in some seconds."""

    at: int
    seconds: int
    counts: Counter[str] = field(default_factory=Counter)

    def point(self) -> HealthPoint:
        latency = [(bound, self.counts[f"l{n}"]) for n, bound in enumerate((*_BOUNDS, float("inf")))]
        return HealthPoint(
            self.at,
            round(self.counts["n"] / self.seconds, 2),
            self.counts["f"],
            round(self.counts["t"] / self.seconds, 2),
            *(_percentile(latency, share) for share in (0.5, 0.95, 0.99)),
        )


def _percentile(buckets: Sequence[tuple[float, int]], share: float) -> float | None:
    """Return the response time that a share of the responses did not exceed, interpolated inside its bucket."""
    rank = share * sum(count for _, count in buckets)
    lower = below = 0.0
    for bound, count in buckets:
        if count and below + count >= rank > 0:
            upper = lower if bound == float("inf") else bound
            return round(1000 * (lower + (upper - lower) * (rank - below) / count), 2)
        lower, below = bound, below + count
    return None


def merged(buckets: Sequence[HealthBucket], size: int) -> list[HealthBucket]:
    """Return longer buckets, each of so many, from the newest back. Their percentiles are those of all requests."""
    groups = [buckets[max(0, end - size) : end] for end in range(len(buckets), 0, -size)]
    return [
        HealthBucket(group[0].at, sum(each.seconds for each in group), sum((each.counts for each in group), Counter()))
        for group in reversed(groups)
    ]


class HealthHistory:
    """Reads the history, and adds the counts of this process to it."""

    def __init__(self, valkey: Valkey, clock: Clock) -> None:
        self._valkey = valkey
        self._clock = clock

    async def buckets(self, span: HistorySpan) -> list[HealthBucket]:
        """Return all complete buckets of a span, oldest first, also empty ones. One round trip."""
        scale = _RESOLUTIONS[span]
        starts = self._starts(span)
        keys = sorted({scale.key_at(start) for start in starts})
        found: dict[int, Counter[str]] = {}
        for fields in await self._valkey.batch([("HGETALL", key) for key in keys]):
            for name, count in fields.items():
                start, _, figure = name.partition(":")
                found.setdefault(parse_int(start), Counter())[figure] = parse_int(count)
        return [HealthBucket(start, scale.step, found.get(start, Counter())) for start in starts]

    def empty_buckets(self, span: HistorySpan) -> list[HealthBucket]:
        """Return the buckets of a span as if nothing had been counted."""
        return [HealthBucket(start, _RESOLUTIONS[span].step) for start in self._starts(span)]

    def _starts(self, span: HistorySpan) -> range:
        scale = _RESOLUTIONS[span]
        end = int(self._clock.now_s() - WRITE_DELAY_SECONDS) // scale.step * scale.step
        return range(end - scale.shown * scale.step, end, scale.step)

    async def page(self, span: HistorySpan) -> HealthHistoryPage:
        """Return the history of a span. One round trip."""
        buckets = await self.buckets(span)
        return HealthHistoryPage(buckets[0].seconds, [bucket.point() for bucket in buckets])

    async def add(self, second: int, counts: Mapping[str, int]) -> None:
        """Add the counts of this process to the buckets of a second. One round trip."""
        commands: list[tuple[str | int, ...]] = []
        for scale in _RESOLUTIONS.values():
            key, start = scale.key_at(second), second // scale.step * scale.step
            commands += [("HINCRBY", key, f"{start}:{name}", count) for name, count in counts.items()]
            commands.append(("EXPIRE", key, scale.key.ttl_seconds or 0))
        await self._valkey.batch(commands)

    async def run(self) -> None:
        """Add what this process counts, at the end of every bucket, without end."""
        before = own_counts()
        while True:
            now = self._clock.now_s()
            end = int(now // BUCKET_SECONDS + 1) * BUCKET_SECONDS
            await asyncio.sleep(end - now + WRITE_DELAY_SECONDS)
            after = own_counts()
            counted = {name: count - before[name] for name, count in after.items() if count > before[name]}
            before = after
            if "n" in counted:
                try:
                    await self.add(end - BUCKET_SECONDS, counted)
                except Unavailable as error:
                    log.warning("health_history_lost", error=str(error))

    @contextlib.asynccontextmanager
    async def recording(self) -> AsyncIterator[None]:
        """Add the counts of this process as long as the block runs."""
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})


def own_counts() -> Counter[str]:
    """Return what this process has counted since its start: requests, failures, round trips, and a histogram."""
    metrics.sample()
    counts: Counter[str] = Counter()
    for sample in _samples(metrics.HTTP_REQUESTS.collect(), "_total"):
        counts["n"] += int(sample.value)
        counts["f"] += int(sample.value) if sample.labels["status"] == "5xx" else 0
    counts["t"] = sum(int(sample.value) for sample in _samples(metrics.VALKEY_TRIPS.collect(), "_total"))
    cumulative = sorted(
        (float(s.labels["le"]), int(s.value)) for s in _samples(metrics.HTTP_LATENCY.collect(), "_bucket")
    )
    below = 0
    for n, (_, count) in enumerate(cumulative):
        counts[f"l{n}"], below = count - below, count
    return counts


def _samples(families: Iterable[Metric], suffix: str) -> list[Sample]:
    return [sample for family in families for sample in family.samples if sample.name.endswith(suffix)]
