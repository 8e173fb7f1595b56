"""Comments on articles, and replies to them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from plaza.articles.keys import (
    ARTICLE,
    ARTICLE_COMMENT,
    ARTICLE_COMMENT_EDITS,
    ARTICLE_COMMENT_PARENTS,
    ARTICLE_COMMENT_REPLIES,
    ARTICLE_COMMENT_STUBS,
    ARTICLE_COMMENTS,
    ARTICLE_COMMENTS_TOP,
    USER_ARTICLE_COMMENTS,
)
from plaza.articles.model import ArticleComment, ArticleCommentEdit, DeletedArticleComment, NewArticleComment
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.blocks import names_hidden_from
from plaza.core.comment_tree import TOP_LEVEL, CommentState, CommentTrees, TreeKeys
from plaza.core.domain import BlockLists
from plaza.core.errors import Invalid, NotFound
from plaza.core.number_parsing import parse_int
from plaza.core.paging import Page, PageResult, ids_in_sorted_set, page_by_position
from plaza.core.pictures import AvatarAddresses, NoAvatars


def discussion_keys(article: int) -> TreeKeys:
    """Return the keys of an article's comments."""
    return TreeKeys(
        all=ARTICLE_COMMENTS(article),
        parents=ARTICLE_COMMENT_PARENTS(article),
        stubs=ARTICLE_COMMENT_STUBS(article),
        top=ARTICLE_COMMENTS_TOP(article),
        replies=lambda note: ARTICLE_COMMENT_REPLIES(article, note),
    )


def split_id(id: str) -> tuple[int, str]:
    """Return the article's id, and the part of a comment's id that the keys have."""
    article, _, note = id.partition("-")
    return int(article), note


class ArticleComments:
    """Writes and lists comments on articles."""

    def __init__(
        self,
        articles: Articles,
        blocks: BlockLists | None,
        avatars: AvatarAddresses | None = None,
        *,
        origin: str = "",
    ) -> None:
        self._articles = articles
        self._functions = articles.functions
        self._valkey = articles.valkey
        self._clock = articles.clock
        self._blocks = blocks
        self._avatars = avatars or NoAvatars()
        self._origin = origin
        self._trees = CommentTrees(articles.functions, "articles")

    async def create(
        self, actor: Actor, article: int, new: NewArticleComment, operation: str | None = None
    ) -> ArticleComment:
        """Comment on an article; the same operation run twice creates one comment. One round trip, two for a reply."""
        note, now = operation or uuid4().hex, self._clock.now_ms()
        parent = await self._replied_to(actor, article, new.reply_to) if new.reply_to else ""
        keys = [ARTICLE(article), ARTICLE_COMMENTS(article), ARTICLE_COMMENT(article, note)]
        args = (article, note, actor.name, new.content, now, parent, self._origin)
        written = await self._functions.run("articles_comment", keys, *args)
        created_at = int(float(written))
        avatar = (await self._avatars.addresses([actor.name]))[actor.name]
        id = f"{article}-{note}"
        return ArticleComment(id, article, actor.name, avatar, new.content, created_at, new.reply_to, 0)

    async def _replied_to(self, actor: Actor, article: int, id: str) -> str:
        """Return the key part of a comment that the caller can see and that is one of the article's."""
        of, note = split_id(id)
        found = await self._load(actor, article, [note]) if of == article else [None]
        if found[0] is None:
            raise Invalid("No comment on this article has this id.", field="reply_to")
        return note

    async def get(self, viewer: Actor | None, id: str) -> ArticleComment:
        """Return a comment, or what is left of a deleted one. Two round trips."""
        article, note = split_id(id)
        (found,) = await self._load(viewer, article, [note])
        if found is None:
            raise NotFound("No comment has this id.", id=id)
        return found

    async def written_by(self, actor: Actor, page: Page) -> PageResult[ArticleComment]:
        """List the caller's comments on articles, latest first. Three round trips."""
        key = USER_ARTICLE_COMMENTS(actor.name)

        async def load(ids: Sequence[str]) -> list[ArticleComment | None]:
            rows = await asyncio.gather(*(self._load(actor, of, [note]) for of, note in map(split_id, ids)))
            return [found[0] for found in rows]

        return await page_by_position(key, page, ids_in_sorted_set(self._articles.functions, key), load)

    async def page(
        self, viewer: Actor | None, article: int, page: Page, reply_to: str | None = None
    ) -> PageResult[ArticleComment]:
        """List the comments on an article, oldest first: all, the replies to one, or those that reply to no other.

        Three round trips, four for a signed-in viewer. Neither the depth nor the size of the thread matters.
        """
        keys = discussion_keys(article)
        of, note = split_id(reply_to) if reply_to not in (None, TOP_LEVEL) else (article, "")
        exists, has_replies, known, stub = await self._valkey.batch(
            [
                ("EXISTS", ARTICLE(article)),
                ("EXISTS", keys.parents),
                ("ZSCORE", keys.all, note),
                ("ZSCORE", keys.stubs, note),
            ]
        )
        if not exists:
            raise NotFound("This article does not exist.", id=article)
        if of != article or (note and known is None and stub is None):
            raise Invalid("No comment on this article has this id.", field="reply_to")
        name, after = keys.all, self._trees.everything(keys)
        if reply_to == TOP_LEVEL:
            name, after = keys.top, self._trees.top(keys, has_replies=bool(has_replies))
        elif note:
            name, after = keys.replies(note), self._trees.replies(keys, note)

        async def load(notes: Sequence[str]) -> list[ArticleComment | None]:
            return await self._load(viewer, article, notes)

        return await page_by_position(name, page, after, load)

    async def edit(self, actor: Actor, id: str, edit: ArticleCommentEdit) -> ArticleComment:
        """Change the text of the caller's comment; the old text is kept. Three round trips."""
        article, note = split_id(id)
        keys = [ARTICLE(article), ARTICLE_COMMENT(article, note), ARTICLE_COMMENT_EDITS(article, note)]
        args = (article, note, actor.name, edit.content, self._clock.now_ms())
        await self._functions.run("articles_edit_comment", keys, *args)
        return await self.get(actor, id)

    async def delete(self, actor: Actor, id: str) -> DeletedArticleComment:
        """Delete a comment; with replies it leaves a stub. One round trip, and one per 100 stubs that end with it."""
        article, note = split_id(id)
        keys = [ARTICLE(article), ARTICLE_COMMENTS(article), ARTICLE_COMMENT(article, note)]
        who = "" if actor.is_admin else actor.name
        stub = await self._functions.run("articles_delete_comment", keys, article, note, who)
        while stub:
            stub = await self._functions.run("articles_prune_comments", [ARTICLE(article)], article, stub)
        return DeletedArticleComment(id)

    async def _load(self, viewer: Actor | None, article: int, notes: Sequence[str]) -> list[ArticleComment | None]:
        keys = discussion_keys(article)
        hashes = [("HMGET", ARTICLE_COMMENT(article, note), "username", "content", "edited_at") for note in notes]
        times = [("ZSCORE", keys.all, note) for note in notes]
        parents = ("HMGET", keys.parents, *notes)
        replies, states = await asyncio.gather(
            self._valkey.batch([*hashes, *times, parents]), self._trees.states(keys, notes)
        )
        size = len(notes)
        authors = {row[0] for row in replies[:size] if row[0]}
        hidden, avatars = await asyncio.gather(
            names_hidden_from(self._valkey, self._blocks, viewer, authors), self._avatars.addresses(authors)
        )
        rows = zip(notes, replies[:size], replies[size:-1], replies[-1], states, strict=True)
        return [
            None if row[1][0] in hidden else _comment_from_row(article, avatars.get(row[1][0], ""), *row)
            for row in rows
        ]


def _comment_from_row(
    article: int,
    avatar: str,
    note: str,
    text: Sequence[Any],
    created: float | None,
    parent: str | None,
    state: CommentState,
) -> ArticleComment | None:
    reply_to = f"{article}-{parent}" if parent else None
    if created is not None:
        username, content, edited = text
        return ArticleComment(
            f"{article}-{note}",
            article,
            username or "",
            avatar,
            content or "",
            int(created),
            reply_to,
            state.replies,
            edited_at=parse_int(edited, None),
        )
    if state.stub_created_ms is None or not state.replies:
        return None
    return ArticleComment(
        f"{article}-{note}", article, "", "", "", state.stub_created_ms, reply_to, state.replies, deleted=True
    )
