"""Replaying the events of a thousand concurrent writers and a killed process gives exactly the source data."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

from sqlalchemy import select

from plaza.app import Plaza
from plaza.articles.model import NewArticle
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.shop.items import Items
from plaza.shop.model import NewItem
from plaza.shop.tables import LINES
from plaza.social.comments import Comments
from plaza.social.engagements import Engagements
from plaza.social.inbound_sync import InboundSync
from plaza.social.model import NewComment, NewPost
from plaza.social.posts import Posts
from plaza.social.relations import Relations
from tests.event_replay import ReplayModel
from tests.events.recorder import EventRecorder
from tests.events.writer_process import VOTERS, place_order
from tests.killed_processes import count_clients, recover_all, wait_for_disconnects
from tests.servers import Cluster, Server
from tests.waiting import eventually

USERS = [Actor(f"u{n}", "user") for n in range(12)]
WRITERS = 1_000
ORDERS = 15


@contextlib.asynccontextmanager
async def killed_writer(*arguments: object) -> AsyncIterator[None]:
    """Run a second process that votes and orders, and kill it at the end, in the middle of its writes."""
    command = (sys.executable, "-m", "tests.events.writer_process", *map(str, arguments))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"writing\n"
        yield
    finally:
        process.kill()
        await process.wait()


async def test_a_replay_of_a_thousand_writers_and_a_killed_process_gives_the_source_data(
    plaza: Plaza, place: Server | Cluster, redis_client: Any, tmp_path: Path
) -> None:
    reports: list[dict[str, Any]] = []  # of callbacks that failed, which otherwise only the log has
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
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

    clients = count_clients(place)
    async with killed_writer(place.url, tmp_path, articles[0], item):
        works = [*(write() for _ in range(WRITERS)), *(place_order(plaza, item, n + 1) for n in range(ORDERS))]
        await asyncio.gather(*works)
    await wait_for_disconnects(place, clients)
    await eventually(lambda: recover_all(plaza.core.functions))
    model = ReplayModel.of(await recorder.new_events())
    await model.assert_is_source_data(redis_client, [user.name for user in USERS])
    rows = await plaza.core.sql.fetch_all(select(LINES))
    assert model.orders == {row.order_id: [(row.item_id, row.qty)] for row in rows}
    assert len(rows) > ORDERS, "the killed process placed orders"
    assert model.votes[articles[0]].keys() & {voter.name for voter in VOTERS}, "and voted"
    assert not reports


async def _comment_and_delete(comments: Comments, user: Actor, post: str, *, keep: bool) -> None:
    made = await comments.create(user, post, NewComment("Hi"))
    if not keep:
        await comments.delete(user, made.id)
