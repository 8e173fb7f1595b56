"""Articles, votes and comments on articles as records."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from plaza.articles import keys as k
from plaza.articles.comments import ArticleComments, split_id
from plaza.articles.model import MAX_GROUPS, ArticleCommentId, Direction, GroupName, NewArticleComment
from plaza.articles.service import Articles
from plaza.community.challenge_records import RowId
from plaza.community.records import CommunityPart, Record, in_thread_order
from plaza.community.social_export import PAGE
from plaza.community.social_records import apply_one
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.comment_tree import CommentText
from plaza.core.errors import Invalid
from plaza.core.functions import Functions
from plaza.core.number_parsing import parse_int
from plaza.core.sequences import chunks
from plaza.social.inbound_sync import Status, SyncResult
from plaza.social.model import Millis, Username

_USER: Final = "user:"
_MEMBER: Final = "article:"
_ARTICLE: Final = re.compile(r"article:[1-9][0-9]{0,15}")
_NOTE: Final = re.compile("[0-9a-f]{32}")
_TIME: Final = r"^\d{1,12}(\.\d{1,6})?$"


class _ArticleRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: RowId
    username: Username
    title: Annotated[str, Meta(min_length=1, max_length=300)]
    link: Annotated[str, Meta(min_length=1, max_length=2_000)]
    time: Annotated[str, Meta(pattern=_TIME)]  # Unix seconds, as stored
    groups: Annotated[list[GroupName], Meta(max_length=MAX_GROUPS)] = []


class _VoteRecord(msgspec.Struct, forbid_unknown_fields=True):
    article_id: RowId
    username: Username
    direction: Direction | None  # null: the author has taken the own vote back


class _ArticleCommentRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: ArticleCommentId
    username: Username
    content: CommentText
    created_at: Millis
    reply_to: ArticleCommentId | None = None


class ArticlePart(CommunityPart):
    """The records of articles."""

    kinds: Sequence[str] = ("article", "vote", "article_comment")

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._clock = ManualClock()
        # Votes on old articles are imported too, so voting never closes here.
        self._articles = Articles(functions, self._clock, voting_days=0, origin="import")
        self._comments = ArticleComments(self._articles, None, origin="import")
        self._handlers: dict[str, tuple[type, Callable[[Any], Awaitable[Status]]]] = {
            "article": (_ArticleRecord, self._article),
            "vote": (_VoteRecord, self._vote),
            "article_comment": (_ArticleCommentRecord, self._comment),
        }

    async def apply(self, kind: str, records: Sequence[Any]) -> list[SyncResult]:
        """Import records one after the other, each at its own time."""
        shape, handler = self._handlers[kind]
        return [await apply_one(index, record, shape, handler) for index, record in enumerate(records)]

    async def _article(self, record: _ArticleRecord) -> Status:
        id = record.id
        known = await self._valkey.call("HMGET", k.ARTICLE(id), "author", "link", "time")
        if known[0] is not None:
            if known != [f"{_USER}{record.username}", record.link, record.time]:
                raise Invalid("Another article has this id.", field="id")
            return "unchanged"
        keys = [k.ARTICLE(id), k.ARTICLE_UP(id), k.ARTICLE_DOWN(id), k.ARTICLE_GROUPS(id)]
        fields = (record.title, record.link, record.username, record.time, "import", *record.groups)
        await self._functions.run("articles_create", keys, id, *fields)
        await self._functions.run("articles_raise_counter", [k.ARTICLES_LAST()], id)
        return "created"

    async def _vote(self, record: _VoteRecord) -> Status:
        member, id = f"{_USER}{record.username}", record.article_id
        sets = k.ARTICLE_UP(id), k.ARTICLE_DOWN(id)
        up, down = await self._valkey.batch([("SISMEMBER", name, member) for name in sets])
        if record.direction == ("up" if up else "down" if down else None):
            return "unchanged"
        self._clock.set(0)
        await self._articles.vote(Actor(record.username, "user"), id, record.direction)
        return "created"

    async def _comment(self, record: _ArticleCommentRecord) -> Status:
        article, note = split_id(record.id)
        if await self._valkey.call("EXISTS", k.ARTICLE_COMMENT(article, note)):
            return "unchanged"
        self._clock.set(record.created_at)
        new = NewArticleComment(record.content, record.reply_to)
        await self._comments.create(Actor(record.username, "user"), article, new, note)
        return "created"

    def export(self, kind: str) -> AsyncIterator[Record]:
        """Yield all records of a type by the article's id."""
        exports = {"article": self._export_articles, "vote": self._votes, "article_comment": self._export_comments}
        return exports[kind]()

    async def _ids(self) -> list[int]:
        members = await self._valkey.call("ZRANGE", k.ARTICLES_BY_TIME(), 0, -1)
        return sorted(int(member[len(_MEMBER) :]) for member in members if _ARTICLE.fullmatch(member))

    async def hashes(self) -> AsyncIterator[tuple[int, dict[str, str]]]:
        """Yield all articles by id."""
        for ids in chunks(await self._ids(), PAGE):
            found = await self._valkey.batch([("HGETALL", k.ARTICLE(id)) for id in ids])
            for id, article in zip(ids, found, strict=True):
                if article.get("author", "").startswith(_USER):
                    yield id, article

    async def _export_articles(self) -> AsyncIterator[Record]:
        async for id, article in self.hashes():
            record: Record = {"id": id, "username": article["author"][len(_USER) :]}
            record |= {name: article.get(name, "") for name in ("title", "link", "time")}
            yield {**record, "groups": sorted(await self._valkey.call("SMEMBERS", k.ARTICLE_GROUPS(id)))}

    async def _votes(self) -> AsyncIterator[Record]:
        async for id, article in self.hashes():
            up, down = await self._valkey.batch([("SMEMBERS", k.ARTICLE_UP(id)), ("SMEMBERS", k.ARTICLE_DOWN(id))])
            votes: dict[str, str | None] = {article["author"]: None}
            votes |= {**dict.fromkeys(down, "down"), **dict.fromkeys(up, "up")}
            for member, direction in sorted(votes.items()):
                yield {"article_id": id, "username": member[len(_USER) :], "direction": direction}

    async def _export_comments(self) -> AsyncIterator[Record]:
        async for id, _ in self.hashes():
            rows = await self._valkey.call("ZRANGE", k.ARTICLE_COMMENTS(id), 0, -1, "WITHSCORES")
            parents = await self._valkey.call("HGETALL", k.ARTICLE_COMMENT_PARENTS(id))
            times = {note: (parse_int(at), parents.get(note)) for note, at in rows if _NOTE.fullmatch(note)}
            for note in in_thread_order(times):
                comment = await self._valkey.call("HGETALL", k.ARTICLE_COMMENT(id, note))
                if comment.keys() >= {"username", "content"}:  # other services may have written some without them
                    record = {"id": f"{id}-{note}", "username": comment["username"], "content": comment["content"]}
                    at, parent = times[note]
                    reply = {"reply_to": f"{id}-{parent}"} if parent in times else {}
                    yield {**record, "created_at": at, **reply}
