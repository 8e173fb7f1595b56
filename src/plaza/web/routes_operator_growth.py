"""The operators' growth page: what happened on each of the last days, as charts with a table behind each."""

from __future__ import annotations

from typing import Any, Final

from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.desk.growth import Growth
from plaza.desk.model import DayFigures
from plaza.web import chart_geometry
from plaza.web.operator_navigation import operator_page
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.rendering import tabs

page = PageRoutes()

TAB: Final = "Growth"
SPANS: Final = ((30, "30 days"), (90, "90 days"), (365, "A year"))
CHARTS: Final = (
    ("new_users", "New users", "Accounts that were registered."),
    ("active", "Active users", "Users who wrote, liked, voted, followed or ordered, within about 1%."),
    ("posts", "Posts", "Posts that were written, also those that were deleted later."),
    ("votes", "Votes", "Votes on articles, also changed ones."),
    ("orders", "Orders", "Orders that were placed, also those that were cancelled later."),
)


@page.get("/operator/growth", access=ADMIN)
async def growth_page(request: Request, site: PageResponses, growth: Growth, days: int = 30) -> Response[str]:
    """Show new users, active users, posts, votes and orders by day."""
    visitor = await site.visitors.from_request(request)
    shown = days if days in dict(SPANS) else SPANS[0][0]
    figures = (await growth.figures(shown)).days
    views = tuple((label, f"/app/operator/growth?days={count}") for count, label in SPANS)
    context: dict[str, Any] = {
        "spans": tabs("Days", views, dict(SPANS)[shown]),
        "charts": [_chart(figures, *chart) for chart in CHARTS],
        "first": figures[0].day,
    }
    return operator_page(request, site, visitor, "operator-growth.html", TAB, **context)


def _chart(days: list[DayFigures], metric: str, title: str, meaning: str) -> dict[str, Any]:
    counts = [(day.day, int(getattr(day, metric))) for day in days]
    values = {n: (count, f"{day}: {count:,}") for n, (day, count) in enumerate(counts)}
    return {
        "id": metric.replace("_", "-"),
        "title": title,
        "meaning": meaning,
        "rows": counts,
        "total": sum(count for _, count in counts),
        "today": counts[-1][1],
        "max": max(count for _, count in counts),
        "bars": [bar for bar in chart_geometry.time_bars(values, len(counts)) if bar.height],
        "has_total": metric != "active",  # one user is active on many days
    }
