"""Replaying the events of a thousand concurrent writers gives exactly the source data."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

from sqlalchemy import select

from plaza.app import Plaza
from plaza.articles.model import NewArticle
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.shop.carts import Carts
from plaza.shop.checkout import Checkout
from plaza.shop.items import Items
from plaza.shop.model import NewItem
from plaza.shop.tables import LINES
from plaza.shop.views import Views
from plaza.social.comments import Comments
from plaza.social.engagements import Engagements
from plaza.social.inbound_sync import InboundSync
from plaza.social.model import NewComment, NewPost
from plaza.social.posts import Posts
from plaza.social.relations import Relations
from tests.event_replay import ReplayModel
from tests.events.recorder import EventRecorder

USERS = [Actor(f"u{n}", "user") for n in range(12)]
WRITERS = 1_000
ORDERS = 15


async def test_a_replay_of_a_thousand_concurrent_writers_gives_the_source_data(plaza: Plaza, redis_client: Any) -> None:
    dice, recorder = random.Random(7), EventRecorder(plaza, redis_client)
    await plaza.get(InboundSync).apply("user", [{"username": user.name} for user in USERS])
    posts = [(await plaza.get(Posts).create(USERS[n], NewPost("Hello"))).id for n in range(3)]
    articles = [
        (await plaza.get(Articles).post(USERS[n], NewArticle("A", f"https://example.org/{n}"), f"o{n}")).id
        for n in range(3)
    ]
    item = (await plaza.get(Items).create(NewItem("Cup", "", "3.50", 10_000), "item")).id
    engagements, relations = plaza.get(Engagements), plaza.get(Relations)
    comments, voting = plaza.get(Comments), plaza.get(Articles)

    def write() -> Awaitable[object]:
        user, other = dice.sample(USERS, 2)
        post, article = dice.choice(posts), dice.choice(articles)
        operations = (
            lambda: engagements.like(user, post),
            lambda: engagements.unlike(user, post),
            lambda: relations.follow(user, other.name),
            lambda: relations.unfollow(user, other.name),
            lambda: voting.vote(user, article, dice.choice(("up", "down", None))),
            lambda: _comment_and_delete(comments, user, post, keep=dice.random() < 0.5),
        )
        return dice.choice(operations)()

    await asyncio.gather(*(write() for _ in range(WRITERS)), *(_order(plaza, item, n + 1) for n in range(ORDERS)))
    model = ReplayModel.of(await recorder.new_events())
    await model.assert_is_source_data(redis_client, [user.name for user in USERS])
    rows = await plaza.core.sql.fetch_all(select(LINES))
    assert model.orders == {row.order_id: [(row.item_id, row.qty)] for row in rows}
    assert len(rows) == ORDERS


async def _comment_and_delete(comments: Comments, user: Actor, post: str, *, keep: bool) -> None:
    made = await comments.create(user, post, NewComment("Hi"))
    if not keep:
        await comments.delete(user, made.id)


async def _order(plaza: Plaza, item: int, qty: int) -> None:
    token = (await plaza.get(Views).view(None, item))[0].token
    await plaza.get(Carts).put(token, item, qty)
    await plaza.get(Checkout).check_out(token)
