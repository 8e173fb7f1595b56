"""Pages that readers have in common are put together once, and are never stale."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest

from plaza.core.auth import Actor
from plaza.core.paging import EncodedItems, Page, encodable
from plaza.social import post_reader
from plaza.social.feeds import Feeds
from plaza.social.keys import MODELS_TOP_ENGAGEMENT, POST, USER
from plaza.social.model import FeedItem
from plaza.social.post_reader import PostReader
from tests.social.conftest import ADMIN, Social


async def read_often(feeds: Feeds, viewer: Actor | None, page: Page, *, is_encoded: bool = True) -> list[FeedItem]:
    """Read a page of explore until it is known, and so encoded on one server. Every read must show the same."""
    pages = [(await feeds.explore(viewer, page)).items for _ in range(4)]
    assert all(items == pages[0] for items in pages)
    assert isinstance(pages[-1], EncodedItems) == (is_encoded and not feeds.valkey.clustered)
    assert msgspec.json.encode(encodable(pages[-1])) == msgspec.json.encode(pages[0][:])
    return pages[-1]


async def test_a_known_page_shows_each_change_at_the_next_read(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    if social.valkey.clustered:
        return
    first, second = await social.post(ana, "one #tea"), await social.post(bob, "two #tea")
    feeds = social.feeds

    async def known(viewer: Actor | None, *, is_encoded: bool = True) -> dict[str, FeedItem]:
        """Return the items by author, after the page has become known again."""
        before = {item.post.user_id: item for item in (await feeds.explore(viewer, Page())).items}
        kept, again = [await read_often(feeds, None, Page(), is_encoded=is_encoded) for _ in range(2)]
        assert all(one is other for one, other in zip(kept, again, strict=True)), "put together once"
        return before

    await known(None)
    await redis_client.hset(POST(first.id), "content", "changed")
    assert (await known(None))["ana"].post.content == "changed"
    await redis_client.hset(USER("ana"), "bio", "sails")
    shown = (await known(None))["ana"].user
    assert shown is not None
    assert shown.bio == "sails"
    await redis_client.sadd(f"{POST(second.id)}:likes", "ana")
    assert (await known(ana))["bob"].post.isLiked
    assert not (await known(bob))["bob"].post.isLiked
    assert not (await known(None))["bob"].post.isLiked
    await redis_client.zadd(f"{USER('ana')}:bookmarked", {first.id: 1})
    assert (await known(ana))["ana"].post.isBookmarked
    await redis_client.zadd(f"{USER('ana')}:muted", {"bob": 1})
    assert set(await known(ana)) == {"ana"}
    assert set(await known(None)) == {"ana", "bob"}
    await redis_client.hset(POST(second.id), "banned", "true")
    assert set(await known(None, is_encoded=False)) == {"ana"}, "the banned post leaves a gap"
    await social.posts.delete(ADMIN, first.id)
    assert not (await feeds.explore(None, Page())).items


async def test_a_post_may_be_in_several_known_pages_and_twice_in_one(
    social: Social, ana: Actor, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post_reader, "MAX_KNOWN_PAGES", 2)
    reader = PostReader(social.functions)
    feeds = Feeds(social.functions, reader, social.users, social.clock)
    ids = [(await social.post(ana, f"#tea #milk {n}")).id for n in range(3)]
    for text in ("first", "second"):
        for id in ids:
            await redis_client.hset(POST(id), "content", text)
        for limit in (1, 2, 3, 2, 3):
            items = await read_often(feeds, None, Page(limit=limit))
            assert [item.post.content for item in items] == [text] * limit
        for _ in range(3):
            for found in await feeds.top_posts(ana, "tea,milk", 3):
                assert [item.post.content for item in found.posts] == [text] * 3
        for limit in (1, 2):  # take the place of the other pages
            assert len(await read_often(feeds, None, Page(limit=limit))) == limit


async def test_known_top_models_show_each_change_at_the_next_read(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    for name, points in (("mia", 3), ("max", 2)):
        await social.create_user(name, "model")
        await redis_client.zadd(MODELS_TOP_ENGAGEMENT(), {name: points})

    async def known(viewer: Actor) -> list[tuple[str, str, int]]:
        pages = [(await social.feeds.top_models(viewer, Page())).items for _ in range(4)]
        assert pages[0] == pages[-1]
        assert msgspec.json.encode(encodable(pages[-1])) == msgspec.json.encode(pages[0])
        return [(model.id, model.bio, model.engagement) for model in pages[-1]]

    assert await known(ana) == await known(bob) == [("mia", "", 3), ("max", "", 2)]
    shared = (await social.feeds.top_models(ana, Page())).items
    assert isinstance(shared, EncodedItems) != social.valkey.clustered
    await redis_client.hset(USER("max"), "bio", "sails")
    await redis_client.zadd(MODELS_TOP_ENGAGEMENT(), {"max": 5})
    assert await known(ana) == await known(bob) == [("max", "sails", 5), ("mia", "", 3)]
    await social.relations.block(ana, "max")
    assert await known(ana) == [("mia", "", 3)]
    assert await known(bob) == [("max", "sails", 5), ("mia", "", 3)]


@pytest.mark.parametrize("limit", [3, 4, 10])
async def test_a_page_that_hidden_posts_leave_room_in_keeps_its_limit(
    social: Social, ana: Actor, bob: Actor, limit: int
) -> None:
    for n in range(13):
        await social.post(ana if n < 10 else bob, f"#tea {n}")
        social.clock.advance(seconds=1)
    reader = await social.create_user("cat")
    await social.relations.mute(reader, "bob")
    for _ in range(5):
        first = await social.feeds.explore(reader, Page(limit=limit))
        assert (len(first.items), first.pagination.count) == (limit, limit)
        assert (first.pagination.next_cursor is None) == (limit == 10)


async def test_the_search_for_an_unknown_tag_finds_nothing_each_time(social: Social, ana: Actor) -> None:
    for _ in range(4):
        (found,) = await social.feeds.top_posts(ana, "nosuchtag", 5)
        assert (found.hashtag, found.posts) == ("nosuchtag", [])


async def test_known_pages_take_a_limited_number_of_bytes(
    social: Social, ana: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    if social.valkey.clustered:
        return
    monkeypatch.setattr(post_reader, "MAX_KNOWN_BYTES", 160_000)
    feeds = Feeds(social.functions, PostReader(social.functions), social.users, social.clock)
    for n in range(40):
        await social.post(ana, f"{n} " + "x" * 2_000)  # with its JSON about 6 kB
        social.clock.advance(seconds=1)
    pages = [await read_often(feeds, None, Page(limit=1, offset=n)) for n in range(40)]
    again = [(await feeds.explore(None, Page(limit=1, offset=n))).items for n in reversed(range(40))]
    known = sum(one is other for one, other in zip(reversed(pages), again, strict=True))
    assert 16 <= known < 32, known

    small = (await feeds.explore(None, Page(limit=1))).items
    too_large = await read_often(feeds, None, Page(limit=3), is_encoded=False)
    assert (await feeds.explore(None, Page(limit=3))).items is not too_large
    assert (await feeds.explore(None, Page(limit=1))).items is small, "a page that is too large takes no place"


async def test_a_changed_page_gives_its_bytes_back(
    social: Social, ana: Actor, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if social.valkey.clustered:
        return
    monkeypatch.setattr(post_reader, "MAX_KNOWN_BYTES", 50_000)
    feeds = Feeds(social.functions, PostReader(social.functions), social.users, social.clock)
    id = (await social.post(ana)).id
    for n in range(60):
        await redis_client.hset(POST(id), "content", f"{n} hello")
        items = await read_often(feeds, None, Page(limit=1))
        assert (await feeds.explore(None, Page(limit=1))).items is items


async def test_long_posts_take_the_place_of_several(
    social: Social, ana: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    if social.valkey.clustered:
        return
    monkeypatch.setattr(post_reader, "MAX_CACHED_POSTS", 20)
    reader = PostReader(social.functions)
    feeds = Feeds(social.functions, reader, social.users, social.clock)
    for text, most in (("short", 20), ("x" * 9_000, 20 // 3), ("日" * 9_000, 20 // 9), ("short", 20)):
        social.clock.advance(seconds=1)
        ids = [(await social.post(ana, text)).id for _ in range(20)]
        for _ in range(2):
            await feeds.explore(None, Page(limit=20))
        assert sum(reader.posts.get(POST(id)) is not None for id in ids) == most


def test_stored_json_takes_no_more_memory_than_its_bytes() -> None:
    texts = ["x" * 333 for _ in range(100)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    stored = [EncodedItems(texts).json for _ in range(20)]
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < sum(len(bytes(json)) for json in stored) * 1.2
