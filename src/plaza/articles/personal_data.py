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

from plaza.articles.comments import ArticleComments, split_id
from plaza.articles.keys import (
    ARTICLE,
    ARTICLE_COMMENT,
    ARTICLE_COMMENT_EDITS,
    ARTICLE_DOWN,
    ARTICLE_UP,
    USER_ARTICLE_COMMENTS,
    USER_ARTICLES,
    USER_VOTES,
)
from plaza.articles.model import ArticleComment
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.errors import NotFound

# Articles or votes that one step reads or removes.
STEP: Final = 100

_PREFIX = len("article:")
# Deleting a user may happen without the user's token, so it runs with admin rights.
_DELETER: Final = Actor("@forget", "admin")


# All keys with a username in their name.
PERSONAL_KEYS: Final = (USER_ARTICLES, USER_VOTES, USER_ARTICLE_COMMENTS)


class ArticlesPersonalData:
    """A user's articles, votes and comments."""

    def __init__(self, articles: Articles, comments: ArticleComments) -> None:
        self._articles = articles
        self._comments = comments
        self._functions = articles.functions
        self._valkey = articles.valkey

    async def export(self, username: str) -> dict[str, Any]:
        """Return a user's articles, votes and comments, as async iterators."""
        return {
            "articles": self._export_articles(username),
            "votes": self._export_votes(username),
            "comments": self._export_comments(username),
        }

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

    async def _export_comments(self, username: str) -> AsyncIterator[dict[str, Any]]:
        first = 0
        while ids := await self._valkey.call("ZRANGE", USER_ARTICLE_COMMENTS(username), first, first + STEP - 1):
            comments = await asyncio.gather(*(self._find_comment(id) for id in ids))
            keys = [ARTICLE_COMMENT_EDITS(*split_id(id)) for id in ids]
            edits = await self._valkey.batch([("LRANGE", key, 0, -1) for key in keys])
            for comment, old_texts in zip(comments, edits, strict=True):
                if comment is not None:
                    yield {**msgspec.to_builtins(comment), **({"edits": old_texts} if old_texts else {})}
            first += STEP

    async def _find_comment(self, id: str) -> ArticleComment | None:
        with contextlib.suppress(NotFound):
            return await self._comments.get(None, id)
        return None

    async def delete(self, username: str) -> None:
        """Delete a user's articles and remove their votes, also after voting has closed. Repeatable."""
        await self._drain(USER_ARTICLES(username), self._delete)
        await self._drain(USER_VOTES(username), lambda id: self._remove_vote(username, id))
        await self._drain_comments(username, lambda id: self._comments.delete(_DELETER, id))

    async def rename(self, old: str, new: str) -> None:
        """Move a user's articles and votes to a new name. Repeatable."""
        for key in (USER_ARTICLES(old), USER_VOTES(old)):
            await self._drain(key, lambda id: self._rename(old, new, id))
        await self._drain_comments(old, lambda id: self._rename_comment(old, new, id))

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

    async def _drain_comments(self, username: str, remove: Callable[[str], Awaitable[object]]) -> None:
        key = USER_ARTICLE_COMMENTS(username)
        while ids := await self._valkey.call("ZRANGE", key, 0, STEP - 1):
            await asyncio.gather(*(_ignore_missing(remove(id)) for id in ids))
            await self._valkey.call("ZREM", key, *ids)

    async def _rename_comment(self, old: str, new: str, id: str) -> None:
        article, note = split_id(id)
        keys = [ARTICLE_COMMENT(article, note)]
        await self._functions.run("articles_rename_comment", keys, article, note, old, new)

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
