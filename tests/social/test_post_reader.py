"""Cached posts are never stale: pages equal what a plain Redis client reads."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from plaza.core import paging
from plaza.core.auth import Actor
from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from plaza.core.paging import EncodedItems, Page, encodable
from plaza.social import feeds, post_reader
from plaza.social.domain import DOMAIN
from plaza.social.feeds import Feeds
from plaza.social.home_feed import HomeFeed
from plaza.social.keys import MODELS_TOP_ENGAGEMENT, POST, USER
from plaza.social.model import PUBLIC_FIELDS as CARD
from plaza.social.model import FeedItem, NewComment, NewPost, PostEdit, Profile, post_from_hash, public_user
from plaza.social.post_reader import PostReader
from plaza.social.read_view import ReadView
from tests.servers import Cluster, Server
from tests.social.conftest import ADMIN, Social, trips
from tests.timeouts import connect_for_test

ROUNDS = 60


async def read_item(redis_client: Any, viewer: Actor, item: FeedItem) -> FeedItem:
    """Return the same item, read from the documented keys with a plain Redis client."""
    id, author = item.post.id, item.post.user_id
    liked = await redis_client.sismember(f"{POST(id)}:likes", viewer.name)
    marked = await redis_client.sismember(f"{POST(id)}:bookmarks", viewer.name)
    card = public_user(await redis_client.hmget(USER(author), CARD), author)
    return FeedItem(
        post_from_hash(await redis_client.hgetall(POST(id)), id, liked=bool(liked), bookmarked=bool(marked)), card
    )


async def test_another_process_shows_every_change_at_the_next_read(
    place: Server | Cluster, social: Social, redis_client: Any
) -> None:
    """One process writes. Another one, which has cached all posts, reads after each write."""
    users = [await social.create_user(name) for name in ("ana", "bob", "cat")]
    ids = [(await social.post(user, f"#tea {i}")).id for i, user in enumerate(users * 2)]
    for user in users:
        for other in users:
            if user is not other:
                await social.relations.follow(user, other.name)
    dice = random.Random(5)

    async def write_once() -> None:
        user, other, id = dice.choice(users), dice.choice(users), dice.choice(ids)
        edit, name = PostEdit(f"#tea {dice.random()}"), Profile(display_name=f"{dice.random()}")
        operations: list[Callable[[], Awaitable[object]]] = [
            lambda: social.engagements.like(user, id),
            lambda: social.engagements.unlike(user, id),
            lambda: social.engagements.bookmark(user, id),
            lambda: social.comments.create(user, id, NewComment("hi")),
            lambda: social.posts.edit(users[ids.index(id) % 3], id, edit),
            lambda: social.posts.ban(ADMIN, id, on=True),
            lambda: social.posts.ban(ADMIN, id, on=False),
            lambda: social.relations.follow(user, other.name) if user is not other else social.post(user),
            lambda: social.relations.unfollow(user, other.name) if user is not other else social.post(user),
            lambda: social.users.update_profile(user, user.name, name),
            lambda: redis_client.hset(USER(user.name), "bio", str(dice.random())),
            # Another service writes the documented keys alone.
            lambda: redis_client.sadd(f"{POST(id)}:likes", user.name),
            lambda: redis_client.srem(f"{POST(id)}:likes", *(other.name for other in users)),
            lambda: social.relations.mute(user, other.name) if user is not other else social.post(user),
            lambda: social.relations.unmute(user, other.name) if user is not other else social.post(user),
        ]
        if dice.random() < 0.05:
            await social.posts.delete(ADMIN, ids.pop())
            ids.append((await social.posts.create(users[(len(ids)) % 3], NewPost("#tea new"))).id)
        else:
            with contextlib.suppress(NotFound):  # the post may be banned
                await dice.choice(operations)()

    async with await connect_for_test(place.url) as other_valkey:
        # Some lists are short enough to be cached, others are not.
        library = replace(DOMAIN.library, constants={**DOMAIN.library.constants, "MAX_CACHED_MEMBERS": 2})
        functions = Functions(other_valkey, [library])
        await functions.load()
        reader = PostReader(functions)
        feeds = Feeds(functions, reader, social.users, social.clock)
        home = HomeFeed(functions, reader, social.clock)
        encoded = set[str]()
        for _ in range(ROUNDS):
            await write_once()
            viewer = dice.choice(users)
            if dice.random() < 0.5:
                id = dice.choice(ids)
                (found,) = await reader.items(ReadView(viewer, feed=False), [id], listed=False)
                is_shown = await redis_client.exists(POST(id)) and not await redis_client.hexists(POST(id), "banned")
                assert (found is not None) == bool(is_shown)
                assert found is None or found == await read_item(redis_client, viewer, found)
                assert await reader.single(viewer, id) == (found and found.post)
                post = await reader.single(None, id)
                stored = await redis_client.hgetall(POST(id))
                assert post == (post_from_hash(stored, id, liked=False, bookmarked=False) if is_shown else None)
            muted = set(await redis_client.zrange(f"{USER(viewer.name)}:muted", 0, -1))
            followed = await redis_client.smembers(f"{USER(viewer.name)}:following")
            authors = {
                id: await redis_client.hget(POST(id), "user_id")
                for id in await redis_client.zrange("explore:feed", 0, -1)
            }
            in_explore = {id for id, author in authors.items() if author not in muted}
            in_home = {id for id in in_explore if authors[id] in followed}
            for read, ids_shown in ((feeds.explore, in_explore), (home.page, in_home)):
                # The last is put together of what the first have cached.
                pages = [await read(viewer, Page(limit=100)) for _ in range(3)]
                stored_items = [await read_item(redis_client, viewer, item) for item in pages[0].items]
                for page in pages:
                    assert page.items == stored_items
                    assert msgspec.json.encode(encodable(page.items)) == msgspec.json.encode(stored_items)
                    assert {item.post.id for item in page.items} == ids_shown
                if isinstance(pages[-1].items, EncodedItems):
                    encoded.add(read.__name__)
        assert encoded == (set() if other_valkey.clustered else {"explore", "page"})


async def test_a_single_post_shows_a_change_whose_invalidation_is_not_read_yet(
    place: Server | Cluster, social: Social, ana: Actor, bob: Actor
) -> None:
    if not isinstance(place, Server):
        return
    post = await social.post(ana)
    with place.redis_client() as blocking:  # the event loop cannot read an invalidation between write and request
        for viewer in (None, bob):
            await social.posts.get(viewer, post.id)
            blocking.hset(POST(post.id), "content", f"for {viewer}")
            assert (await social.posts.get(viewer, post.id)).content == f"for {viewer}"
        await social.posts.get(bob, post.id)
        blocking.sadd(f"{POST(post.id)}:likes", "bob")
        for _ in range(2):  # read, and then cached
            assert (await social.posts.get(bob, post.id)).isLiked
        blocking.zadd(f"{USER('bob')}:blocked", {"ana": 1})
        for _ in range(2):
            with pytest.raises(NotFound):
                await social.posts.get(bob, post.id)


async def test_a_profile_shows_a_change_whose_invalidation_is_not_read_yet(
    place: Server | Cluster, social: Social, ana: Actor, bob: Actor
) -> None:
    if not isinstance(place, Server):
        return
    with place.redis_client() as blocking:
        for viewer in (None, bob, ADMIN):
            for _ in range(2):  # read, and then cached
                assert (await social.users.get(viewer, "ana")).email is None, "private"
            blocking.hset(USER("ana"), mapping={"bio": f"for {viewer}", "email": "ana@example.org"})
            assert (await social.users.get(viewer, "ana")).bio == f"for {viewer}"
        assert (await social.users.get(ana, "ana")).email == "ana@example.org"
        blocking.zadd(f"{USER('ana')}:blocked", {"bob": 1})
        blocking.zadd(f"{USER('bob')}:blocked_by", {"ana": 1})
        for _ in range(2):
            with pytest.raises(NotFound):
                await social.users.get(bob, "ana")
        assert (await social.users.get(None, "ana")).id == "ana"
        blocking.delete(USER("ana"))
        with pytest.raises(NotFound):
            await social.users.get(None, "ana")


async def test_every_viewer_gets_their_own_flags(social: Social, ana: Actor, bob: Actor) -> None:
    post = await social.post(ana)
    await social.engagements.like(bob, post.id)
    await social.engagements.bookmark(ana, post.id)

    async def flags(viewer: Actor | None) -> tuple[bool, bool]:
        (item,) = (await social.feeds.explore(viewer, Page())).items
        return item.post.isLiked, item.post.isBookmarked

    for _ in range(2):
        assert await flags(bob) == (True, False)
        assert await flags(ana) == (False, True)
        assert await flags(None) == (False, False)


async def test_a_page_takes_two_round_trips_and_one_if_all_is_cached(social: Social, ana: Actor, bob: Actor) -> None:
    posts = [await social.post(bob if i % 2 else ana) for i in range(25)]
    more = 1 if social.valkey.clustered else 0  # on a cluster, authors are read after the posts
    assert await trips(social.feeds.explore(ana, Page())) == 2 + more  # nothing is cached
    assert await trips(social.feeds.explore(ana, Page())) == 1 + 2 * more  # everything is cached
    assert await trips(social.feeds.explore(None, Page())) == 1 + 2 * more
    assert await trips(social.feeds.explore(bob, Page())) == 2 + more  # his lists are not cached
    await social.engagements.like(ana, posts[-1].id)
    await social.relations.follow(ana, "bob")
    assert await trips(social.feeds.explore(ana, Page())) == 2 + more  # one post and two user cards are not cached
    for _ in range(2):  # read, and then cached
        assert await trips(social.posts.get(ana, posts[0].id)) == 1 + more


async def test_top_models_are_current_and_take_one_round_trip_if_cached(
    social: Social, redis_client: Any, ana: Actor
) -> None:
    for name in ("mia", "max"):
        await social.create_user(name, "model")
    more = 1 if social.valkey.clustered else 0

    async def shown(names: set[str]) -> None:
        assert {model.id for model in (await social.feeds.top_models(ana, Page())).items} == names

    assert await trips(social.feeds.top_models(ana, Page())) == 2
    assert await trips(social.feeds.top_models(ana, Page())) == 1 + more
    await redis_client.hset(USER("mia"), "bio", "changed by another service")
    await redis_client.zadd(MODELS_TOP_ENGAGEMENT(), {"mia": 12})
    first = (await social.feeds.top_models(ana, Page())).items[0]
    assert (first.id, first.bio, first.engagement) == ("mia", "changed by another service", 12)
    await social.relations.block(Actor("mia", "model"), "ana")
    await shown({"max"})
    await social.relations.unblock(Actor("mia", "model"), "ana")
    await social.relations.block(ana, "max")
    await shown({"mia"})


async def test_many_posts_are_read_in_small_batches(
    social: Social, ana: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post_reader, "MAX_POSTS_PER_READ", 3)
    ids = [(await social.post(ana, f"#t{i % 2}")).id for i in range(8)]
    items = await social.posts.reader.items(ReadView(ana), ids)
    assert [item.post.id for item in items if item] == ids
    found = await social.feeds.top_posts(ana, "t0,t1", 4)
    assert {item.post.id for tag in found for item in tag.posts} == set(ids)
    for id in ids:
        social.posts.reader.posts.drop(POST(id))
    steps = await trips(social.posts.reader.items(ReadView(ana), ids))
    assert steps == (6 if social.valkey.clustered else 3)


async def test_top_posts_of_a_tag_are_complete_although_some_are_hidden(
    social: Social, ana: Actor, bob: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "SPARE_POSTS", 2)
    for _ in range(8):
        await social.engagements.like(bob, (await social.post(bob, "#tea")).id)
    cat = await social.create_user("cat")
    seen = {(await social.post(cat, "#tea #cake")).id for _ in range(3)}
    await social.relations.mute(ana, "bob")
    for count in (1, 3, 5):
        found = await social.feeds.top_posts(ana, "tea,cake", count)
        for tag in found:
            shown = [item.post.id for item in tag.posts]
            assert len(shown) == min(count, 3)
            assert set(shown) <= seen


async def test_an_offset_counts_visible_items_in_every_list(
    social: Social, ana: Actor, bob: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "SKIP_STEP", 7)
    cat = await social.create_user("cat")
    for i in range(30):
        social.clock.advance(seconds=1)
        post = await social.post([bob, cat, bob][i % 3], "#tea")
        if i % 5 == 0:
            await social.posts.ban(ADMIN, post.id, on=True)
        fan = await social.create_user(f"fan{i}")
        await social.relations.follow(fan, "bob")
        if i % 4 == 0:
            await social.relations.block(fan, "ana")
    await social.relations.follow(ana, "bob")
    await social.relations.follow(ana, "cat")
    await social.relations.mute(ana, "cat")
    lists: list[Callable[[Page], Awaitable[Any]]] = [
        lambda page: social.feeds.explore(ana, page),
        lambda page: social.feeds.user_posts(ana, "bob", page),
        lambda page: social.feeds.hashtag(ana, "tea", page),
        lambda page: social.feeds.ranked(ana, "tea", page),
        lambda page: social.home.page(ana, page),
        lambda page: social.relations.followers(ana, "bob", page),
        lambda page: social.users.newest(ana, "user", page),
    ]
    for whole in lists:
        all_of_it = (await whole(Page(limit=100))).items
        assert len(all_of_it) >= 15
        for offset in (1, 9, len(all_of_it) - 1, len(all_of_it)):
            found = await whole(Page(limit=5, offset=offset))
            assert found.items == all_of_it[offset : offset + 5]


async def test_an_offset_loads_only_the_page(
    social: Social, ana: Actor, bob: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    cat = await social.create_user("cat")
    for i in range(60):
        social.clock.advance(seconds=1)
        post = await social.post(cat if i % 4 == 0 else bob, "#tea")
        await social.engagements.like(ana, post.id)  # among posts without points, old ones would have to be counted
    await social.relations.follow(ana, "bob")
    await social.relations.follow(ana, "cat")
    muting = await social.create_user("eve")
    await social.relations.mute(muting, "cat")
    reader, checked, loaded = social.feeds.reader, [0], [0]
    visible, items = reader.visible, reader.items

    async def counting_visible(view: Any, ids: Any) -> list[bool]:
        checked[0] += len(ids)
        return await visible(view, ids)

    async def counting_items(view: Any, ids: Any, **options: Any) -> list[FeedItem | None]:
        loaded[0] += len(ids)
        return await items(view, ids, **options)

    monkeypatch.setattr(reader, "visible", counting_visible)
    monkeypatch.setattr(reader, "items", counting_items)

    async def cost(read: Callable[[Page], Awaitable[Any]], offset: int) -> tuple[int, int, int]:
        """Return the round trips of a page, how many posts were checked and how many were loaded."""
        everything = (await read(Page(limit=100))).items
        assert (await read(Page(limit=5, offset=offset))).items == everything[offset : offset + 5]
        checked[0] = loaded[0] = 0
        count = await trips(read(Page(limit=5, offset=offset)))
        return count, checked[0], loaded[0]

    def lists(viewer: Actor | None) -> list[Callable[[Page], Awaitable[Any]]]:
        return [
            lambda page: social.feeds.explore(viewer, page),
            lambda page: social.feeds.hashtag(viewer, "tea", page),
            lambda page: social.feeds.ranked(viewer, "tea", page),
        ]

    clustered = social.valkey.clustered
    for viewer in (ana, None):
        *by_time, ranked = lists(viewer)
        for read in by_time:
            assert await cost(read, 40) == (await trips(read(Page(limit=5))), 0, 5), "as the first page"
        count, *posts = await cost(ranked, 40)
        assert (count <= (4 if clustered else 3), posts) == (True, [0, 5]), "the ids, the viewer's lists, the page"
    following: list[Callable[[Page], Awaitable[Any]]] = [
        lambda page: social.feeds.user_posts(ana, "bob", page),
        lambda page: social.home.page(ana, page),
    ]
    for read in [*lists(muting), *following]:
        count, checks, loads = await cost(read, 40)
        assert count <= (16 if clustered else 5)
        assert checks <= (40 + paging.FILL_STEP if clustered else 0)
        assert loads <= 5 + paging.FILL_STEP, "the page, and one refill if a post of the page is hidden"
