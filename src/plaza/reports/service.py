"""Reports: create, list, close."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, bindparam, func, select, update

from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import NotFound
from plaza.core.paging import PageResult, page_by_position
from plaza.core.report_source import ReportedThing, ReportSource
from plaza.core.sql import Sql
from plaza.core.sql_events import add_events
from plaza.core.sql_idempotency import release_operation
from plaza.core.sql_paging import ids_in_table, newest_ids
from plaza.core.username_locks import lock_username
from plaza.core.valkey import Valkey
from plaza.reports.events import STREAM, ReportCreated, ReportReopened, ReportResolved
from plaza.reports.model import AlreadyReported, ClosedByAnother, NewReport, Report, ReportChange, ReportsQuery, Subject
from plaza.reports.tables import REPORTS

_OTHERS = REPORTS.alias()
_OF_THING = (
    select(func.count())
    .select_from(_OTHERS)
    .where(_OTHERS.c.kind == REPORTS.c.kind, _OTHERS.c.thing == REPORTS.c.thing)
    .scalar_subquery()
    .label("of_thing")
)
_OF_AUTHOR = (
    select(func.count())
    .select_from(_OTHERS)
    .where(_OTHERS.c.author == REPORTS.c.author)
    .scalar_subquery()
    .label("of_author")
)
_BY_IDS = select(REPORTS, _OF_THING, _OF_AUTHOR).where(REPORTS.c.id.in_(bindparam("ids", expanding=True)))

_OPEN_COUNTS = (
    select(REPORTS.c.thing, func.count().label("reports"))
    .where(
        REPORTS.c.state == "open",
        REPORTS.c.kind == bindparam("subject"),
        REPORTS.c.thing.in_(bindparam("ids", expanding=True)),
    )
    .group_by(REPORTS.c.thing)
)


class Reports:
    """The queue of reports."""

    def __init__(self, sql: Sql, valkey: Valkey, sources: Mapping[str, ReportSource], clock: Clock) -> None:
        self._sql = sql
        self._valkey = valkey
        self._sources = sources
        self._clock = clock

    async def create(self, actor: Actor, new: NewReport, operation: str | None = None) -> Report:
        """Report something that the caller can see. One open report for each user and thing; another is 409.

        The same operation again returns the same report.
        """
        thing = await self._source(new.subject).find(actor, new.id)
        now = self._clock.now_ms()
        values = {
            "kind": new.subject,
            "thing": new.id,
            "author": thing.author,
            "reporter": actor.name,
            "reason": new.reason,
            "state": "open",
            "note": "",
            "admin": "",
            "created_ms": now,
            "operation": operation,
        }
        async with self._sql.begin() as tx:
            await lock_username(tx, self._valkey, actor.name, actor.since_ms)
            await release_operation(tx, REPORTS, operation, now)
            statement = self._sql.insert(REPORTS).values(values).on_conflict_do_nothing()
            row = (await tx.execute(statement.returning(REPORTS))).one_or_none()
            if row is not None:
                await add_events(tx, STREAM, [ReportCreated(*_event_fields(row))], now)
                return _report(row)
            if operation is not None:
                row = (await tx.execute(select(REPORTS).where(REPORTS.c.operation == operation))).one_or_none()
        if row is None:
            raise AlreadyReported("Your report of this is open. An admin will look at it.")
        return _report(row)

    async def get(self, id: int) -> Report:
        """Return a report with its counts. One statement."""
        (found,) = await self._load([str(id)])
        if found is None:
            raise _missing(id)
        return found

    async def page(self, query: ReportsQuery) -> PageResult[Report]:
        """List reports, latest first. Two statements."""
        where: list[ColumnElement[bool]] = []
        if query.state != "all":
            where.append(REPORTS.c.state == query.state)
        if query.subject is not None:
            where.append(REPORTS.c.kind == query.subject)
        if query.author is not None:
            where.append(REPORTS.c.author == query.author)
        if query.subject_id is not None:
            where.append(REPORTS.c.thing == query.subject_id)
        name = f"reports {query.state} {query.subject} {query.author} {query.subject_id}"
        after = ids_in_table(self._sql, name, newest_ids(REPORTS.c.id, *where))
        return await page_by_position(name, query, after, self._load)

    async def count_open(self, subject: Subject, ids: Sequence[str]) -> dict[str, int]:
        """Return how many open reports things have, by id; those without one are missing. One statement."""
        rows = await self._sql.fetch_all(_OPEN_COUNTS, subject=subject, ids=list(ids))
        return {row.thing: row.reports for row in rows}

    async def change(self, actor: Actor, id: int, change: ReportChange, *, own_or_open: bool = False) -> Report:
        """Close a report, with a note, or open it again. Closing it again changes the note only.

        With `own_or_open` a report that another admin has closed is not changed (`ClosedByAnother`).
        """
        now, is_open = self._clock.now_ms(), change.state == "open"
        values = {
            "state": change.state,
            "note": change.note,
            "admin": "" if is_open else actor.name,
            "closed_ms": None if is_open else now,
        }
        async with self._sql.begin() as tx:
            await lock_username(tx, self._valkey, actor.name, actor.since_ms)
            before = (await tx.execute(select(REPORTS).where(REPORTS.c.id == id).with_for_update())).one_or_none()
            if before is None:
                raise _missing(id)
            if own_or_open:
                require_own_or_open(before.state, before.admin, actor.name)
            if is_open and before.state != "open" and await _has_open_report(tx, before):
                raise AlreadyReported("The reporter has another open report of this. Work on that one.")
            statement = update(REPORTS).where(REPORTS.c.id == id).values(values).returning(REPORTS)
            row = (await tx.execute(statement)).one()
            if before.state != row.state:
                await add_events(tx, STREAM, [_changed(row, actor.name)], now)
        return await self.get(id)

    async def find_thing(self, viewer: Actor, subject: str, id: str) -> ReportedThing | None:
        """Return what was reported, or could be; None if it is gone."""
        try:
            return await self._source(subject).find(viewer, id)
        except NotFound:
            return None

    def removal(self, report: Report) -> str:
        """Return how an admin removes what was reported: `ban`, `delete`, or empty."""
        source = self._sources.get(report.subject)
        return source.removal if source else ""

    async def remove_thing(self, admin: Actor, report: Report) -> None:
        """Ban or delete what was reported, if it is still there."""
        try:
            await self._source(report.subject).remove(admin, report.subject_id)
        except NotFound:
            return

    def _source(self, kind: str) -> ReportSource:
        source = self._sources.get(kind)
        if source is None:  # the domain is turned off
            raise NotFound("There is no such thing.", subject=kind)
        return source

    async def _load(self, ids: Sequence[str]) -> list[Report | None]:
        wanted = [int(id) for id in ids]
        rows = await self._sql.fetch_all(_BY_IDS, ids=wanted)
        found = {row.id: _report(row, row.of_thing, row.of_author) for row in rows}
        return [found.get(id) for id in wanted]


def require_own_or_open(state: str, closed_by: str, admin: str) -> None:
    """Raise `ClosedByAnother` if another admin has closed the report."""
    if state != "open" and closed_by != admin:
        raise ClosedByAnother(f"{closed_by or 'Another admin'} has closed this report. It is {state}.")


async def _has_open_report(tx: Any, row: Any) -> bool:
    same = (REPORTS.c.kind == row.kind, REPORTS.c.thing == row.thing, REPORTS.c.reporter == row.reporter)
    found = await tx.execute(select(REPORTS.c.id).where(*same, REPORTS.c.state == "open"))
    return found.first() is not None


def _event_fields(row: Any) -> tuple[int, str, str, str, str]:
    return row.id, row.kind, row.thing, row.author, row.reporter


def _changed(row: Any, admin: str) -> ReportResolved | ReportReopened:
    if row.state == "open":
        return ReportReopened(*_event_fields(row), admin=admin)
    return ReportResolved(*_event_fields(row), state=row.state, admin=admin)


def _report(row: Any, of_thing: int | None = None, of_author: int | None = None) -> Report:
    return Report(
        id=row.id,
        subject=row.kind,
        subject_id=row.thing,
        author=row.author,
        reporter=row.reporter,
        reason=row.reason,
        state=row.state,
        created_at=row.created_ms,
        note=row.note,
        admin=row.admin,
        closed_at=row.closed_ms,
        subjectReports=of_thing,
        authorReports=of_author,
    )


def _missing(id: int) -> NotFound:
    return NotFound("No report has this id.", id=id)
