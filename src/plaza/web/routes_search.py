"""The search page, and the suggestions below the search box."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

from plaza.core.http.access import PUBLIC
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.search_source import MAX_TAG_POSTS
from plaza.search.model import KINDS, Kind, SearchQuery, SearchResults
from plaza.search.query import MAX_QUERY_CHARACTERS, parse_query
from plaza.search.service import Search
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.rendering import html_response, render, tabs
from plaza.web.text_html import next_page_link

page = PageRoutes()

PATH: Final = "/app/search"
TITLES: Final[dict[Kind, str]] = {
    "users": "People",
    "posts": "Posts",
    "articles": "Articles",
    "challenges": "Challenges",
    "items": "Shop",
}
assert tuple(TITLES) == KINDS


@page.get("/search", access=PUBLIC, limit_first=True)
async def search_page(
    request: Request,
    site: PageResponses,
    search: Search,
    q: str = "",
    type: Kind | None = None,
    cursor: str | None = None,
) -> Response[str]:
    """Search users, posts, articles, challenges and items."""
    visitor = await site.visitors.from_request(request)
    query = q.strip()[:MAX_QUERY_CHARACTERS]
    found = SearchResults()
    if query:
        found = await search.search(visitor.actor, SearchQuery(q=query, type=type, cursor=cursor))
    pagination = found.pagination or None
    return site.page(
        request,
        visitor,
        "search.html",
        search=query,
        query=query,
        parsed=parse_query(query),
        tabs=_tabs(query, type) if query else "",
        sections_found=[(TITLES[kind], kind, hits) for kind in KINDS if (hits := getattr(found, kind))],
        kind_only=type is not None,
        did_you_mean=found.did_you_mean,
        search_path=_search_path,
        more=next_page_link(_search_path(query, type), pagination, "More") if pagination else "",
    )


@page.get("/search/suggest", access=PUBLIC)
async def suggestions(request: Request, site: PageResponses, search: Search, q: str = "") -> Response[str]:
    """Suggest users and hashtags for the search box, as a fragment of HTML."""
    visitor = await site.visitors.from_request(request)
    found = await search.suggest(visitor.actor, q[:MAX_QUERY_CHARACTERS])
    html = render("search-suggestions.html", users=found.users, tags=found.tags, max_counted=MAX_TAG_POSTS)
    return html_response(html, is_personal=visitor.actor is not None)


def _search_path(query: str, kind: Kind | None = None) -> str:
    return f"{PATH}?{urlencode({'q': query} | ({'type': kind} if kind else {}), quote_via=quote)}"


def _tabs(query: str, current: Kind | None) -> str:
    views = (("All", _search_path(query)), *((TITLES[kind], _search_path(query, kind)) for kind in KINDS))
    return tabs("Kinds of results", views, TITLES[current] if current else "All")
