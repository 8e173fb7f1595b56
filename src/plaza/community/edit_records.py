"""Earlier texts of edited posts and comments as records: one record for each text that was edited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from plaza.articles import keys as articles
from plaza.articles.comments import split_id
from plaza.articles.model import ArticleCommentId
from plaza.community.article_records import ArticlePart
from plaza.community.records import CommunityPart, Record
from plaza.community.social_export import SocialExport
from plaza.community.social_records import apply_one
from plaza.core.errors import Invalid
from plaza.core.functions import Functions
from plaza.core.number_parsing import parse_int
from plaza.social import keys as social
from plaza.social.inbound_sync import Status, SyncResult
from plaza.social.model import CommentId, Millis, PostId

_KIND: Final = "edit_history"
Subject = Literal["post", "comment", "article_comment"]
_IDS: Final[dict[Subject, Any]] = {"post": PostId, "comment": CommentId, "article_comment": ArticleCommentId}


class _EarlierText(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    content: str
    until: Millis
    hashtags: str = ""  # of a post, separated by commas


class _EditsRecord(msgspec.Struct, forbid_unknown_fields=True):
    subject: Subject
    id: str
    edited_at: Millis
    edits: Annotated[list[_EarlierText], Meta(max_length=50)]


_decode = msgspec.json.Decoder(_EarlierText).decode


class EditPart(CommunityPart):
    """The earlier texts of posts, comments and article comments; of those whose domain is there."""

    kinds: Sequence[str] = (_KIND,)

    def __init__(self, functions: Functions, posts: SocialExport | None, article_part: ArticlePart | None) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._posts = posts
        self._articles = article_part

    async def apply(self, kind: str, records: Sequence[Any]) -> list[SyncResult]:
        """Store earlier texts. One round trip each."""
        return [await apply_one(index, record, _EditsRecord, self._store) for index, record in enumerate(records)]

    async def _store(self, record: _EditsRecord) -> Status:
        try:
            msgspec.convert(record.id, _IDS[record.subject])
        except msgspec.ValidationError:
            raise Invalid(f"Not the id of a {record.subject}.", field="id") from None
        texts = [msgspec.json.encode(text) for text in record.edits]
        command = "articles_store_edits" if record.subject == "article_comment" else "social_store_edits"
        changed = await self._functions.run(command, list(_keys(record.subject, record.id)), record.edited_at, *texts)
        return "created" if changed else "unchanged"

    async def export(self, kind: str) -> AsyncIterator[Record]:
        """Yield a record for each edited text: posts, then their comments, then article comments."""
        if self._posts is not None:
            async for id, post in self._posts.post_hashes():
                if "edited_at" in post:
                    yield await self._record("post", id, post["edited_at"])
            async for id, _ in self._posts.post_hashes():
                ids = await self._valkey.call("LRANGE", social.POST_COMMENTS(id), 0, -1)
                async for record in self._edited("comment", ids):
                    yield record
        if self._articles is not None:
            async for article, _ in self._articles.hashes():
                notes = await self._valkey.call("ZRANGE", articles.ARTICLE_COMMENTS(article), 0, -1)
                async for record in self._edited("article_comment", [f"{article}-{note}" for note in notes]):
                    yield record

    async def _edited(self, subject: Subject, ids: Sequence[str]) -> AsyncIterator[Record]:
        times = await self._valkey.batch([("HGET", _keys(subject, id)[0], "edited_at") for id in ids])
        for id, edited_at in zip(ids, times, strict=True):
            if edited_at is not None:
                yield await self._record(subject, id, edited_at)

    async def _record(self, subject: Subject, id: str, edited_at: str) -> Record:
        edits = []
        for text in await self._valkey.call("LRANGE", _keys(subject, id)[1], 0, -1):
            try:
                edits.append(msgspec.to_builtins(_decode(text)))
            except msgspec.MsgspecError:  # another service wrote it
                continue
        return {"subject": subject, "id": id, "edited_at": parse_int(edited_at), "edits": edits}


def _keys(subject: Subject, id: str) -> tuple[str, str]:
    """Return the key of a text, and that of its earlier texts."""
    if subject == "article_comment":
        article, note = split_id(id)
        return articles.ARTICLE_COMMENT(article, note), articles.ARTICLE_COMMENT_EDITS(article, note)
    if subject == "comment":
        return social.COMMENT(id), social.COMMENT_EDITS(id)
    return social.POST(id), social.POST_EDITS(id)
