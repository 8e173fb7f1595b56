"""Hours of the day in time zones, for reminders."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from plaza.core.errors import Invalid

# Files beside the zones: the machine's own zone, and a placeholder.
_NOT_ZONES: Final = {"localtime", "Factory", "posixrules"}


@cache
def time_zones() -> frozenset[str]:
    """Return the names of all time zones."""
    return frozenset({"UTC", *available_timezones()} - _NOT_ZONES)


def require_time_zone(name: str) -> str:
    """Return a time zone's name. Raises Invalid for another text."""
    if name not in time_zones():
        raise Invalid("Unknown time zone. Use a name such as Europe/Berlin or UTC.", field="time_zone")
    return name


def next_hour_ms(after_ms: int, hour: int, time_zone: str) -> int:
    """Return when a local hour next begins after a time, Unix milliseconds: once on each local day.

    An hour that a change of the clock skips counts as the one after it; of one that comes twice, the first counts.
    """
    day, zone = local_date(after_ms, time_zone), _zone(time_zone)
    while True:
        at = datetime(day.year, day.month, day.day, hour, tzinfo=zone)
        if (at_ms := round(at.timestamp() * 1000)) > after_ms:
            return at_ms
        day += timedelta(days=1)


def local_date(ms: int, time_zone: str) -> date:
    """Return the date in a time zone."""
    return datetime.fromtimestamp(ms / 1000, _zone(time_zone)).date()


@cache
def _known_zone(name: str) -> tzinfo:
    return ZoneInfo(name)


def _zone(name: str) -> tzinfo:
    """Return a time zone. A stored one that this machine does not know is UTC."""
    return _known_zone(name) if name in time_zones() else UTC
