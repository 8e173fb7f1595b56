"""The articles' part of the search."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from plaza.articles.keys import ARTICLES_BY_TIME
from plaza.articles.model import Article
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.root_path import with_root
from plaza.core.search_source import SearchDocument, SearchHit, count_in_sorted_set, keys_in_sorted_set


class ArticleSearch:
    """Articles, by title and the host of the link. Groups have no events, so the index could not follow them."""

    kind: Final = "articles"
    weight_events: Final = frozenset({"article.voted"})

    def __init__(self, articles: Articles) -> None:
        self._articles = articles
        self._valkey = articles.valkey

    async def documents(self, keys: Sequence[str]) -> dict[str, SearchDocument]:
        """Return articles. One round trip per hundred."""
        found = await self._read(None, keys)
        return {key: _document(article) for key, article in found.items() if article is not None}

    async def all_keys(self, after: str) -> AsyncIterator[Sequence[str]]:
        """Yield the ids of all articles, oldest first."""
        async for members in keys_in_sorted_set(self._valkey, ARTICLES_BY_TIME(), f"article:{after}"):
            yield [member.removeprefix("article:") for member in members]

    async def count(self, after: str) -> int:
        return await count_in_sorted_set(self._valkey, ARTICLES_BY_TIME(), f"article:{after}")

    async def load(self, viewer: Actor | None, keys: Sequence[str]) -> list[SearchHit | None]:
        """Return articles. One round trip per hundred."""
        found = await self._read(viewer, keys)
        return [None if (article := found.get(key)) is None else _hit(article) for key in keys]

    async def preferred(self, viewer: Actor, keys: Sequence[str]) -> set[str]:
        return set()

    async def weights(self, keys: Sequence[str]) -> dict[str, float]:
        """Return the scores of articles that exist. One round trip per hundred."""
        found = await self._read(None, keys)
        return {key: article.score for key, article in found.items() if article is not None}

    def changed_keys(self, event_type: str, subject: str, data: Mapping[str, Any]) -> Iterable[str]:
        return (str(data["article"]),) if event_type.startswith("article.") and "article" in data else ()

    async def _read(self, viewer: Actor | None, keys: Sequence[str]) -> dict[str, Article | None]:
        ids = [key for key in keys if key.isascii() and key.isdigit() and len(key) <= 16]
        return dict(zip(ids, await self._articles.read_many(viewer, [int(id) for id in ids]), strict=True))


def _document(article: Article) -> SearchDocument:
    return SearchDocument(
        texts=[article.title, _host(article.link)],
        author=article.author.removeprefix("user:"),
        created_ms=round(article.time * 1000),
        weight=article.score,
    )


def _host(link: str) -> str:
    """Return the host of a link; empty if another service wrote something else."""
    try:
        return urlsplit(link).hostname or ""
    except ValueError:
        return ""


def _hit(article: Article) -> SearchHit:
    return SearchHit(
        id=str(article.id),
        title=article.title,
        text=article.link,
        url=with_root(f"/app/articles/{article.id}"),
        author=article.author.removeprefix("user:"),
        created_at=round(article.time * 1000),
        figures={"votes": article.votes},
    )
