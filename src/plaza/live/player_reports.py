"""What players report with heartbeats: start times, buffering and errors by country, device and referring site.

Times are counted in fixed buckets, each a fifth wider than the one before. So an event of any size takes the same
memory, and a percentile is at most 10% off. Nothing here names a viewer. Devices and referring sites count only if
`PLAZA_LIVE_SOURCES` is on: once per viewing session, and with every report of playback.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import log2
from typing import Any, Final

from msgspec import Struct

from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.core.valkey import Valkey
from plaza.live import keys
from plaza.live.model import Heartbeat, PlaybackQuality
from plaza.live.other_services import to_ms
from plaza.live.report_history import ReportHistory

BUCKETS_PER_DOUBLING: Final = 4
# The name under which sites are counted beyond `MAX_REFERRERS`.
OTHER_SITES: Final = "other sites"
QUALITY_METRICS: Final = ("reports", "start", "buffering", "stalls", "errors")
# After a metric's name: it is counted by device or by referring site, not by country.
BY_DEVICE: Final = "_device"
BY_SITE: Final = "_site"

Field = tuple[str, str, int]  # metric, country, device or site, bucket (0 for sums)
Buckets = dict[str, Counter[int]]  # by metric


class QualityFigures(Struct, kw_only=True):
    """Playback of some viewers. Times are null if no player reported one."""

    reports: int
    start_ms_p50: int | None
    start_ms_p95: int | None
    buffering_ms_p50: int | None
    buffering_ms_p95: int | None
    stalls: int
    errors: int


class CountryQuality(QualityFigures, kw_only=True):
    """Playback in one country, or everywhere if `country` is null."""

    country: str | None


class DeviceQuality(QualityFigures, kw_only=True):
    """Playback on one kind of device."""

    device: str


class ReferrerQuality(QualityFigures, kw_only=True):
    """Playback of viewers from one referring site."""

    referrer: str


class QualityReport(Struct):
    """Playback of an event: in total, by country, device and referring site, those with the most reports first."""

    total: CountryQuality
    countries: list[CountryQuality]
    devices: list[DeviceQuality]
    referrers: list[ReferrerQuality]


class AudienceSources(Struct):
    """Viewing sessions by device and by referring site."""

    devices: dict[str, int]
    referrers: dict[str, int]


def bucket_of(ms: int) -> int:
    """Return the bucket of a time: 0 for 0 ms."""
    return int(BUCKETS_PER_DOUBLING * log2(ms)) + 1 if ms > 0 else 0


def bucket_ms(bucket: int) -> int:
    """Return the middle of a bucket."""
    return round(2 ** ((bucket - 0.5) / BUCKETS_PER_DOUBLING)) if bucket else 0


def percentile(counts: Counter[int], share: float) -> int | None:
    """Return a percentile of times that are counted by bucket."""
    rank, seen = share * counts.total(), 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if counts[bucket] and seen >= rank:
            return bucket_ms(bucket)
    return None


class PlayerReports:
    """Counts reports in Valkey, and reads them from there and from SQL."""

    def __init__(self, functions: Functions, history: ReportHistory, settings: Settings) -> None:
        self._functions = functions
        self._history = history
        self._counts_sources = settings.live_sources

    async def count(self, event: str, country: str, beat: Heartbeat, *, starts: bool) -> None:
        """Count what a heartbeat reports, if anything. `starts`: it began a viewing session. One round trip."""
        fields: list[str | int] = []
        device, site = (beat.device, (beat.referrer or "").lower()) if self._counts_sources else (None, None)
        if starts:
            for metric, name in (("device", device), ("referrer", site)):
                if name:
                    fields += [f"{metric}#{name}#0", 1]
        if beat.quality is not None:
            for suffix, name in (("", country), (BY_DEVICE, device), (BY_SITE, site)):
                if name:
                    fields += _quality_fields(beat.quality, suffix, name)
        if fields:
            await self._functions.run("live_count_reports", [keys.EVENT_REPORTS(event)], *fields)

    async def quality(self, event: str) -> QualityReport:
        """Return percentiles and sums by country, device and site. One round trip and one query."""
        counts = await self._read(event)
        everywhere = _group(counts, "", lambda _: "").get("", {})
        return QualityReport(
            CountryQuality(country=None, **_figures(everywhere)),
            [CountryQuality(country=name, **figures) for name, figures in _by_name(counts, "")],
            [DeviceQuality(device=name, **figures) for name, figures in _by_name(counts, BY_DEVICE)],
            [ReferrerQuality(referrer=name or OTHER_SITES, **figures) for name, figures in _by_name(counts, BY_SITE)],
        )

    async def sources(self, event: str) -> AudienceSources:
        """Return viewing sessions by device and by referring site, the most first. One round trip and one query."""
        counts = await self._read(event)
        found: dict[str, Counter[str]] = {"device": Counter(), "referrer": Counter()}
        for (metric, name, _), count in counts.items():
            if metric in found:
                found[metric][name or OTHER_SITES] += count
        return AudienceSources(*(dict(each.most_common()) for each in found.values()))

    async def _read(self, event: str) -> Counter[Field]:
        """Return all counts of an event: those of the current keys, and those of earlier lives in SQL."""
        current, born_at = await _read_current(self._functions.valkey, event)
        counts = await self._history.read(event, except_born_at=born_at)
        counts.update(current)
        return counts


async def save_reports(valkey: Valkey, history: ReportHistory, event: str) -> None:
    """Write the current counts of an event to SQL."""
    counts, born_at = await _read_current(valkey, event)
    if counts and born_at is not None:
        await history.save(event, born_at, counts)


async def _read_current(valkey: Valkey, event: str) -> tuple[Counter[Field], int | None]:
    """Return the counts in Valkey, and which life of the event they belong to."""
    fields, born = await valkey.batch(
        [("HGETALL", keys.EVENT_REPORTS(event)), ("HGET", keys.EVENT_INFO(event), "born")]
    )
    return _parse(fields), to_ms(born)


def _parse(fields: dict[str, str]) -> Counter[Field]:
    found: Counter[Field] = Counter()
    for field, count in fields.items():
        metric, _, rest = field.partition("#")
        name, _, bucket = rest.rpartition("#")
        if bucket.isdecimal() and count.isdecimal():
            found[metric, name, int(bucket)] += int(count)
    return found


def _quality_fields(quality: PlaybackQuality, suffix: str, name: str) -> Iterator[str | int]:
    """Yield what a report adds to the counts of a country, a device or a site: field, amount, …"""
    counted = [("reports", 0, 1)]
    for metric, ms in (("start", quality.start_ms), ("buffering", quality.buffering_ms)):
        if ms is not None:
            counted.append((metric, bucket_of(int(ms)), 1))
    for metric, count in (("stalls", quality.buffering_count), ("errors", quality.errors)):
        if count:
            counted.append((metric, 0, count))
    for metric, bucket, count in counted:
        yield f"{metric}{suffix}#{name}#{bucket}"
        yield count


def _by_name(counts: Counter[Field], suffix: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the fields of `QualityFigures` of each country, device or site, those with the most reports first."""
    found = _group(counts, suffix, lambda name: name)
    rows = [(name, _figures(buckets)) for name, buckets in found.items()]
    return sorted(rows, key=lambda row: (-row[1]["reports"], row[0]))


def _group(counts: Counter[Field], suffix: str, group_of: Callable[[str], str]) -> dict[str, Buckets]:
    metrics = {f"{metric}{suffix}": metric for metric in QUALITY_METRICS}
    found: dict[str, Buckets] = {}
    for (metric, name, bucket), count in counts.items():
        if metric in metrics:
            found.setdefault(group_of(name), {}).setdefault(metrics[metric], Counter())[bucket] += count
    return found


def _figures(buckets: Buckets) -> dict[str, Any]:
    reports, start, buffering, stalls, errors = (buckets.get(metric, Counter()) for metric in QUALITY_METRICS)
    return {
        "reports": reports.total(),
        "start_ms_p50": percentile(start, 0.5),
        "start_ms_p95": percentile(start, 0.95),
        "buffering_ms_p50": percentile(buffering, 0.5),
        "buffering_ms_p95": percentile(buffering, 0.95),
        "stalls": stalls.total(),
        "errors": errors.total(),
    }
