"""Exports, deletes and renames what articles store about a user.

A user's articles and votes are found by their indexes (`articles:<username>:posted`, `…:voted`), without a scan of all
articles. Deleting and renaming shorten these indexes step by step, so a second run after a crash continues.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec

from plaza.articles.keys import ARTICLE, ARTICLE_DOWN, ARTICLE_UP, USER_ARTICLES, USER_VOTES
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.errors import NotFound

# Articles or votes that one step reads or removes.
STEP: Final = 100

_PREFIX = len("article:")
# Deleting a user may happen without the user's token, so it runs with admin rights.
_DELETER: Final = Actor("@forget", "admin")


class ArticlesPersonalData:
    """A user's articles and votes."""

    def __init__(self, articles: Articles) -> None:
        self._articles = articles
        self._functions = articles.functions
        self._valkey = articles.valkey

    async def export(self, username: str) -> dict[str, Any]:
        """Return a user's articles and votes, as async iterators."""
        return {"articles": self._export_articles(username), "votes": self._export_votes(username)}

    async def _export_articles(self, username: str) -> AsyncIterator[dict[str, Any]]:
        async for rows in self._pages(USER_ARTICLES(username)):
            for article in await self._articles.read_many(None, [id for id, _ in rows]):
                if article is not None:
                    exported = msgspec.to_builtins(article)
                    del exported["vote"]  # the viewer's vote, and an export has no viewer
                    yield exported

    async def _export_votes(self, username: str) -> AsyncIterator[dict[str, Any]]:
        async for rows in self._pages(USER_VOTES(username)):
            for id, score in rows:
                yield {"article": id, "direction": "up" if score > 0 else "down"}

    async def delete(self, username: str) -> None:
        """Delete a user's articles and remove their votes, also after voting has closed. Repeatable."""
        await self._drain(USER_ARTICLES(username), self._delete)
        await self._drain(USER_VOTES(username), lambda id: self._remove_vote(username, id))

    async def rename(self, old: str, new: str) -> None:
        """Move a user's articles and votes to a new name. Repeatable."""
        for key in (USER_ARTICLES(old), USER_VOTES(old)):
            await self._drain(key, lambda id: self._rename(old, new, id))

    async def _pages(self, key: str) -> AsyncIterator[list[tuple[int, float]]]:
        first = 0
        while rows := await self._valkey.call("ZRANGE", key, first, first + STEP - 1, "WITHSCORES"):
            yield [(int(member[_PREFIX:]), float(score)) for member, score in rows]
            first += STEP

    async def _drain(self, key: str, remove: Callable[[int], Awaitable[object]]) -> None:
        """Call `remove` for every article in an index until the index is empty."""
        while members := await self._valkey.call("ZRANGE", key, 0, STEP - 1):
            await asyncio.gather(*(_ignore_missing(remove(int(member[_PREFIX:]))) for member in members))
            # `remove` has updated the index, except for entries that were wrong.
            await self._valkey.call("ZREM", key, *members)

    async def _delete(self, id: int) -> None:
        await self._articles.delete(_DELETER, id)

    async def _rename(self, old: str, new: str, id: int) -> None:
        await self._functions.run("articles_rename", [ARTICLE(id), ARTICLE_UP(id), ARTICLE_DOWN(id)], id, old, new)

    async def _remove_vote(self, username: str, id: int) -> None:
        keys = [ARTICLE(id), ARTICLE_UP(id), ARTICLE_DOWN(id)]
        await self._functions.run("articles_vote", keys, id, username, "none", 0, 0, "")


async def _ignore_missing(removal: Awaitable[object]) -> None:
    with contextlib.suppress(NotFound):  # the article was deleted meanwhile
        await removal
