"""The figures of each day: new users, active users, posts, votes and orders, counted from the events.

A job reads the new events of every stream in batches. The counts and the position in the stream change in one
transaction, so each event counts once, whatever dies. Who was active is a HyperLogLog of each day in Valkey, which
holds no names and counts no user twice. What an import or the demo brought in did not happen on that day, and does not
count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, get_args

import msgspec
from sqlalchemy import case, select, update

from plaza.core.async_engine import AsyncConnection
from plaza.core.clock import Clock
from plaza.core.event_streams import EventStream, all_streams
from plaza.core.events import Event
from plaza.core.sequences import pairs_to_dict
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey
from plaza.desk.keys import ACTIVE_SECONDS, ACTIVE_USERS
from plaza.desk.model import DayFigures, GrowthFigures, Metric
from plaza.desk.tables import DESK_DAYS, DESK_POSITIONS

# Events in one transaction. Reading them takes 1 ms of the event loop, and 0.2 ms of Valkey.
BATCH: Final = 200
DAY_MS: Final = 86_400_000
METRICS: Final[tuple[Metric, ...]] = get_args(Metric)

# What counts, by the type of its event.
COUNTED: Final[dict[str, Metric]] = {
    "user.registered": "new_users",
    "post.created": "posts",
    "article.voted": "votes",
    "order.placed": "orders",
}
# The field that names who was active, by the type of the event. What admins and jobs do is no activity of a user.
ACTORS: Final = {
    "user.registered": "username",
    "user.updated": "username",
    "user.followed": "follower",
    "post.created": "author",
    "post.edited": "author",
    "post.liked": "username",
    "comment.created": "username",
    "article.posted": "author",
    "article.voted": "username",
    "article.commented": "username",
    "challenge.created": "creator",
    "challenge.joined": "username",
    "challenge.tracked": "username",
    "challenge.posted": "username",
    "challenge.reacted": "username",
    "order.placed": "username",
    "report.created": "reporter",
}
STREAMS: Final = ("social", "articles", "challenges", "shop", "reports")


class Growth:
    """Counts what happens by day, and reads the counts."""

    def __init__(self, sql: Sql, valkey: Valkey, clock: Clock, streams: Iterable[str]) -> None:
        self._sql = sql
        self._valkey = valkey
        self._clock = clock
        self._streams = [name for name in streams if name in STREAMS]

    async def figures(self, days: int) -> GrowthFigures:
        """Return the figures of the last days, today included. One short read."""
        today = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).date()
        shown = [(today - timedelta(days=n)).isoformat() for n in reversed(range(days))]
        rows = await self._sql.fetch_all(select(DESK_DAYS).where(DESK_DAYS.c.day >= shown[0]))
        counts: dict[tuple[str, str], int] = {(row.day, row.metric): row.total for row in rows}
        return GrowthFigures(
            [DayFigures(day, **{name: counts.get((day, name), 0) for name in METRICS}) for day in shown]
        )

    async def count_new(self) -> int:
        """Count the events since the last run, and return how many there were."""
        return sum([await self._count_stream(stream) for name in self._streams for stream in all_streams(name)])

    async def _count_stream(self, stream: EventStream) -> int:
        rows = await self._sql.fetch_all(select(DESK_POSITIONS.c.entry).where(DESK_POSITIONS.c.stream == stream.key))
        position, counted = rows[0].entry if rows else "", 0
        while entries := await self._read(stream, position):
            days = await self._note_active(entries)
            if not await self._store(stream.key, position, entries, days):
                return counted  # another run is ahead
            position = entries[-1].entry_id
            counted += len(entries)
        return counted

    async def _read(self, stream: EventStream, position: str) -> list[Event]:
        start = f"({position}" if position else "-"
        entries = await self._valkey.call("XRANGE", stream.key, start, "+", "COUNT", BATCH)
        return [Event(stream.name, entry[0], _fields(entry[1])) for entry in entries]

    async def _note_active(self, events: Sequence[Event]) -> dict[str, int]:
        """Add the actors to their days, and return how many each of these days has. Repeating it changes nothing."""
        actors: dict[str, set[str]] = {}
        for event in events:
            name = _data(event).get(ACTORS[event.type]) if event.type in ACTORS and not event.origin else None
            if isinstance(name, str) and (day := _day(event)):
                actors.setdefault(day, set()).add(name)
        if not actors:
            return {}
        keys = {day: ACTIVE_USERS(day) for day in actors}
        await self._valkey.batch([("PFADD", keys[day], *sorted(names)) for day, names in actors.items()])
        await self._valkey.batch([("EXPIRE", key, ACTIVE_SECONDS, "NX") for key in keys.values()])
        counts = await self._valkey.batch([("PFCOUNT", key) for key in keys.values()])
        return dict(zip(keys, counts, strict=True))

    async def _store(self, stream: str, before: str, events: Sequence[Event], active: dict[str, int]) -> bool:
        """Add a batch to the counts and move the position; False if another run has moved it."""
        counted = [
            (day, COUNTED[event.type]) for event in events if _is_counted(event) and (day := _day(event)) is not None
        ]
        total = DESK_DAYS.c.total
        async with self._sql.begin() as tx:
            if not await self._move(tx, stream, before, events[-1].entry_id):
                return False
            for (day, metric), count in sorted(Counter(counted).items()):
                await self._upsert(tx, day, metric, count, total + count)
            for day, count in sorted(active.items()):
                # Another run may have counted later, and stored its count first.
                await self._upsert(tx, day, "active", count, case((total < count, count), else_=total))
        return True

    async def _upsert(self, tx: AsyncConnection, day: str, metric: Metric, first: int, later: Any) -> None:
        inserted = self._sql.insert(DESK_DAYS).values(day=day, metric=metric, total=first)
        await tx.execute(inserted.on_conflict_do_update(index_elements=["day", "metric"], set_={"total": later}))

    async def _move(self, tx: AsyncConnection, stream: str, before: str, after: str) -> bool:
        if before:
            at = (DESK_POSITIONS.c.stream == stream) & (DESK_POSITIONS.c.entry == before)
            return bool((await tx.execute(update(DESK_POSITIONS).where(at).values(entry=after))).rowcount)
        inserted = self._sql.insert(DESK_POSITIONS).values(stream=stream, entry=after).on_conflict_do_nothing()
        return bool((await tx.execute(inserted)).rowcount)


def _is_counted(event: Event) -> bool:
    if event.origin or event.type not in COUNTED:
        return False
    return event.type != "article.voted" or _data(event).get("direction") in ("up", "down")


def _fields(flat: Any) -> dict[str, str]:
    return dict(flat) if isinstance(flat, dict) else pairs_to_dict(flat)


def _data(event: Event) -> dict[str, Any]:
    """Return the data of an event; empty if another service wrote something else."""
    try:
        data = event.data
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return data if isinstance(data, dict) else {}


def _day(event: Event) -> str | None:
    """Return the day of an event in UTC; None if its time makes no sense."""
    try:
        return _day_name(event.time // DAY_MS)
    except (ValueError, OverflowError, OSError):
        return None


@lru_cache(16)  # most events are of today
def _day_name(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat()
