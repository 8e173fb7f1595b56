"""The operators' page of articles: find them, with links to what can be done."""

from __future__ import annotations

from typing import Any, Final

from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page
from plaza.web.article_desk import ArticleDesk
from plaza.web.operator_navigation import filtered_path, operator_page
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.text_html import next_page_link

page = PageRoutes()

PATH: Final = "/app/operator/articles"
TAB: Final = "Articles"
ROWS: Final = 50


@page.get("/operator/articles", access=ADMIN)
async def articles(
    request: Request,
    site: PageResponses,
    desk: ArticleDesk,
    number: str = "",
    author: str = "",
    title: str = "",
    cursor: str = "",
) -> Response[str]:
    """List articles by author and words of the title, newest first; a number shows its article alone."""
    visitor = await site.visitors.from_request(request)
    used = {
        "number": number.strip().removeprefix("#"),
        "author": author.strip().removeprefix("@"),
        "title": title.strip(),
    }
    found = await desk.find(visitor.require_user(), **used, page=Page(limit=ROWS, cursor=cursor or None))
    context: dict[str, Any] = {
        "articles": found.articles,
        "open_reports": await desk.open_reports(found.articles),
        "filters": used,
        "more": next_page_link(filtered_path(PATH, **used), found.pagination),
    }
    return operator_page(request, site, visitor, "operator-articles.html", TAB, **context)
