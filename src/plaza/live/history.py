"""Writes and reads the history of audiences in SQL: viewing sessions, five-minute records, totals.

Writing a row twice changes nothing. A worker may die between SQL and Valkey at any time; the next one repeats the same
writes.

The totals of an audience have one row per *life* of its raw keys (`born_at`). An event that comes back after a purge
starts counting at zero, and its figures are those of all its lives together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from msgspec import DecodeError, Struct, json
from sqlalchemy import Column, Select, and_, case, delete, distinct, func, literal, select, tuple_

from plaza.core.sql import Sql
from plaza.core.username_locks import take_shared_lock, wait_for_shared_locks
from plaza.live.model import AudienceStatistics
from plaza.live.report_history import ReportHistory
from plaza.live.tables import RECORDS, TOTALS, VIEWINGS

# Rows per query, and names in one IN (…).
PAGE_SIZE = 1_000
# The name of the lock between writing viewing sessions and renaming or deleting a user: see `username_locks.py`.
_VIEWINGS_LOCK = "live viewings"
# More than a month of five-minute records.
MAX_RECORDS = 10_000


class ViewingSession(Struct, frozen=True):
    """One viewing session."""

    session: str
    location: str
    viewer: str
    started_at: int
    ended_at: int  # the last heartbeat while it goes on
    under_way: bool = False


class AudienceTotals(Struct, frozen=True):
    """The totals of one life of an audience."""

    born_at: int
    peak: int
    peak_at: int
    logins: int
    attended: int


class RecordedViewings:
    """The viewing sessions in SQL."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def save(
        self, event: str, read: Callable[[], Awaitable[Sequence[ViewingSession]]]
    ) -> Sequence[ViewingSession]:
        """Write the viewing sessions that `read` returns, and return them.

        They are read under a lock, so that no user is renamed or deleted before they are written: the old name would
        come back.
        """
        async with self._sql.begin() as tx:
            await take_shared_lock(tx, _VIEWINGS_LOCK)
            if viewings := await read():
                await tx.execute(self._upsert(), [_row(event, viewing) for viewing in viewings])
        return viewings

    def _upsert(self) -> Any:
        insert = self._sql.insert(VIEWINGS)
        later = case(
            (insert.excluded.ended_at > VIEWINGS.c.ended_at, insert.excluded.ended_at), else_=VIEWINGS.c.ended_at
        )
        return insert.on_conflict_do_update(index_elements=list(VIEWINGS.primary_key), set_={"ended_at": later})

    async def iterate(self, event: str, session: str | None = None) -> AsyncIterator[ViewingSession]:
        """Yield all viewing sessions of an event, or of one session, in the order of the primary key."""
        last: tuple[Any, ...] | None = None
        while True:
            async with self._sql.read() as tx:
                rows = (await tx.execute(viewings_page(event, session, last))).all()
            for row in rows:
                yield ViewingSession(*row)
            if len(rows) < PAGE_SIZE:
                return
            last = tuple(rows[-1])[:4]

    async def find_recorded(
        self, event: str, session: str, location: str, viewers: Sequence[str]
    ) -> set[tuple[str, int]]:
        """Return viewer and start of the viewing sessions that these viewers (at most a page) have at a place."""
        c = VIEWINGS.c
        query = select(c.viewer, c.started_at).where(
            c.event == event, c.session == session, c.location == location, c.viewer.in_(viewers)
        )
        async with self._sql.read() as tx:
            return {(viewer, start) for viewer, start in await tx.execute(query)}

    async def count_attended(self, event: str, session: str | None = None) -> int:
        """Return how many distinct viewers have a viewing session in SQL."""
        c = VIEWINGS.c
        query = select(func.count(distinct(c.viewer))).where(c.event == event)
        if session is not None:
            query = query.where(c.session == session)
        async with self._sql.read() as tx:
            return int((await tx.execute(query)).scalar_one())

    async def find_attended(self, event: str, session: str | None, viewers: Sequence[str]) -> set[str]:
        """Return which of these viewers (at most a page) have a viewing session in SQL."""
        c = VIEWINGS.c
        query = select(c.viewer).distinct().where(c.event == event, c.viewer.in_(viewers))
        if session is not None:
            query = query.where(c.session == session)
        async with self._sql.read() as tx:
            return {viewer for (viewer,) in await tx.execute(query)}

    async def find_latest(self, event: str, viewers: Sequence[str]) -> dict[str, ViewingSession]:
        """Return the latest viewing session of each of these viewers (at most a page) that has one."""
        c = VIEWINGS.c
        selected = (c.event == event, c.viewer.in_(viewers))
        ended = select(c.viewer, func.max(c.ended_at).label("ended_at")).where(*selected).group_by(c.viewer).subquery()
        query = (
            select(c.session, c.location, c.viewer, c.started_at, c.ended_at)
            .join(ended, and_(c.viewer == ended.c.viewer, c.ended_at == ended.c.ended_at))
            .where(*selected)
            .order_by(c.started_at)
        )
        async with self._sql.read() as tx:
            return {row.viewer: ViewingSession(*row) for row in await tx.execute(query)}

    async def list_for_viewer(self, viewer: str) -> list[tuple[str, ViewingSession]]:
        """Return every viewing session of a viewer, with its event."""
        c = VIEWINGS.c
        query = select(c.event, c.session, c.location, c.viewer, c.started_at, c.ended_at).where(c.viewer == viewer)
        async with self._sql.read() as tx:
            return [(event, ViewingSession(*rest)) for event, *rest in await tx.execute(query.order_by(c.started_at))]

    async def rename_viewer(self, old: str, new: str) -> None:
        """Rename a viewer. Viewing sessions of both names with the same start become one. Rename in Valkey first."""
        await wait_for_shared_locks(self._sql, _VIEWINGS_LOCK)
        c = VIEWINGS.c
        columns = [c.event, c.session, c.location, literal(new), c.started_at, c.ended_at]
        names = ["event", "session", "location", "viewer", "started_at", "ended_at"]
        moved = self._sql.insert(VIEWINGS).from_select(names, select(*columns).where(c.viewer == old))
        async with self._sql.begin() as tx:
            await tx.execute(moved.on_conflict_do_nothing())
            await tx.execute(delete(VIEWINGS).where(c.viewer == old))

    async def delete_viewer(self, viewer: str) -> None:
        """Delete a viewer's viewing sessions. Delete them in Valkey first."""
        await wait_for_shared_locks(self._sql, _VIEWINGS_LOCK)
        async with self._sql.begin() as tx:
            await tx.execute(delete(VIEWINGS).where(VIEWINGS.c.viewer == viewer))


class AudienceHistory:
    """The records and totals in SQL; `viewings` has the viewing sessions, `reports` what players reported."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self.viewings = RecordedViewings(sql)
        self.reports = ReportHistory(sql)

    async def save_records(self, event: str, session: str, records: dict[str, str]) -> None:
        """Write five-minute records: end of the five minutes → JSON."""
        rows = [{"event": event, "session": session, "at": int(at), "record": text} for at, text in records.items()]
        insert = self._sql.insert(RECORDS)
        upsert = insert.on_conflict_do_update(
            index_elements=list(RECORDS.primary_key), set_={"record": insert.excluded.record}
        )
        async with self._sql.begin() as tx:
            await tx.execute(upsert, rows)

    async def save_totals(self, event: str, totals: Sequence[tuple[str, AudienceTotals]]) -> None:
        """Write the totals of an event (session empty) and its sessions. Totals only grow; older values are ignored."""
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
        larger: dict[str, Any] = {
            "peak_at": case((new.peak > now.peak, new.peak_at), else_=now.peak_at),
            "peak": case((new.peak > now.peak, new.peak), else_=now.peak),
            "logins": case((new.logins > now.logins, new.logins), else_=now.logins),
            "attended": case((new.attended > now.attended, new.attended), else_=now.attended),
        }
        upsert = insert.on_conflict_do_update(index_elements=list(TOTALS.primary_key), set_=larger)
        async with self._sql.begin() as tx:
            await tx.execute(upsert, rows)

    async def get_lives(self, event: str) -> dict[str, list[AudienceTotals]]:
        """Return the totals of every life of an event (session empty) and of its sessions."""
        found: dict[str, list[AudienceTotals]] = {}
        columns = (TOTALS.c.session, *(TOTALS.c[name] for name in AudienceTotals.__struct_fields__))
        for row in await self._sql.fetch_all(select(*columns).where(TOTALS.c.event == event)):
            session, *totals = tuple(row)
            found.setdefault(session, []).append(AudienceTotals(*totals))
        return found

    async def get_records(self, event: str, session: str, from_ms: int, to_ms: int) -> list[AudienceStatistics]:
        """Return the five-minute records of a time span, oldest first."""
        query = (
            select(RECORDS.c.record)
            .where(RECORDS.c.event == event, RECORDS.c.session == session, RECORDS.c.at.between(from_ms, to_ms))
            .order_by(RECORDS.c.at)
            .limit(MAX_RECORDS)
        )
        found = (decode_statistics(text) for (text,) in await self._sql.fetch_all(query))
        return [record for record in found if record is not None]

    async def iterate_records(
        self, event: str, session: str, from_ms: int, to_ms: int
    ) -> AsyncIterator[AudienceStatistics]:
        """Yield the five-minute records of a time span, oldest first, a page per query."""
        c = RECORDS.c
        query = select(c.at, c.record).where(c.event == event, c.session == session, c.at <= to_ms)
        after = from_ms - 1
        while True:
            page = await self._sql.fetch_all(query.where(c.at > after).order_by(c.at).limit(PAGE_SIZE))
            for row in page:
                if (record := decode_statistics(row.record)) is not None:
                    yield record
            if len(page) < PAGE_SIZE:
                return
            after = page[-1].at

    async def delete_session(self, event: str, session: str) -> None:
        """Delete the viewing sessions, records and totals of a session."""
        async with self._sql.begin() as tx:
            for table in (VIEWINGS, RECORDS, TOTALS):
                await tx.execute(delete(table).where(table.c.event == event, table.c.session == session))


def viewings_page(event: str, session: str | None, last: Sequence[Any] | None) -> Select[Any]:
    """Return the query for the page after `last`, the first four columns of a row.

    With a session, the comparison leaves the session out: SQLite uses the primary key for `session = ?` or for a
    comparison that starts with `session`, not for both, and would read all earlier rows for every page.
    """
    c = VIEWINGS.c
    query = select(c.session, c.location, c.viewer, c.started_at, c.ended_at).where(c.event == event)
    order: tuple[Column[Any], ...] = (c.session, c.location, c.viewer, c.started_at)
    if session is not None:
        query, order, last = query.where(c.session == session), order[1:], last and last[1:]
    if last is not None:
        query = query.where(tuple_(*order) > tuple_(*last))
    return query.order_by(*order).limit(PAGE_SIZE)


def decode_statistics(text: str) -> AudienceStatistics | None:
    """Return a record; None if it cannot be read."""
    try:
        return json.decode(text, type=AudienceStatistics)
    except DecodeError:
        return None


def _row(event: str, viewing: ViewingSession) -> dict[str, Any]:
    return {
        "event": event,
        "session": viewing.session,
        "location": viewing.location,
        "viewer": viewing.viewer,
        "started_at": viewing.started_at,
        "ended_at": viewing.ended_at,
    }
