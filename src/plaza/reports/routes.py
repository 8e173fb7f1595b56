"""The HTTP routes of reports."""

from __future__ import annotations

from plaza.core.auth import Actor
from plaza.core.errors import NotFound
from plaza.core.http.access import ADMIN, USER
from plaza.core.http.request import Request
from plaza.core.http.routes import Routes
from plaza.reports.model import AlreadyReported, NewReport, Report, ReportChange, ReportId, ReportsPage, ReportsQuery
from plaza.reports.service import Reports

route = Routes("reports", about="Reports by users, and the admins' queue of them.")


@route.post(
    "/reports",
    access=USER,
    status=201,
    idempotent=True,
    limit="report",
    limit_first=True,
    raises=[AlreadyReported, NotFound],
    example={"subject": "user", "id": "ben", "reason": "Sends advertising to everyone."},
)
async def create_report(actor: Actor, body: NewReport, request: Request, reports: Reports) -> Report:
    """Report a post, comment, article, challenge post or user to the admins."""
    return await reports.create(actor, body, request.row_operation)


@route.get("/reports", access=ADMIN)
async def list_reports(query: ReportsQuery, reports: Reports) -> ReportsPage:
    """List reports, latest first: the open ones, or those of a thing or an author."""
    found = await reports.page(query)
    return ReportsPage(found.items, found.pagination)


@route.get("/reports/{id}", access=ADMIN)
async def get_report(id: ReportId, reports: Reports) -> Report:
    """Get a report."""
    return await reports.get(id)


@route.patch(
    "/reports/{id}",
    access=ADMIN,
    raises=[AlreadyReported],
    example={"state": "dismissed", "note": "No rule forbids this."},
)
async def set_report_state(actor: Actor, id: ReportId, body: ReportChange, reports: Reports) -> Report:
    """Set the state of a report: close it with a note, or open it again."""
    return await reports.change(actor, id, body)
