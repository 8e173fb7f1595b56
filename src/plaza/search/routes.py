"""The HTTP routes of the search."""

from __future__ import annotations

from plaza.core.auth import Actor
from plaza.core.http.access import PUBLIC
from plaza.core.http.routes import Routes
from plaza.search.model import QueryText, SearchQuery, SearchResults, Suggestions
from plaza.search.service import Search

route = Routes("search", about="Users, posts, articles, challenges and items by their words.")


@route.get("/search", access=PUBLIC, limit_first=True)
async def search_everything(actor: Actor | None, query: SearchQuery, search: Search) -> SearchResults:
    """Search users, posts, articles, challenges and items, best first. Without `type`, the best five of each."""
    return await search.search(actor, query)


@route.get("/search/suggest", access=PUBLIC)
async def suggest_names(actor: Actor | None, q: QueryText, search: Search) -> Suggestions:
    """Suggest users and hashtags that begin with a text. `@` suggests users only, `#` hashtags only."""
    return await search.suggest(actor, q)
