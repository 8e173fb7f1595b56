"""The operators' log page: admin and security actions, with filters and a download."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from plaza.accounts.model import LogQuery
from plaza.accounts.routes import log_download
from plaza.accounts.security_log import SqlSecurityLog
from plaza.core import csv_text
from plaza.core.http.access import ADMIN
from plaza.core.http.action_summaries import ActionSummaries
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.web import forms
from plaza.web.operator_navigation import filtered_path, operator_page
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.text_html import next_page_link

page = PageRoutes()

PATH: Final = "/app/operator/log"
ROWS: Final = 50
KINDS: Final = (("", "All"), ("admin", "Admin actions"), ("account", "Account events"))


class LogFilter:
    """The filters of the page as a user enters them. Dates are whole days in UTC; an invalid date is ignored."""

    def __init__(self, **texts: str) -> None:
        self.texts = {name: text.strip()[:300] for name, text in texts.items()}

    def query(self, cursor: str = "") -> LogQuery:
        """Return the query of these filters."""
        exact = {name: self.texts[name] or None for name in ("kind", "q")}
        if exact["kind"] not in ("admin", "account"):
            exact["kind"] = None
        times = {"since": _day_start_ms(self.texts["since"], 0), "until": _day_start_ms(self.texts["until"], 1)}
        return forms.convert_fields({**exact, **times, "limit": ROWS, "cursor": cursor or None}, LogQuery)

    def url(self, path: str) -> str:
        """Return the address of a page with these filters."""
        return filtered_path(path, **self.texts)


def _day_start_ms(text: str, days_after: int) -> int | None:
    try:
        day = date.fromisoformat(text) + timedelta(days=days_after)
    except (ValueError, OverflowError):
        return None
    started = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return max(0, int(started.timestamp() * 1000))


@page.get("/operator/log", access=ADMIN, limit_first=True)
async def log_page(
    request: Request,
    site: PageResponses,
    log: SqlSecurityLog,
    summaries: ActionSummaries,
    q: str = "",
    kind: str = "",
    since: str = "",
    until: str = "",
    cursor: str = "",
) -> Response[str]:
    """List admin and security actions, latest first."""
    visitor = await site.visitors.from_request(request)
    filters = LogFilter(q=q, kind=kind, since=since, until=until)
    query = filters.query(cursor)
    found = await log.search(query, summaries.matching(query.q or ""))
    context: dict[str, Any] = {
        "filters": filters.texts,
        "kinds": KINDS,
        "actions": found.actions,
        "summaries": summaries.by_action,
        "more": next_page_link(filters.url(PATH), found.pagination),
        "download": filters.url(f"{PATH}.csv"),
    }
    return operator_page(request, site, visitor, "operator-log.html", "Log", **context)


@page.get("/operator/log.csv", access=ADMIN, media_type=csv_text.MEDIA_TYPE, limit_first=True)
async def log_csv(
    log: SqlSecurityLog, summaries: ActionSummaries, q: str = "", kind: str = "", since: str = "", until: str = ""
) -> Response[str]:
    """Download the actions that match as CSV."""
    return log_download(log, LogFilter(q=q, kind=kind, since=since, until=until).query(), summaries)
