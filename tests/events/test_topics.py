"""Streams of open pages and feeds: who is told what, who is not, and what many or slow listeners cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from plaza.app import Plaza
from plaza.articles.comments import ArticleComments
from plaza.articles.model import NewArticle, NewArticleComment
from plaza.articles.service import Articles
from plaza.core import topic_hub
from plaza.core.auth import Actor
from plaza.core.errors import Invalid, TooFast
from plaza.core.event_hub import EventHub, TooManyListeners
from plaza.core.topic_hub import TopicHub, TopicListener
from plaza.social.comments import Comments
from plaza.social.engagements import Engagements
from plaza.social.feeds import Feeds
from plaza.social.home_feed import HomeFeed
from plaza.social.inbound_sync import InboundSync
from plaza.social.model import NewComment, NewPost
from plaza.social.posts import Posts
from plaza.social.relations import Relations
from plaza.social.topic_source import PostTopics
from plaza.social.users import Users
from tests.http_servers import client_of
from tests.timeouts import within_time_limit

ANA, BEN, EVE, ROOT = Actor("ana", "user"), Actor("ben", "user"), Actor("eve", "user"), Actor("root", "admin")

# Where a cluster proves nothing more.
ON_ONE_SERVER = pytest.mark.parametrize("place", ["server"], indirect=True)


class TopicReader:
    """Reads the messages of a listener one by one."""

    def __init__(self, listener: TopicListener) -> None:
        self.listener = listener
        self._read: list[dict[str, Any]] = []

    async def next(self) -> dict[str, Any]:
        async with within_time_limit():
            while not self._read:
                piece = (await anext(self.listener)).decode()
                self._read += [json.loads(line[6:]) for line in piece.split("\n") if line.startswith("data: ")]
        return self._read.pop(0)


class TopicReaders:
    """Opens listeners of the hub, and closes them."""

    def __init__(self, plaza: Plaza) -> None:
        self._hub = plaza.get(TopicHub)
        self.open: list[TopicReader] = []

    async def __call__(self, viewer: Actor | None, *names: str, since_ms: int | None = None) -> TopicReader:
        self.open.append(TopicReader(await self._hub.subscribe(viewer, "192.0.2.1", names, since_ms)))
        return self.open[-1]


@pytest.fixture
async def readers(plaza: Plaza, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TopicReaders]:
    monkeypatch.setattr(topic_hub, "INTERVAL_SECONDS", 0.01)
    await plaza.get(InboundSync).apply("user", [{"username": name} for name in ("ana", "ben", "eve", "cleo")])
    readers = TopicReaders(plaza)
    yield readers
    for reader in readers.open:
        await reader.listener.aclose()


async def test_new_posts_reach_those_who_may_see_them(plaza: Plaza, readers: TopicReaders) -> None:
    posts, relations = plaza.get(Posts), plaza.get(Relations)
    cleo = Actor("cleo", "user")
    await relations.follow(BEN, "ana")
    await relations.follow(BEN, "cleo")
    await relations.mute(EVE, "ana")
    guest, ben, eve = await readers(None, "explore"), await readers(BEN, "following"), await readers(EVE, "explore")
    blocked = await readers(cleo, "explore")
    first = (await posts.create(ANA, NewPost("One"))).id
    assert await guest.next() == {"topic": "explore", "posts": [first]}
    assert await ben.next() == {"topic": "following", "posts": [first]}
    assert await blocked.next() == {"topic": "explore", "posts": [first]}
    await relations.block(ANA, "cleo")  # while the stream is open
    await relations.unfollow(BEN, "ana")
    second = (await posts.create(ANA, NewPost("Two"))).id
    assert (await guest.next())["posts"] == [second]
    third = (await posts.create(Actor("cleo", "user"), NewPost("Three"))).id
    for reader in (guest, ben, eve, blocked):  # the muted, blocked and no longer followed author is not in between
        assert (await reader.next())["posts"] == [third]


@ON_ONE_SERVER
async def test_a_burst_is_merged_and_tells_no_old_posts(plaza: Plaza, readers: TopicReaders) -> None:
    posts, many = plaza.get(Posts), [await readers(None, "explore") for _ in range(20)]
    old = {"user_id": "ana", "content": "Imported", "created_at": 1_600_000_000_000}
    await plaza.get(InboundSync).apply("post", [{"id": "0b6f8a52-1c9e-4d0a-9f2e-5a7c3b1d8e4f", **old}])
    created = {post.id for post in await asyncio.gather(*(posts.create(ANA, NewPost(f"{n}")) for n in range(20)))}
    for reader in many:
        found = await reader.next()
        assert len(found["posts"]) > 1, "merged"
        seen = set(found["posts"])
        while seen != created:
            seen |= set((await reader.next())["posts"])
            assert seen <= created


async def test_counts_of_shown_posts_and_articles_follow(plaza: Plaza, readers: TopicReaders) -> None:
    post = (await plaza.get(Posts).create(ANA, NewPost("Tea"))).id
    topic = f"post:{post}"
    await plaza.get(Relations).block(ANA, "eve")
    hidden = await readers(EVE, topic)
    assert hidden.listener.topics == [], "a post that she cannot see"
    guest = await readers(None, topic)
    await plaza.get(Engagements).like(BEN, post)
    assert await guest.next() == {"topic": topic, "likes": 1, "comments": 0, "spread_ms": 10}
    await plaza.get(Comments).create(BEN, post, NewComment("Milk?"))
    assert (await guest.next())["comments"] == 1
    await plaza.get(Posts).ban(ROOT, post, on=True)
    assert await guest.next() == {"topic": topic, "gone": True}
    article = (await plaza.get(Articles).post(ANA, NewArticle("Tea", "https://example.org/tea"), "1")).id
    guest = await readers(None, f"article:{article}")
    await plaza.get(Articles).vote(BEN, article, "up")
    assert await guest.next() == {"topic": f"article:{article}", "votes": 2, "comments": 0, "spread_ms": 10}
    await plaza.get(ArticleComments).create(BEN, article, NewArticleComment("Milk?"))
    assert (await guest.next())["comments"] == 1
    await plaza.get(Articles).delete(ANA, article)
    assert (await guest.next())["gone"]


async def test_a_listener_that_connects_again_gets_what_it_missed(plaza: Plaza, readers: TopicReaders) -> None:
    await plaza.get(Relations).follow(BEN, "ana")
    since_ms = plaza.core.clock.now_ms()
    post = (await plaza.get(Posts).create(ANA, NewPost("Missed"))).id
    await plaza.get(Engagements).like(EVE, post)
    ben = await readers(BEN, "explore", "following", f"post:{post}", since_ms=since_ms)
    found = {message["topic"]: message for message in [await ben.next() for _ in range(3)]}
    assert found["explore"]["posts"] == found["following"]["posts"] == [post]
    assert found[f"post:{post}"]["likes"] == 1


@ON_ONE_SERVER
async def test_who_is_suspended_is_told_nothing_more(plaza: Plaza, readers: TopicReaders) -> None:
    signed_in = Actor("eve", "user", since_ms=plaza.core.clock.now_ms())
    eve = await readers(signed_in, "explore")
    await plaza.get(Users).suspend(ROOT, "eve", on=True)
    await plaza.get(Posts).create(ANA, NewPost("After"))
    with pytest.raises(StopAsyncIteration):
        await eve.next()


@ON_ONE_SERVER
async def test_many_and_slow_listeners_are_limited(
    plaza: Plaza, readers: TopicReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = plaza.core
    source = PostTopics(plaza.get(Feeds), plaza.get(HomeFeed), core.clock)
    hub = TopicHub(plaza.get(EventHub), [source], None, core.auth, core.clock)
    for names in (["explore"] * 101, ["shop"], ["post:" + "a" * 65], ["explore:x"], ["post"], [""]):
        with pytest.raises(Invalid):
            await hub.subscribe(None, "192.0.2.1", names)
    monkeypatch.setattr(topic_hub, "MAX_PER_ADDRESS", 2)
    monkeypatch.setattr(topic_hub, "MAX_LISTENERS", 3)
    opened = [await hub.subscribe(None, "2001:db8::1", ["explore"]) for _ in range(2)]
    with pytest.raises(TooFast):
        await hub.subscribe(None, "2001:db8::2", ["explore"])
    opened.append(await hub.subscribe(None, "192.0.2.2", ["explore"]))
    with pytest.raises(TooManyListeners):
        await hub.subscribe(None, "192.0.2.3", ["explore"])
    await opened.pop().aclose()
    opened.append(await hub.subscribe(None, "192.0.2.3", ["explore"]))
    hub.close()
    monkeypatch.setattr(topic_hub, "MAX_WAITING", 0)
    slow = await readers(None, "explore")
    await plaza.get(Posts).create(ANA, NewPost("Too much"))
    with pytest.raises(StopAsyncIteration):
        await slow.next()


@ON_ONE_SERVER
async def test_feeds_are_streamed_over_http_and_resumed(plaza: Plaza, readers: TopicReaders) -> None:
    token = {"authorization": f"Bearer {plaza.core.auth.issue('ben', 'user')}"}
    await plaza.get(Relations).follow(BEN, "ana")
    async with client_of(plaza.app) as client:
        assert (await client.get("/feed/following/stream")).status_code == 401
        wrong = await client.get("/feed/explore/stream", headers={"last-event-id": "now"})
        assert (wrong.status_code, wrong.json()["field"]) == (422, "Last-Event-ID")
        async with client.stream("GET", "/feed/explore/stream") as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            post = (await plaza.get(Posts).create(ANA, NewPost("Hello"))).id
            lines = await _first_event(answer)
        assert json.loads(lines["data"]) == {"topic": "explore", "posts": [post]}
        headers = {**token, "last-event-id": lines["id"]}
        async with client.stream("GET", "/feed/following/stream", headers=headers) as answer:
            again = await _first_event(answer)
        assert json.loads(again["data"]) == {"topic": "following", "posts": [post]}


async def _first_event(answer: httpx.Response) -> dict[str, str]:
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if not line and "data" in fields:
            break
        name, _, value = line.partition(": ")
        fields[name] = value
    return fields
