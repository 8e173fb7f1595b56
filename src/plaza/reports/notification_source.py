"""The reports' part of notifications: an admin closed a user's report."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from sqlalchemy import select

from plaza.core.events import Event
from plaza.core.notification_source import (
    Absence,
    Activity,
    GroupName,
    NotificationSource,
    NotificationSubject,
    excerpt,
)
from plaza.core.search_source import SCAN_BATCH
from plaza.core.sql import Sql
from plaza.reports.events import ReportReopened, ReportResolved
from plaza.reports.tables import REPORTS

_STATES: Final = ("resolved", "dismissed")


class ReportNotifications(NotificationSource):
    """What became of a user's reports. The reported user is not told who reported."""

    stream: Final = "reports"
    kinds: Final = ("report",)
    events: Final = (ReportResolved, ReportReopened)

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def activities(self, events: Sequence[Event]) -> list[Activity]:
        """Return both ways in which reports can be closed. One statement."""
        reports = await self._reports([int(event.data["report"]) for event in events])
        return _closed(list(reports.values()))

    async def times(self, activities: Sequence[Activity]) -> list[int | None]:
        """Return when reports were closed. One statement."""
        reports = await self._reports([_report_id(one.group.subject) for one in activities])
        return [_closed_at(one, reports.get(_report_id(one.group.subject))) for one in activities]

    async def describe(
        self, recipient: str, subjects: Sequence[tuple[str, str]]
    ) -> list[NotificationSubject | Absence]:
        """Return reports with the beginning of their reasons. One statement."""
        reports = await self._reports([_report_id(subject) for _, subject in subjects])
        return [_described(reports.get(_report_id(subject))) for _, subject in subjects]

    async def all_activities(self, since_ms: int) -> AsyncIterator[Sequence[Activity]]:
        """Yield the reports that were closed since a time."""
        last = 0
        while rows := await self._sql.fetch_all(
            select(REPORTS)
            .where(REPORTS.c.id > last, REPORTS.c.closed_ms >= since_ms)
            .order_by(REPORTS.c.id)
            .limit(SCAN_BATCH)
        ):
            last = rows[-1].id
            yield _closed(rows)

    async def _reports(self, ids: Sequence[int]) -> dict[int, Any]:
        return {row.id: row for row in await self._sql.fetch_all(select(REPORTS).where(REPORTS.c.id.in_(list(ids))))}


def _closed(rows: Sequence[Any]) -> list[Activity]:
    groups = [GroupName(row.reporter, "moderation", f"report:{row.id}") for row in rows]
    return [Activity(group, f"@{state}") for group in groups for state in _STATES]


def _closed_at(one: Activity, row: Any) -> int | None:
    stands = row is not None and row.reporter == one.group.recipient and f"@{row.state}" == one.actor
    return int(row.closed_ms) if stands and row.closed_ms is not None else None


def _report_id(subject: str) -> int:
    return int(subject.rpartition(":")[2])


def _described(row: Any) -> NotificationSubject | Absence:
    if row is None:
        return Absence.GONE
    return NotificationSubject("report", str(row.id), excerpt(row.reason))
