"""Finds articles for operators, by what the domains that run offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from plaza.articles.lists import ArticleLists
from plaza.articles.model import Article, ArticleId, ArticlesPage, ArticlesQuery
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.paging import Page, Pagination
from plaza.core.tokens import is_username
from plaza.reports.service import Reports
from plaza.search.query import MAX_QUERY_CHARACTERS
from plaza.search.service import Search

_NOTHING: Final = ArticlesPage([], Pagination(0, 0, None))


class ArticleDesk:
    """Articles for operators: the newest, those of an author, those with words in the title, or one."""

    def __init__(self, articles: Articles, lists: ArticleLists, search: Search | None, reports: Reports | None) -> None:
        self._articles = articles
        self._lists = lists
        self._search = search
        self._reports = reports

    async def find(self, admin: Actor, number: str, author: str, title: str, page: Page) -> ArticlesPage:
        """Return the article with a number, or a page of those of an author with words in the title."""
        if number:
            return await self._one(number)
        if author and not is_username(author):
            return _NOTHING
        if title and self._search is not None:
            return await self._search_titles(self._search, admin, f"from:{author} {title}" if author else title, page)
        if author:
            return await self._lists.posted_by(admin, author, page)
        return await self._lists.list_articles(admin, ArticlesQuery(order="time", limit=page.limit, cursor=page.cursor))

    async def _one(self, number: str) -> ArticlesPage:
        try:
            id = msgspec.convert(number, ArticleId, strict=False)
        except msgspec.ValidationError:
            return _NOTHING
        return ArticlesPage(_existing(await self._articles.read_many(None, [id])), _NOTHING.pagination)

    async def _search_titles(self, search: Search, admin: Actor, text: str, page: Page) -> ArticlesPage:
        found = await search.page(admin, "articles", text[:MAX_QUERY_CHARACTERS], page)
        articles = await self._articles.read_many(admin, [int(hit.id) for hit in found.items])
        return ArticlesPage(_existing(articles), found.pagination)

    async def open_reports(self, articles: Sequence[Article]) -> Mapping[str, int]:
        """Return how many open reports articles have, by id; those without one are missing. One statement."""
        if self._reports is None or not articles:
            return {}
        return await self._reports.count_open("article", [str(article.id) for article in articles])


def _existing(articles: Sequence[Article | None]) -> list[Article]:
    return [article for article in articles if article is not None]
