"""Each operation on articles emits its event; one that changes nothing emits none."""

from __future__ import annotations

from typing import Any

from plaza.app import Plaza
from plaza.articles.comments import ArticleComments
from plaza.articles.events import EVENTS
from plaza.articles.model import ArticleCommentEdit, Direction, NewArticle, NewArticleComment
from plaza.articles.personal_data import ArticlesPersonalData
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from tests.events.recorder import PRIVATE, EventRecorder

ANA, BEN = Actor("ana", "user"), Actor("ben", "user")


async def test_every_type_is_emitted(plaza: Plaza, redis_client: Any) -> None:
    articles, recorder = plaza.get(Articles), EventRecorder(plaza, redis_client)
    new = NewArticle(PRIVATE, f"https://example.org/{PRIVATE}", [PRIVATE])
    for _ in range(2):  # the same operation again
        article = await articles.post(ANA, new, "operation")
    data = {"article": article.id, "author": "ana"}
    await recorder.expect(("article.posted", data))
    votes: tuple[Direction | None, ...] = ("up", "down", None)
    for vote in votes:
        for _ in range(2):
            await articles.vote(BEN, article.id, vote)
        await recorder.expect(("article.voted", {**data, "username": "ben", "direction": vote or "none"}))
    comments = plaza.get(ArticleComments)
    comment = await comments.create(BEN, article.id, NewArticleComment("Why?"))
    reply = await comments.create(ANA, article.id, NewArticleComment("So.", comment.id))
    await recorder.expect(
        ("article.commented", {**data, "comment": comment.id, "username": "ben"}),
        ("article.commented", {**data, "comment": reply.id, "username": "ana", "reply_to": comment.id}),
    )
    for _ in range(2):
        await comments.edit(BEN, comment.id, ArticleCommentEdit("Why not?"))
    await recorder.expect(("article.comment_edited", {**data, "comment": comment.id, "username": "ben"}))
    await comments.delete(ANA, reply.id)
    deleted = {**data, "comment": reply.id, "username": "ana", "reply_to": comment.id}
    await recorder.expect(("article.comment_deleted", deleted))
    await articles.delete(ANA, article.id)
    await recorder.expect(("article.deleted", data))
    assert recorder.types == {event_type.type for event_type in EVENTS}


async def test_a_renaming_moves_votes_with_events(plaza: Plaza, redis_client: Any) -> None:
    articles, recorder = plaza.get(Articles), EventRecorder(plaza, redis_client)
    article = await articles.post(ANA, NewArticle("A", "https://example.org"), "operation")
    await articles.vote(BEN, article.id, "down")
    await recorder.new_events()
    await ArticlesPersonalData(articles, plaza.get(ArticleComments)).rename("ben", "zoe")
    data = {"article": article.id, "author": "ana"}
    await recorder.expect(
        ("article.voted", {**data, "username": "ben", "direction": "none"}),
        ("article.voted", {**data, "username": "zoe", "direction": "down"}),
        origin="rename",
    )


async def test_imports_are_marked(plaza: Plaza, redis_client: Any) -> None:
    core, recorder = plaza.core, EventRecorder(plaza, redis_client)
    articles = Articles(core.functions, core.clock, 7, origin="import")
    article = await articles.post(ANA, NewArticle("A", "https://example.org"), "operation")
    await articles.vote(BEN, article.id, "up")
    assert {event.origin for event in await recorder.new_events()} == {"import"}
