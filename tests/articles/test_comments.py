"""Comments on articles: a tree in pages, rights, stubs, personal data."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaza.articles.comments import ArticleComments, split_id
from plaza.articles.keys import ARTICLE_COMMENT_EDITS, USER_ARTICLE_COMMENTS
from plaza.articles.model import ArticleComment, ArticleCommentEdit, NewArticleComment
from plaza.articles.personal_data import ArticlesPersonalData
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.comment_tree import TOP_LEVEL
from plaza.core.errors import Forbidden, Invalid, NotFound
from plaza.core.json_stream import collect
from plaza.core.paging import Page
from tests.articles.conftest import Post, remaining_keys, user
from tests.round_trips import count_round_trips


@pytest.fixture
def comments(articles: Articles) -> ArticleComments:
    return ArticleComments(articles, None)


async def ids(comments: ArticleComments, article: int, reply_to: str | None) -> list[str]:
    return [comment.id for comment in (await comments.page(None, article, Page(), reply_to)).items]


async def test_comments_and_replies_are_listed_by_level_and_counted(
    articles: Articles, comments: ArticleComments, post: Post, clock: ManualClock, ana: Actor, ben: Actor
) -> None:
    article = (await post()).id
    first = await comments.create(ben, article, NewArticleComment("first"), "1" * 32)
    clock.advance(seconds=1)
    reply = await comments.create(ana, article, NewArticleComment("reply", first.id))
    again = await comments.create(ben, article, NewArticleComment("first"), "1" * 32)
    assert (again.id, again.created_at) == (first.id, first.created_at)
    assert await ids(comments, article, None) == [first.id, reply.id]
    assert await ids(comments, article, TOP_LEVEL) == [first.id]
    assert await ids(comments, article, first.id) == [reply.id]
    shown = (await comments.page(None, article, Page())).items
    assert [(c.username, c.content, c.reply_to, c.repliesCount) for c in shown] == [
        ("ben", "first", None, 1),
        ("ana", "reply", first.id, 0),
    ]
    assert (await articles.read(None, article)).commentsCount == 2


async def test_a_reply_needs_a_comment_on_the_same_article(comments: ArticleComments, post: Post, ana: Actor) -> None:
    one, other = (await post()).id, (await post()).id
    elsewhere = await comments.create(ana, other, NewArticleComment("hi"))
    for reply_to in (elsewhere.id, f"{one}-{'0' * 32}"):
        with pytest.raises(Invalid) as refused:
            await comments.create(ana, one, NewArticleComment("hi", reply_to))
        assert refused.value.extra["field"] == "reply_to"
        with pytest.raises(Invalid):
            await comments.page(ana, one, Page(), reply_to)
    with pytest.raises(NotFound):
        await comments.create(ana, 999, NewArticleComment("hi"))
    assert await ids(comments, one, None) == []


async def test_an_edit_keeps_the_old_text_and_only_the_author_edits(
    comments: ArticleComments, post: Post, ana: Actor, ben: Actor, redis_client: Any, articles: Articles
) -> None:
    comment = await comments.create(ben, (await post()).id, NewArticleComment("first"))
    edited = await comments.edit(ben, comment.id, ArticleCommentEdit("second"))
    assert (edited.content, edited.edited_at) == ("second", articles.clock.now_ms())
    await comments.edit(ben, comment.id, ArticleCommentEdit("second"))
    edits = ARTICLE_COMMENT_EDITS(*split_id(comment.id))
    (old,) = await redis_client.lrange(edits, 0, -1)
    assert '"first"' in old
    exported = await collect(await ArticlesPersonalData(articles, comments).export("ben"))
    assert exported["comments"][0]["edits"] == [old]
    for actor in (ana, Actor("root", "admin")):
        with pytest.raises(Forbidden):
            await comments.edit(actor, comment.id, ArticleCommentEdit("third"))
    await comments.delete(ben, comment.id)
    assert not await redis_client.exists(edits)
    with pytest.raises(NotFound):
        await comments.edit(ben, comment.id, ArticleCommentEdit("third"))


async def test_authors_of_comment_and_article_and_admins_delete_and_replies_leave_a_stub(
    comments: ArticleComments,
    post: Post,
    ana: Actor,
    ben: Actor,
    admin: Actor,
    articles: Articles,
    clock: ManualClock,
) -> None:
    article = (await post(ana)).id
    made = [await comments.create(ben, article, NewArticleComment("hi")) for _ in range(3)]
    clock.advance(seconds=1)
    reply = await comments.create(user("cleo"), article, NewArticleComment("yes", made[0].id))
    with pytest.raises(Forbidden):
        await comments.delete(user("cleo"), made[0].id)
    for actor, comment in zip((ben, ana, admin), made, strict=True):
        await comments.delete(actor, comment.id)
    (stub, left) = (await comments.page(None, article, Page())).items
    assert (stub.id, stub.deleted, stub.username, stub.content) == (made[0].id, True, "", "")
    assert left.id == reply.id
    assert (await articles.read(None, article)).commentsCount == 1
    await comments.delete(admin, reply.id)
    assert await ids(comments, article, None) == []


async def test_deleting_an_article_deletes_its_comments_in_steps(
    articles: Articles, comments: ArticleComments, post: Post, ana: Actor, ben: Actor
) -> None:
    article = (await post()).id
    root = await comments.create(ana, article, NewArticleComment("hi"))
    await asyncio.gather(*(comments.create(ben, article, NewArticleComment("hi", root.id)) for _ in range(130)))
    await comments.delete(ana, root.id)
    await articles.delete(ana, article)
    while await articles.finish_deleting():
        pass
    await articles.functions.outbox.drain()
    # The link can be posted again, so nothing is left at all.
    assert await remaining_keys(articles.valkey) == set()


async def test_personal_data_covers_comments(
    articles: Articles, comments: ArticleComments, post: Post, ana: Actor, ben: Actor
) -> None:
    article = (await post()).id
    root = await comments.create(ben, article, NewArticleComment("hello"))
    await comments.create(ana, article, NewArticleComment("hi", root.id))
    data = ArticlesPersonalData(articles, comments)
    (exported,) = (await collect(await data.export("ben")))["comments"]
    assert (exported["id"], exported["content"]) == (root.id, "hello")
    await data.rename("ben", "zoe")
    assert (await comments.get(None, root.id)).username == "zoe"
    assert (await collect(await data.export("ben")))["comments"] == []
    await data.delete("zoe")
    assert (await comments.get(None, root.id)).deleted
    await articles.functions.outbox.drain()
    assert not await articles.valkey.call("EXISTS", USER_ARTICLE_COMMENTS("zoe"))


async def test_a_page_and_a_comment_take_few_round_trips(
    articles: Articles, comments: ArticleComments, post: Post, ana: Actor
) -> None:
    article = (await post()).id
    made: list[ArticleComment] = []
    for _ in range(30):
        made.append(await comments.create(ana, article, NewArticleComment("hi", made[-1].id if made else None)))
    page = comments.page(ana, article, Page(limit=20))
    assert await count_round_trips(articles.valkey, page) <= 4
    limit = 3 if articles.valkey.clustered else 1
    assert await count_round_trips(articles.valkey, comments.create(ana, article, NewArticleComment("hi"))) <= limit
