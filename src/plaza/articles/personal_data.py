"""What articles hold about one person: to hand out, to remove, to put under another name.

A person's articles and votes are found by the lists that follow from them (`articles:<username>:posted`, `…:voted`),
not by looking through all articles. Removing and renaming go by those lists too, and each step shortens them: whoever
begins again after a crash goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec

from plaza.articles.keys import ARTICLE, ARTICLE_DOWN, ARTICLE_UP, PERSON_ARTICLES, PERSON_VOTES
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.errors import NotFound

# How many articles or votes one step reads or removes.
STEP: Final = 100

_PREFIX = len("article:")
# The author's own rights are not asked for here: whoever removes a person has them all.
_REMOVER: Final = Actor("@forget", "admin")


class People:
    """A person's traces in articles."""

    def __init__(self, articles: Articles) -> None:
        self._articles = articles
        self._functions = articles.functions
        self._valkey = articles.valkey

    async def export(self, username: str) -> dict[str, Any]:
        """Everything articles hold about a person: what they posted, and what they voted."""
        posted: list[Any] = []
        async for rows in self._pages(PERSON_ARTICLES(username)):
            found = await self._articles.read_many(None, [id for id, _ in rows])
            posted += [msgspec.to_builtins(article) for article in found if article is not None]
        votes: list[Any] = []
        async for rows in self._pages(PERSON_VOTES(username)):
            votes += [{"article": id, "direction": "up" if score > 0 else "down"} for id, score in rows]
        for article in posted:
            del article["vote"]  # the reader's, and nobody reads
        return {"articles": posted, "votes": votes}

    async def delete(self, username: str) -> None:
        """Delete a person's articles and take back their votes, whenever cast. A second time changes nothing."""
        await self._drain(PERSON_ARTICLES(username), self._delete)
        await self._drain(PERSON_VOTES(username), lambda id: self._take_back(username, id))

    async def rename(self, old: str, new: str) -> None:
        """Give a person's articles and votes to a new name. Stopped half-way, it is called again."""
        for key in (PERSON_ARTICLES(old), PERSON_VOTES(old)):
            await self._drain(key, lambda id: self._rename(old, new, id))

    async def _pages(self, key: str) -> AsyncIterator[list[tuple[int, float]]]:
        first = 0
        while rows := await self._valkey.call("ZRANGE", key, first, first + STEP - 1, "WITHSCORES"):
            yield [(int(member[_PREFIX:]), float(score)) for member, score in rows]
            first += STEP

    async def _drain(self, key: str, remove: Callable[[int], Awaitable[object]]) -> None:
        """Remove what a list names until it is empty."""
        while members := await self._valkey.call("ZRANGE", key, 0, STEP - 1):
            await asyncio.gather(*(_unless_gone(remove(int(member[_PREFIX:]))) for member in members))
            # Removing has shortened the list already, unless it named what was not so.
            await self._valkey.call("ZREM", key, *members)

    async def _delete(self, id: int) -> None:
        await self._articles.delete(_REMOVER, id)

    async def _rename(self, old: str, new: str, id: int) -> None:
        await self._functions.run("articles_rename", [ARTICLE(id), ARTICLE_UP(id), ARTICLE_DOWN(id)], id, old, new)

    async def _take_back(self, username: str, id: int) -> None:
        keys = [ARTICLE(id), ARTICLE_UP(id), ARTICLE_DOWN(id)]
        await self._functions.run("articles_vote", keys, id, username, "none", 0, 0)


async def _unless_gone(removing: Awaitable[object]) -> None:
    with contextlib.suppress(NotFound):  # someone else has deleted the article meanwhile
        await removing
