"""What SQL remembers of audiences. No address is ever in it.

Everything is written under a key of its own with an absolute value, so writing it again changes nothing: a worker may
die between SQL and Valkey at any point, and the next one simply does the same once more.

An audience's totals have one row per *life* of its raw keys (`born_at`): an event that comes back after a purge begins
to count at zero, and its figures are those of all its lives together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import json
from sqlalchemy import (
    BigInteger,
    Column,
    String,
    Table,
    Text,
    and_,
    case,
    delete,
    distinct,
    func,
    literal,
    select,
    tuple_,
)

from plaza.core.sql import Sql, metadata
from plaza.core.username_locks import take_shared_lock, wait_for_shared_locks
from plaza.live.model import AudienceStatistics

METADATA = metadata()
VIEWINGS = Table(
    "live_viewings",
    METADATA,
    Column("event", String(128), primary_key=True),
    Column("session", String(128), primary_key=True),  # empty outside any
    Column("location", String(128), primary_key=True),
    Column("viewer", String(128), primary_key=True, index=True),
    Column("started_at", BigInteger, primary_key=True),
    Column("ended_at", BigInteger, nullable=False),
)
RECORDS = Table(
    "live_records",
    METADATA,
    Column("event", String(128), primary_key=True),
    Column("session", String(128), primary_key=True),  # empty for the event as a whole
    Column("at", BigInteger, primary_key=True),
    Column("record", Text, nullable=False),
)
TOTALS = Table(
    "live_totals",
    METADATA,
    Column("event", String(128), primary_key=True),
    Column("session", String(128), primary_key=True),
    Column("born_at", BigInteger, primary_key=True),
    Column("peak", BigInteger, nullable=False),
    Column("peak_at", BigInteger, nullable=False),
    Column("logins", BigInteger, nullable=False),
    Column("attended", BigInteger, nullable=False),
)

# Rows a query fetches at a time, and names in one IN (…).
PAGE = 1_000
# Who writes names from Valkey, and who changes them: see `bearers.py`.
_VIEWINGS = "live viewings"
# More than a month of five-minute records.
MOST_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class ViewingSession:
    """One viewing session."""

    session: str
    location: str
    viewer: str
    started_at: int
    ended_at: int  # or last known to go on
    under_way: bool = False


@dataclass(frozen=True, slots=True)
class AudienceTotals:
    """One life of an audience, as a whole."""

    born_at: int
    peak: int
    peak_at: int
    logins: int
    attended: int


class AudienceHistory:
    """Reads and writes the tables."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def keep_viewings(
        self, event: str, read: Callable[[], Awaitable[Sequence[ViewingSession]]]
    ) -> Sequence[ViewingSession]:
        """Write the viewing sessions that `read` gives, and give them too.

        They are read when nobody can be renamed or forgotten until they are written: the name would come back.
        """
        async with self._sql.begin() as tx:
            await take_shared_lock(tx, _VIEWINGS)
            if viewings := await read():
                await tx.execute(self._upsert_viewings(), [_row(event, viewing) for viewing in viewings])
        return viewings

    def _upsert_viewings(self) -> Any:
        insert = self._sql.insert(VIEWINGS)
        later = case(
            (insert.excluded.ended_at > VIEWINGS.c.ended_at, insert.excluded.ended_at), else_=VIEWINGS.c.ended_at
        )
        return insert.on_conflict_do_update(index_elements=list(VIEWINGS.primary_key), set_={"ended_at": later})

    async def keep_records(self, event: str, session: str, records: dict[str, str]) -> None:
        rows = [{"event": event, "session": session, "at": int(at), "record": text} for at, text in records.items()]
        insert = self._sql.insert(RECORDS)
        upsert = insert.on_conflict_do_update(
            index_elements=list(RECORDS.primary_key), set_={"record": insert.excluded.record}
        )
        async with self._sql.begin() as tx:
            await tx.execute(upsert, rows)

    async def keep_totals(self, event: str, totals: Sequence[tuple[str, AudienceTotals]]) -> None:
        """The totals of an event (session empty) and its sessions. They only grow, so an older word changes nothing."""
        rows = [
            {
                "event": event,
                "session": session,
                "born_at": t.born_at,
                "peak": t.peak,
                "peak_at": t.peak_at,
                "logins": t.logins,
                "attended": t.attended,
            }
            for session, t in totals
            if t.born_at
        ]
        if not rows:
            return
        insert, now = self._sql.insert(TOTALS), TOTALS.c
        new = insert.excluded
        grown: dict[str, Any] = {
            "peak_at": case((new.peak > now.peak, new.peak_at), else_=now.peak_at),
            "peak": case((new.peak > now.peak, new.peak), else_=now.peak),
            "logins": case((new.logins > now.logins, new.logins), else_=now.logins),
            "attended": case((new.attended > now.attended, new.attended), else_=now.attended),
        }
        upsert = insert.on_conflict_do_update(index_elements=list(TOTALS.primary_key), set_=grown)
        async with self._sql.begin() as tx:
            await tx.execute(upsert, rows)

    async def lives(self, event: str) -> dict[str, list[AudienceTotals]]:
        """The totals of every life of an event (session empty) and of its sessions."""
        found: dict[str, list[AudienceTotals]] = {}
        columns = (TOTALS.c.session, *(TOTALS.c[name] for name in AudienceTotals.__dataclass_fields__))
        for row in await self._sql.fetch_all(select(*columns).where(TOTALS.c.event == event)):
            session, *totals = tuple(row)
            found.setdefault(session, []).append(AudienceTotals(*totals))
        return found

    async def records(self, event: str, session: str, from_ms: int, to_ms: int) -> list[AudienceStatistics]:
        query = (
            select(RECORDS.c.record)
            .where(RECORDS.c.event == event, RECORDS.c.session == session, RECORDS.c.at.between(from_ms, to_ms))
            .order_by(RECORDS.c.at)
            .limit(MOST_RECORDS)
        )
        return [json.decode(text, type=AudienceStatistics) for (text,) in await self._sql.fetch_all(query)]

    async def viewings(self, event: str, session: str | None = None) -> AsyncIterator[ViewingSession]:
        """All of an event, or of one session, in the order of the primary key, a page at a time."""
        c = VIEWINGS.c
        columns = (c.session, c.location, c.viewer, c.started_at, c.ended_at)
        order = (c.session, c.location, c.viewer, c.started_at)
        last: tuple[Any, ...] | None = None
        while True:
            query = select(*columns).where(c.event == event)
            if session is not None:
                query = query.where(c.session == session)
            if last is not None:
                query = query.where(_after(order, last))
            async with self._sql.read() as tx:
                rows = (await tx.execute(query.order_by(*order).limit(PAGE))).all()
            for row in rows:
                yield ViewingSession(*row)
            if len(rows) < PAGE:
                return
            last = tuple(rows[-1])[:4]

    async def attended(self, event: str, session: str | None = None) -> int:
        """How many different people have a viewing session in SQL."""
        c = VIEWINGS.c
        query = select(func.count(distinct(c.viewer))).where(c.event == event)
        if session is not None:
            query = query.where(c.session == session)
        async with self._sql.read() as tx:
            return int((await tx.execute(query)).scalar_one())

    async def known(self, event: str, session: str | None, viewers: Sequence[str]) -> set[str]:
        """Which of these people (at most a page of them) have a viewing session in SQL."""
        c = VIEWINGS.c
        query = select(c.viewer).distinct().where(c.event == event, c.viewer.in_(viewers))
        if session is not None:
            query = query.where(c.session == session)
        async with self._sql.read() as tx:
            return {viewer for (viewer,) in await tx.execute(query)}

    async def last(self, event: str, viewers: Sequence[str]) -> dict[str, ViewingSession]:
        """The latest viewing session of each of these people (at most a page of them), as far as there is any."""
        c = VIEWINGS.c
        mine = (c.event == event, c.viewer.in_(viewers))
        ended = select(c.viewer, func.max(c.ended_at).label("ended_at")).where(*mine).group_by(c.viewer).subquery()
        query = (
            select(c.session, c.location, c.viewer, c.started_at, c.ended_at)
            .join(ended, and_(c.viewer == ended.c.viewer, c.ended_at == ended.c.ended_at))
            .where(*mine)
            .order_by(c.started_at)
        )
        async with self._sql.read() as tx:
            return {row.viewer: ViewingSession(*row) for row in await tx.execute(query)}

    async def of_viewer(self, viewer: str) -> list[tuple[str, ViewingSession]]:
        """Everything about one person: event and viewing session."""
        c = VIEWINGS.c
        query = select(c.event, c.session, c.location, c.viewer, c.started_at, c.ended_at).where(c.viewer == viewer)
        async with self._sql.read() as tx:
            return [(event, ViewingSession(*rest)) for event, *rest in await tx.execute(query.order_by(c.started_at))]

    async def rename(self, old: str, new: str) -> None:
        """A viewing session that both names have, from the same moment, is one. Valkey has the new name already."""
        await wait_for_shared_locks(self._sql, _VIEWINGS)
        c = VIEWINGS.c
        columns = [c.event, c.session, c.location, literal(new), c.started_at, c.ended_at]
        names = ["event", "session", "location", "viewer", "started_at", "ended_at"]
        moved = self._sql.insert(VIEWINGS).from_select(names, select(*columns).where(c.viewer == old))
        async with self._sql.begin() as tx:
            await tx.execute(moved.on_conflict_do_nothing())
            await tx.execute(delete(VIEWINGS).where(c.viewer == old))

    async def forget(self, viewer: str) -> None:
        """Remove a person's viewing sessions. Valkey has none already."""
        await wait_for_shared_locks(self._sql, _VIEWINGS)
        async with self._sql.begin() as tx:
            await tx.execute(delete(VIEWINGS).where(VIEWINGS.c.viewer == viewer))


def _row(event: str, viewing: ViewingSession) -> dict[str, Any]:
    return {
        "event": event,
        "session": viewing.session,
        "location": viewing.location,
        "viewer": viewing.viewer,
        "started_at": viewing.started_at,
        "ended_at": viewing.ended_at,
    }


def _after(order: Sequence[Any], last: Sequence[Any]) -> Any:
    """Rows that come after one in an order: compared column by column, as both databases can."""
    return tuple_(*order) > tuple_(*last)
