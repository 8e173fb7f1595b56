"""Atom feeds of articles: all, and those of a group."""

from __future__ import annotations

from plaza.articles.lists import ArticleLists
from plaza.articles.model import Article, ArticlesPage, ArticlesQuery, Order
from plaza.core.atom import ENTRIES, AtomEntry, atom_response
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.router import encode_segment
from plaza.core.root_path import public_url
from plaza.core.settings import Settings


class ArticleAtomFeeds:
    """Feeds of articles. As a page of the same list costs."""

    def __init__(self, lists: ArticleLists, settings: Settings) -> None:
        self._lists = lists
        self._settings = settings

    async def all(self, request: Request, order: Order) -> Response[bytes]:
        """The first articles in an order."""
        found = await self._lists.list_articles(None, ArticlesQuery(limit=ENTRIES, order=order))
        return self._response(request, f"/articles.atom?order={order}", "/app/articles", "Articles on Plaza", found)

    async def group(self, request: Request, name: str) -> Response[bytes]:
        """The newest articles of a group."""
        found = await self._lists.list_group(None, name, ArticlesQuery(limit=ENTRIES, order="time"))
        segment = encode_segment(name)
        title = f"{name}: articles on Plaza"
        return self._response(request, f"/groups/{segment}.atom", f"/app/groups/{segment}", title, found)

    def _response(self, request: Request, path: str, page: str, title: str, found: ArticlesPage) -> Response[bytes]:
        return atom_response(
            request, public_url(self._settings), path, page, title, [_entry(article) for article in found.articles]
        )


def _entry(article: Article) -> AtomEntry:
    return AtomEntry(
        id=f"/app/articles/{article.id}",
        title=article.title,
        path=f"/app/articles/{article.id}",
        author=article.author.removeprefix("user:"),
        published_ms=article.time * 1000,
        updated_ms=article.time * 1000,
        link=article.link if article.link.startswith(("http://", "https://")) else "",
    )
