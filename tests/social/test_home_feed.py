"""The home feed is complete, newest first and up to date."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest

from plaza.core.auth import Actor
from plaza.core.paging import EncodedItems, Page, encodable
from plaza.social import home_feed as home_module
from plaza.social import keys as k
from plaza.social.model import FeedItem
from tests.social.conftest import ADMIN, Social, trips


async def read_all_pages(social: Social, actor: Actor, limit: int = 20) -> list[str]:
    """Read all pages of the home feed. Returns the post ids."""
    seen: list[str] = []
    cursor = None
    while True:
        page = await social.home.page(actor, Page(limit=limit, cursor=cursor))
        seen += [item.post.id for item in page.items]
        cursor = page.pagination.next_cursor
        if cursor is None:
            return seen


async def write_posts(social: Social, names: list[str], each: int, dice: random.Random) -> list[str]:
    """Write posts directly, without the commands. Returns all ids, newest first."""
    made: list[tuple[int, str]] = []
    commands: list[tuple[Any, ...]] = []
    for name in names:
        for _ in range(each):
            id = f"{dice.getrandbits(32):08x}-0000-4000-8000-{dice.getrandbits(48):012x}"
            at = social.clock.now_ms() - dice.randrange(30 * 86_400_000)
            made.append((at, id))
            commands.append(("HSET", k.POST(id), "id", id, "user_id", name, "created_at", at, "content", "x"))
            commands.append(("ZADD", k.USER_POSTS(name), at, id))
    for first in range(0, len(commands), 5_000):
        await social.valkey.batch(commands[first : first + 5_000])
    return [id for _, id in sorted(made, reverse=True)]


async def follow_all(social: Social, me: Actor, names: list[str]) -> None:
    now = social.clock.now_ms()
    for first in range(0, len(names), 1_000):
        chunk = names[first : first + 1_000]
        await social.valkey.call("SADD", k.USER_FOLLOWING(me.name), *chunk)
        await social.valkey.call("ZADD", k.USER_FOLLOWING_RECENT(me.name), *(p for n in chunk for p in (now, n)))


async def test_a_home_feed_has_the_posts_of_followed_users_newest_first(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    cat, dan = await social.create_user("cat"), await social.create_user("dan")
    await social.relations.follow(ana, "bob")
    await social.relations.follow(ana, "cat")
    made = []
    for who in (bob, cat, dan, bob):
        social.clock.advance(seconds=1)
        made.append((await social.post(who)).id)
    assert await read_all_pages(social, ana) == [made[3], made[1], made[0]]
    assert await redis_client.zrange(k.TMP_HOME("ana"), 0, -1, desc=True) == [made[3], made[1], made[0]]
    assert 0 < await redis_client.ttl(k.TMP_HOME("ana")) <= 900
    item = (await social.home.page(ana, Page())).items[0]
    assert (item.post.id, item.user and item.user.username) == (made[3], "bob")
    assert (await social.home.page(ana, Page(), users=False)).items[0].user is None
    social.clock.advance(seconds=1)
    await social.post(dan)
    await social.home.page(ana, Page())
    assert await redis_client.zcard(k.TMP_HOME("ana")) == 3, (
        "others read the key too: what is not followed is not in it"
    )
    mine = k.TMP_HOME("ana"), k.TMP_HOME_STATE("ana")
    for key in mine:
        await redis_client.expire(key, 60)  # the TTL after 14 minutes without a read
    await social.home.page(ana, Page())
    assert [await redis_client.ttl(key) > 840 for key in mine] == [True, True], "a read renews the TTL"


async def test_a_new_post_shows_on_the_next_read_whether_pushed_or_not(social: Social, ana: Actor, bob: Actor) -> None:
    await social.relations.follow(ana, "bob")
    assert await read_all_pages(social, ana) == []
    social.clock.advance(seconds=300)
    first = await social.post(bob)
    assert await read_all_pages(social, ana) == [first.id]
    social.clock.advance(seconds=1)
    second = await social.post(bob)
    await social.jobs.update_home_feeds()
    assert await read_all_pages(social, ana) == [second.id, first.id]


async def test_a_cached_home_feed_shows_each_change_of_another_service(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    cat = await social.create_user("cat")
    for author in (bob, cat):
        await social.relations.follow(ana, author.name)
    first = await social.post(bob)
    social.clock.advance(seconds=1)
    second = await social.post(cat)

    async def read_often() -> list[FeedItem]:
        pages = [(await social.home.page(ana, Page())).items for _ in range(3)]
        assert all(items == pages[0] for items in pages)
        assert msgspec.json.encode(encodable(pages[-1])) == msgspec.json.encode(list(pages[0]))
        assert isinstance(pages[-1], EncodedItems) == (bool(pages[-1]) and not social.valkey.clustered)
        return pages[0]

    assert [item.post.id for item in await read_often()] == [second.id, first.id]
    await redis_client.hset(k.USER("bob"), "bio", "sails")
    assert [item.user and item.user.bio for item in await read_often()] == ["", "sails"]
    await redis_client.sadd(k.POST_LIKES(first.id), "ana")
    assert [item.post.isLiked for item in await read_often()] == [False, True]
    await redis_client.hset(k.POST(second.id), "content", "changed")
    assert [item.post.content for item in await read_often()][:1] == ["changed"]
    await redis_client.srem(k.USER_FOLLOWING("ana"), "cat")
    assert [item.post.id for item in await read_often()] == [first.id]
    await redis_client.zadd(k.USER_MUTED("ana"), {"bob": 1})
    assert await read_often() == []


async def test_a_post_of_a_process_whose_clock_is_slightly_behind_is_not_missed(
    social: Social, ana: Actor, bob: Actor
) -> None:
    await social.relations.follow(ana, "bob")
    await social.home.page(ana, Page())
    social.clock.advance(seconds=-1.5)
    post = await social.post(bob)
    social.clock.advance(seconds=3)
    assert await read_all_pages(social, ana) == [post.id]


async def test_an_unbanned_post_is_in_the_home_feed_again(social: Social, ana: Actor, bob: Actor) -> None:
    await social.relations.follow(ana, "bob")
    await social.home.page(ana, Page())
    post = await social.post(bob)
    await social.posts.ban(ADMIN, post.id, on=True)
    await social.jobs.update_home_feeds()
    social.clock.advance(seconds=60)
    assert await read_all_pages(social, ana) == []
    await social.posts.ban(ADMIN, post.id, on=False)
    await social.jobs.update_home_feeds()
    assert await read_all_pages(social, ana) == [post.id]


async def test_many_posts_of_other_users_hide_no_followed_post(
    social: Social, ana: Actor, bob: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_module, "MAX_MERGED", 20)
    cat = await social.create_user("cat")
    await social.relations.follow(ana, "bob")
    await read_all_pages(social, ana)
    social.clock.advance(seconds=60)
    mine = []
    for i in range(310):
        social.clock.advance(seconds=0.01)
        made = await social.post(bob if i % 100 == 0 else cat)
        if i % 100 == 0:
            mine.append(made.id)
    assert await read_all_pages(social, ana) == mine[::-1]


async def test_unfollowed_blocked_muted_deleted_and_banned_are_left_out(social: Social, ana: Actor) -> None:
    users = [await social.create_user(f"p{i}") for i in range(6)]
    posts = []
    for who in users:
        await social.relations.follow(ana, who.name)
        social.clock.advance(seconds=1)
        posts.append(await social.post(who))
    assert len(await read_all_pages(social, ana)) == 6
    await social.relations.unfollow(ana, "p0")
    await social.relations.block(users[1], "ana")
    await social.relations.mute(ana, "p2")
    await social.posts.delete(users[3], posts[3].id)
    await social.posts.ban(ADMIN, posts[4].id, on=True)
    assert await read_all_pages(social, ana) == [posts[5].id]
    await social.posts.ban(ADMIN, posts[4].id, on=False)
    await social.relations.unmute(ana, "p2")
    await social.relations.follow(ana, "p0")
    assert await read_all_pages(social, ana) == [posts[i].id for i in (5, 4, 2, 0)]


async def test_a_user_followed_with_an_old_date_is_in_the_home_feed(social: Social, ana: Actor, bob: Actor) -> None:
    """The feed is rebuilt although the number of followed users and the latest follow are unchanged."""
    old = await social.post(bob)
    for name in ("cat", "dan"):
        social.clock.advance(seconds=60)
        await social.create_user(name)
        await social.relations.follow(ana, name)
    assert await read_all_pages(social, ana) == []
    await social.relations.unfollow(ana, "cat")
    await social.sync.apply("follow", [{"follower": "ana", "following": "bob", "created_at": 1}])
    assert await read_all_pages(social, ana) == [old.id]


async def test_pages_are_full_after_filtering(social: Social, ana: Actor, bob: Actor) -> None:
    cat = await social.create_user("cat")
    for who in ("bob", "cat"):
        await social.relations.follow(ana, who)
    mine = []
    for i in range(60):
        social.clock.advance(seconds=1)
        made = await social.post(bob if i % 3 else cat)
        if i % 3 == 0:
            mine.append(made.id)
    await social.relations.mute(ana, "bob")
    page = await social.home.page(ana, Page(limit=15))
    assert [item.post.id for item in page.items] == mine[::-1][:15]


async def test_no_duplicates_or_gaps_while_others_post_between_pages(social: Social, ana: Actor, bob: Actor) -> None:
    await social.relations.follow(ana, "bob")
    posts = [await social.post(bob) for _ in range(30)]  # all in one millisecond
    made = sorted((post.id for post in posts), reverse=True)
    seen: list[str] = []
    cursor = None
    while True:
        page = await social.home.page(ana, Page(limit=7, cursor=cursor))
        seen += [item.post.id for item in page.items]
        cursor = page.pagination.next_cursor
        if cursor is None:
            break
        social.clock.advance(seconds=1)
        await social.post(bob)
        await social.posts.delete(bob, seen[-1])
    assert seen == made


async def test_a_home_feed_is_complete_beyond_the_stored_part_and_after_a_month(
    social: Social, ana: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_module, "DEPTH", 50)
    dice = random.Random(3)
    names = [f"p{i}" for i in range(40)]
    await asyncio.gather(*(social.create_user(name) for name in names))
    posts = await write_posts(social, names, 5, dice)
    posts += await write_posts(social, ["p0"], 60, dice)
    await follow_all(social, ana, names)
    at = dict(zip(posts, await social.valkey.batch([("HGET", k.POST(id), "created_at") for id in posts]), strict=True))
    expected = sorted(posts, key=lambda id: (int(at[id]), id), reverse=True)
    assert await read_all_pages(social, ana, 30) == expected
    assert await read_all_pages(social, ana, 100) == expected, "the same feed from the cache"


async def test_a_feed_is_united_in_one_step_if_it_is_short(social: Social, ana: Actor, redis_client: Any) -> None:
    if social.valkey.clustered:
        return
    await follow_all(social, ana, ["p0", "p1", "p2"])
    posts = await write_posts(social, ["p0", "p1"], 1_100, random.Random(4))
    await redis_client.zadd(
        k.USER_POSTS("p1"), dict(await redis_client.zrange(k.USER_POSTS("p0"), 0, 9, withscores=True))
    )
    await redis_client.set(k.USER_POSTS("p2"), "no list: taken as absent")
    commands = await count_commands(social, social.home.page(ana, Page()))
    assert commands["zunionstore"] == 1
    assert await redis_client.zrange(k.TMP_HOME("ana"), 0, -1, desc=True) == posts[:1_001], "cut, and each post once"
    await redis_client.delete(k.USER_POSTS("p2"))
    assert await read_all_pages(social, ana, 100) == posts, "complete also beyond the stored part"
    await redis_client.delete(k.TMP_HOME_STATE("ana"))
    await redis_client.zadd(k.USER_POSTS("p2"), {f"old{n}": n for n in range(2_000)})
    assert "zunionstore" not in await count_commands(social, social.home.page(ana, Page())), "4,210 posts take too long"


async def test_a_feed_is_begun_with_the_newest_posts(social: Social, ana: Actor, redis_client: Any) -> None:
    if social.valkey.clustered:
        return
    await follow_all(social, ana, ["p0", "p1"])
    posts = await write_posts(social, ["p0", "p1", "p2"], 1_400, random.Random(6))
    for name in ("p0", "p1", "p2"):
        await redis_client.zadd(
            k.EXPLORE_FEED(), dict(await redis_client.zrange(k.USER_POSTS(name), 0, -1, withscores=True))
        )
    unfollowed = set(await redis_client.zrange(k.USER_POSTS("p2"), 0, -1))
    expected = [id for id in posts if id not in unfollowed]
    assert "zunionstore" not in await count_commands(social, social.home.page(ana, Page()))
    begun = await redis_client.zrange(k.TMP_HOME("ana"), 0, -1, desc=True)
    assert begun == expected[: len(begun)]
    assert 900 < len(begun) < 1_100, "about 1,000 of 2,800"
    assert await read_all_pages(social, ana, 100) == expected
    page = await social.home.page(ana, Page(limit=20, offset=790))
    assert [item.post.id for item in page.items] == expected[790:810]


async def test_a_feed_is_deep_also_if_others_have_posted_since(social: Social, ana: Actor, redis_client: Any) -> None:
    if social.valkey.clustered:
        return
    await follow_all(social, ana, ["p0", "p1"])
    posts = await write_posts(social, ["p0", "p1"], 1_300, random.Random(7))
    for name in ("p0", "p1"):
        await redis_client.zadd(
            k.EXPLORE_FEED(), dict(await redis_client.zrange(k.USER_POSTS(name), 0, -1, withscores=True))
        )
    await redis_client.zadd(k.EXPLORE_FEED(), {f"new{n}": social.clock.now_ms() - 60_000 - n for n in range(3_000)})
    await social.home.page(ana, Page())
    assert await redis_client.zrange(k.TMP_HOME("ana"), 0, -1, desc=True) == posts[:1_001]


async def test_an_old_post_that_arrives_late_makes_no_gap(
    social: Social, ana: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_module, "DEPTH", 10)
    await social.create_user("p0")
    posts = await write_posts(social, ["p0"], 40, random.Random(5))
    await follow_all(social, ana, ["p0"])
    await social.home.page(ana, Page(limit=5))
    keys = [k.TMP_HOME("ana"), k.TMP_HOME_STATE("ana")]
    await social.functions.run("social_home_push", keys, 1, posts[-1])
    assert await read_all_pages(social, ana, 7) == posts


async def test_round_trips_with_and_without_a_stored_feed(social: Social, ana: Actor, bob: Actor) -> None:
    if social.valkey.clustered:
        return
    names = [f"p{i}" for i in range(1_000)]
    await write_posts(social, names, 2, random.Random(1))
    await follow_all(social, ana, names)
    assert await trips(social.home.page(ana, Page())) <= 3 + 2
    assert await trips(social.home.page(ana, Page())) <= 3
    await social.post(bob)
    assert await trips(social.home.page(ana, Page())) <= 3
    assert await trips(social.feeds.explore(ana, Page())) <= 2


async def test_the_fanout_writes_only_to_existing_feeds(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    cat = await social.create_user("cat")
    for who in (ana, cat):
        await social.relations.follow(who, "bob")
    await social.home.page(ana, Page())
    post = await social.post(bob)
    assert await social.jobs.update_home_feeds() == 1
    assert await redis_client.zrange(k.TMP_HOME("ana"), 0, -1) == [post.id]
    assert 0 < await redis_client.ttl(k.TMP_HOME("ana")) <= 900
    assert await redis_client.exists(k.TMP_HOME("cat"), k.FEEDS_PUSH()) == 0


async def test_posting_costs_the_same_with_thousands_of_followers_as_with_one(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Valkey runs the same commands. A job adds the post to existing home feeds afterwards, in batches."""
    await social.relations.follow(ana, "bob")
    await social.post(bob)
    with_one_follower = await count_commands(social, social.post(bob))
    fans = [f"fan{i}" for i in range(2_600)]
    await social.valkey.call("SADD", k.USER_FOLLOWERS("bob"), *fans)
    ranks = [part for at, name in enumerate(fans) for part in (at, name)]
    await social.valkey.call("ZADD", k.USER_FOLLOWERS_RECENT("bob"), *ranks)
    assert await count_commands(social, social.post(bob)) == with_one_follower
    linear = {"smembers", "sscan", "srandmember", "zrange", "zrevrange", "zrangebyscore", "zunionstore", "hgetall"}
    assert linear.isdisjoint(with_one_follower), "no command whose cost grows with the number of members"
    reading = fans[::40]
    await social.valkey.batch([("HSET", k.TMP_HOME_STATE(name), "follows", "1:1", "empty", 1) for name in reading])
    await social.valkey.batch([("EXPIRE", k.TMP_HOME_STATE(name), 900) for name in reading])
    await social.valkey.call("DEL", k.FEEDS_PUSH())
    post = await social.post(bob)
    sizes: list[int] = []
    batch, query = social.valkey.batch, social.functions.query

    def record_size(commands: Any, **options: Any) -> Any:
        sizes.append(len(commands))
        return batch(commands, **options)

    def record_page(name: str, keys: Any, first: int, last: int) -> Any:  # one server
        sizes.append(last - first + 1)
        return query(name, keys, first, last)

    monkeypatch.setattr(social.valkey, "batch", record_size)
    monkeypatch.setattr(social.functions, "query", record_page)
    assert await social.jobs.update_home_feeds() == 1
    assert (max(sizes), len(sizes)) == (500, 7), "one batch of posts, and 2,601 followers, 500 at a time"
    monkeypatch.undo()
    homes = await social.valkey.batch([("ZRANGE", k.TMP_HOME(name), 0, -1) for name in fans])
    assert [bool(home) for home in homes] == [name in set(reading) for name in fans]
    assert {id for home in homes for id in home} == {post.id}


async def count_commands(social: Social, work: Awaitable[object]) -> dict[str, int]:
    """Count the commands that Valkey runs for an operation, including those inside functions."""
    nodes = social.valkey.primaries()
    for node in nodes:
        await node.call("CONFIG", "RESETSTAT")
    await work
    counts: Counter[str] = Counter()
    for node in nodes:
        for line in (await node.call("INFO", "commandstats")).splitlines():
            name, _, value = line.partition(":calls=")
            if value and not name.endswith(("|resetstat", "info", "ping")):
                counts[name.removeprefix("cmdstat_")] += int(value.partition(",")[0])
    return dict(counts)


async def test_a_deleted_post_is_removed_from_every_home_feed(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    await social.relations.follow(ana, "bob")
    deleted, remaining = await social.post(bob), await social.post(bob)
    await social.home.page(ana, Page())
    await social.posts.delete(bob, deleted.id)
    await social.jobs.update_home_feeds()
    assert await redis_client.zrange(k.TMP_HOME("ana"), 0, -1) == [remaining.id]
    assert await redis_client.exists(k.FEEDS_DROP()) == 0
    await social.deletion.delete(ADMIN, "bob")
    assert await redis_client.exists(k.TMP_HOME("ana"), k.FEEDS_DROP()) == 0


async def test_a_feed_of_five_thousand_users_is_built_in_bounded_steps(
    social: Social, ana: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, now = random.Random(9), social.clock.now_ms()
    names = [f"m{i}" for i in range(5_000)]
    made: list[tuple[int, str]] = []
    commands: list[tuple[Any, ...]] = []
    for i, name in enumerate(names):
        rows = [(now - dice.randrange(30 * 86_400_000), f"{i:08x}-0000-4000-8000-{j:012x}") for j in range(20)]
        made += rows
        commands.append(("ZADD", k.USER_POSTS(name), *(part for row in rows for part in row)))
    for first in range(0, len(commands), 500):
        await social.valkey.batch(commands[first : first + 500])
    await follow_all(social, ana, names)
    expected = sorted(made, reverse=True)[:900]
    for at, id in expected:
        author = names[int(id[:8], 16)]
        await social.valkey.call("HSET", k.POST(id), "id", id, "user_id", author, "created_at", at, "content", "x")
    seen: list[str] = []
    cursor = None
    for _ in range(9):  # continues from the stored feed into the merged part
        page = await social.home.page(ana, Page(limit=100, cursor=cursor))
        seen += [item.post.id for item in page.items]
        cursor = page.pagination.next_cursor
    assert seen == [id for _, id in expected]
    await social.valkey.call("DEL", k.TMP_HOME_STATE("ana"))
    assert social.valkey.clustered or await trips(social.home.page(ana, Page())) <= 3 + 10
