"""Another service reads and writes the documented keys with a plain Redis client."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from plaza.core.auth import Actor
from plaza.core.event_streams import all_streams
from plaza.core.paging import Page
from plaza.core.valkey import ReplyError
from plaza.social import home_feed_updates
from plaza.social import keys as k
from plaza.social.credentials import Credentials
from plaza.social.model import RANKED_MS, NewComment, NewPost, PostEdit, Profile
from tests.event_reader import read_events
from tests.social.conftest import ADMIN, Social


async def post(social: Social, author: Actor, text: str = "hello") -> str:
    """Create a post one second after the previous one. Returns its id."""
    social.clock.advance(seconds=1)
    return (await social.post(author, text)).id


async def home_ids(social: Social, viewer: Actor) -> list[str]:
    return [item.post.id for item in (await social.home.page(viewer, Page())).items]


DOCUMENTED_FIELDS = {
    "username", "display_name", "bio", "avatar", "links", "role", "created_at",
    "postCount", "followerCount", "followingCount", "email",
}  # fmt: skip


async def test_the_home_feed_is_complete_after_another_service_deleted_it(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    await social.relations.follow(ana, "bob")
    posts = [await post(social, bob) for _ in range(3)]
    assert await home_ids(social, ana) == posts[::-1]
    await redis_client.delete(k.TMP_HOME("ana"))
    assert await home_ids(social, ana) == posts[::-1]
    assert await redis_client.zcard(k.TMP_HOME("ana")) == 3


async def test_the_home_feed_is_complete_after_another_service_rebuilt_it(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    cat = await social.create_user("cat")
    for name in ("bob", "cat"):
        await social.relations.follow(ana, name)
    first, second = await post(social, bob), await post(social, cat)
    assert await home_ids(social, ana) == [second, first]
    # The documented form: a union of the followed users' posts with a short TTL. Here it has one of them.
    posts = await redis_client.zrange(k.USER_POSTS("bob"), 0, -1, withscores=True)
    await redis_client.delete(k.TMP_HOME("ana"))
    await redis_client.zadd(k.TMP_HOME("ana"), dict(posts))
    await redis_client.expire(k.TMP_HOME("ana"), 60)
    third = await post(social, cat)
    await social.jobs.update_home_feeds()
    assert await redis_client.ttl(k.TMP_HOME("ana")) <= 60, "the other service's expiry stays"
    assert await home_ids(social, ana) == [third, second, first]


async def test_an_empty_home_feed_is_not_rebuilt_at_every_read(
    social: Social, ana: Actor, bob: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def build(*args: Any) -> Any:
        raise AssertionError("the feed is built again")

    await social.relations.follow(ana, "bob")
    assert await home_ids(social, ana) == []
    monkeypatch.setattr(social.home, "newest", build)
    assert await home_ids(social, ana) == []
    assert await home_ids(social, ana) == []
    new = await post(social, bob)
    assert await home_ids(social, ana) == [new]


async def test_missing_and_invalid_fields_are_shown_as_far_as_possible_and_break_nothing(
    social: Social, ana: Actor, http: httpx.AsyncClient, redis_client: Any
) -> None:
    """A profile without most fields, and a post and a comment with invalid ones."""
    at = social.clock.now_ms()
    id, comment = "11111111-2222-4333-8444-555555555555", "66666666-2222-4333-8444-555555555555"
    await redis_client.hset(k.USER("lea"), mapping={"username": "lea", "postCount": "many", "version": "x"})
    await redis_client.zadd(k.USERS_REGULAR(), {"lea": 5})
    fields = {"id": id, "user_id": "lea", "content": "#tea", "created_at": "yesterday", "likesCount": "1.5"}
    await redis_client.hset(k.POST(id), mapping=fields)
    await redis_client.zadd(k.EXPLORE_FEED(), {id: at})
    await redis_client.zadd(k.USER_POSTS("lea"), {id: at})
    await redis_client.rpush(k.POST_COMMENTS(id), comment)
    await redis_client.zadd(k.POST_COMMENTS_RECENT(id), {comment: at})
    await redis_client.hset(k.COMMENT(comment), mapping={"username": "ana"})
    headers = social.token(ana)
    assert (await http.get("/users/lea", headers=headers)).json()["postCount"] == 0
    assert (await http.get("/users/lea/posts", headers=headers)).json()["posts"][0]["post"]["likesCount"] == 1
    assert len((await http.get("/feed/explore", headers=headers)).json()["posts"]) == 1
    assert (await http.get(f"/posts/{id}/comments", headers=headers)).json()["comments"][0]["content"] == ""
    for method, path in (
        ("POST", f"/posts/{id}/like"),
        ("POST", f"/posts/{id}/bookmark"),
        ("POST", "/users/lea/follow"),
        ("GET", "/feed/following"),
        ("GET", "/search/users/newest"),
        ("GET", "/users/me/export"),
    ):
        assert (await http.request(method, path, headers=headers)).status_code == 200, path
    synced = await social.sync.apply("user", [{"username": "lea", "bio": "new"}, {"username": "max"}])
    assert [result.status for result in synced] == ["updated", "created"]
    assert await redis_client.zscore(k.USERS_REGULAR(), "lea") == 5
    await social.users.update_profile(Actor("lea", "user"), "lea", Profile(display_name="Lea"))
    for repair, key, *args in (
        ("user", k.USER("lea"), "lea"),
        ("post", k.POST(id), id),
        ("style", k.USER("lea"), "lea", id),
        ("commented", k.COMMENT(comment), comment, "ana"),
    ):
        await social.functions.run(f"social_repair_{repair}", [key], at, *args)
    await social.jobs.restyle()
    await social.jobs.rescore()
    await social.posts.delete(Actor("lea", "user"), id)
    assert await redis_client.zscore(k.EXPLORE_FEED(), id) is None


async def test_a_like_of_another_service_is_shown_counted_and_listed(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, assert_consistent: Any
) -> None:
    id = await post(social, bob, "#tea")
    assert not (await social.posts.get(ana, id)).isLiked
    await social.feeds.explore(ana, Page())  # fills the cache
    await redis_client.sadd(k.POST_LIKES(id), "ana")
    await redis_client.hincrby(k.POST(id), "likesCount", 1)
    assert (await social.posts.get(ana, id)).isLiked
    assert (await social.feeds.explore(ana, Page())).items[0].post.isLiked
    assert [user.id for user in (await social.engagements.likes(bob, id, Page())).items] == ["ana"]
    assert await redis_client.zscore(k.USER_LIKED("ana"), id) == social.clock.now_ms()
    await social.functions.run("social_repair_post", [k.POST(id)], social.clock.now_ms(), id)
    await assert_consistent()


async def test_a_read_of_likes_and_follows_changes_no_documented_key(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    """The other service is between its commands: it has not counted yet, nor written the other side."""
    id = await post(social, bob, "#tea")
    await redis_client.sadd(k.POST_LIKES(id), "ana")
    await redis_client.sadd(k.USER_FOLLOWING("ana"), "bob")
    assert [user.id for user in (await social.engagements.likes(bob, id, Page())).items] == ["ana"]
    assert [user.id for user in (await social.relations.following(bob, "ana", Page())).items] == ["bob"]
    assert await home_ids(social, ana) == [id]
    assert (await social.relations.followers(bob, "bob", Page())).items == []
    assert await redis_client.hget(k.POST(id), "likesCount") == "0"
    assert await redis_client.hget(k.USER("ana"), "followingCount") == "0"
    assert await redis_client.zscore(k.HASHTAG_RANKED("tea"), id) == 0
    assert await redis_client.exists(k.USER_FOLLOWERS("bob")) == 0
    await redis_client.sadd(k.USER_FOLLOWERS("bob"), "ana")
    assert [user.id for user in (await social.relations.followers(bob, "bob", Page())).items] == ["ana"]
    assert await redis_client.hget(k.USER("bob"), "followerCount") == "0"


async def test_writes_between_the_commands_of_another_service_lose_no_count(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, assert_consistent: Any
) -> None:
    """Plaza writes after the other service has changed a set and before it changes the counter."""
    cat = await social.create_user("cat")
    id, unliked = await post(social, bob), await post(social, bob)
    for name in (ana, cat):
        await social.engagements.like(name, unliked)
    await redis_client.sadd(k.POST_LIKES(id), "ana")
    await redis_client.srem(k.POST_LIKES(unliked), "ana")
    await redis_client.sadd(k.USER_FOLLOWING("ana"), "bob")
    await redis_client.sadd(k.USER_FOLLOWERS("bob"), "ana")
    await redis_client.sadd(k.POST_BOOKMARKS(id), "ana")
    await redis_client.zadd(k.USER_BOOKMARKED("ana"), {id: social.clock.now_ms()})
    new = await write_documented_post(redis_client, "bob", "new", social.clock.now_ms(), [], count=False)
    await social.engagements.like(cat, id)
    await social.engagements.unlike(cat, unliked)
    await social.engagements.bookmark(cat, id)
    await social.relations.follow(cat, "bob")
    await social.relations.follow(ana, "cat")
    await post(social, bob)
    for key, field, difference in (
        (k.POST(id), "likesCount", 1),
        (k.POST(unliked), "likesCount", -1),
        (k.USER("ana"), "followingCount", 1),
        (k.USER("bob"), "followerCount", 1),
        (k.POST(id), "bookmarksCount", 1),
        (k.USER("bob"), "postCount", 1),
    ):
        await redis_client.hincrby(key, field, difference)
    for key, field, count in (
        (k.POST(id), "likesCount", "2"),
        (k.POST(unliked), "likesCount", "0"),
        (k.USER("ana"), "followingCount", "2"),
        (k.USER("bob"), "followerCount", "2"),
        (k.POST(id), "bookmarksCount", "2"),
        (k.USER("bob"), "postCount", "4"),
    ):
        assert await redis_client.hget(key, field) == count, field
    await social.functions.run("social_repair_like", [k.POST(unliked)], social.clock.now_ms(), unliked, "ana")
    for repaired in (id, new, unliked):
        await social.functions.run("social_repair_post", [k.POST(repaired)], social.clock.now_ms(), repaired)
    await social.relations.following(bob, "ana", Page())
    await social.relations.followers(bob, "bob", Page())
    await social.engagements.likes(bob, id, Page())
    await redis_client.hset(k.POST(new), mapping={"hashtags": "", "user_version": 0})
    await assert_consistent()


async def test_bookmarking_again_completes_what_another_service_wrote_on_one_side(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, assert_consistent: Any
) -> None:
    first, second = await post(social, bob), await post(social, bob)
    await redis_client.zadd(k.USER_BOOKMARKED("ana"), {first: social.clock.now_ms()})
    await redis_client.sadd(k.POST_BOOKMARKS(second), "ana")
    assert (await social.posts.get(ana, first)).isBookmarked
    assert not (await social.engagements.bookmark(ana, first)).changed
    await social.engagements.unbookmark(ana, second)
    assert await redis_client.smembers(k.POST_BOOKMARKS(first)) == {"ana"}
    assert await redis_client.exists(k.POST_BOOKMARKS(second)) == 0
    await assert_consistent()


async def test_comments_of_another_service_are_listed_deleted_and_synced(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, assert_consistent: Any
) -> None:
    id = await post(social, bob)
    first = (await social.comments.create(ana, id, NewComment("first"))).id
    others = [str(uuid.uuid4()) for _ in range(3)]
    for n, comment in enumerate(others):
        fields = {"id": comment, "post_id": id, "username": "ana", "content": f"comment {n}"}
        await redis_client.hset(k.COMMENT(comment), mapping={**fields, "created_at": social.clock.now_ms() + 1 + n})
        await redis_client.rpush(k.POST_COMMENTS(id), comment)
        await redis_client.hincrby(k.POST(id), "commentsCount", 1)
    shown = (await social.comments.page(bob, id, Page())).items
    assert [comment.id for comment in shown] == [first, *others]
    assert await redis_client.zcard(k.USER_COMMENTS("ana")) == 4
    await redis_client.lrem(k.POST_COMMENTS(id), 1, others[1])
    await redis_client.hincrby(k.POST(id), "commentsCount", -1)
    assert [comment.id for comment in (await social.comments.page(bob, id, Page())).items] == [
        first,
        others[0],
        others[2],
    ]
    await redis_client.zrem(k.POST_COMMENTS_RECENT(id), others[0], others[2])
    record = {"id": others[0], "post_id": id, "username": "ana", "content": "comment 0"}
    assert (await social.sync.apply("comment", [record]))[0].status in ("updated", "unchanged")
    assert (await social.comments.delete(ana, others[2])).deleted
    assert await redis_client.lrange(k.POST_COMMENTS(id), 0, -1) == [first, others[0]]
    assert await redis_client.hget(k.POST(id), "commentsCount") == "2"
    assert not await redis_client.exists(k.COMMENT(others[2]))


async def test_a_post_that_another_service_adds_with_an_earlier_time_reaches_an_active_readers_home_feed(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    await social.relations.follow(ana, "bob")
    new = await post(social, bob)
    assert await home_ids(social, ana) == [new]
    old = await write_documented_post(redis_client, "bob", "old", social.clock.now_ms() - 86_400_000, [])
    for _ in range(4):
        social.clock.advance(seconds=k.HOME_SECONDS / 4 + 1)
        home = await home_ids(social, ana)
    assert home == [new, old]


async def test_liking_again_after_another_service_changes_nothing_and_completes_the_index(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, assert_consistent: Any
) -> None:
    id = await post(social, bob, "#tea")
    await redis_client.sadd(k.POST_LIKES(id), "ana")  # the other service failed before HINCRBY
    again = await social.engagements.like(ana, id)
    assert (again.changed, again.isLiked, again.likesCount) == (False, True, 1)
    await assert_consistent()
    await redis_client.srem(k.POST_LIKES(id), "ana")
    await redis_client.hincrby(k.POST(id), "likesCount", -1)
    assert not (await social.posts.get(ana, id)).isLiked
    assert (await social.engagements.likes(bob, id, Page())).items == []
    await social.functions.run("social_repair_post", [k.POST(id)], social.clock.now_ms(), id)
    await assert_consistent()


async def test_a_follow_of_another_service_is_listed_and_in_the_home_feed(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, assert_consistent: Any
) -> None:
    cat = await social.create_user("cat")
    posts = [await post(social, bob), await post(social, cat)]
    await social.relations.follow(ana, "cat")
    assert await home_ids(social, ana) == posts[1:]
    await redis_client.sadd(k.USER_FOLLOWING("ana"), "bob")
    await redis_client.sadd(k.USER_FOLLOWERS("bob"), "ana")
    await redis_client.hincrby(k.USER("ana"), "followingCount", 1)
    await redis_client.hincrby(k.USER("bob"), "followerCount", 1)
    assert {user.id for user in (await social.relations.followers(None, "bob", Page())).items} == {"ana"}
    assert {user.id for user in (await social.relations.following(None, "ana", Page())).items} == {"bob", "cat"}
    assert await home_ids(social, ana) == posts[::-1]
    assert not (await social.relations.follow(ana, "bob")).changed
    await redis_client.delete(k.TMP_HOME("ana"), k.TMP_HOME_STATE("ana"))
    await assert_consistent()
    await redis_client.srem(k.USER_FOLLOWING("ana"), "cat")
    await redis_client.srem(k.USER_FOLLOWERS("cat"), "ana")
    await redis_client.hincrby(k.USER("ana"), "followingCount", -1)
    await redis_client.hincrby(k.USER("cat"), "followerCount", -1)
    assert await home_ids(social, ana) == posts[:1]
    assert (await social.relations.followers(None, "cat", Page())).items == []
    await assert_consistent()


async def test_deleting_a_post_deletes_likes_written_by_another_service(
    social: Social, bob: Actor, redis_client: Any
) -> None:
    id = await post(social, bob)
    await redis_client.sadd(k.POST_LIKES(id), *(f"u{n}" for n in range(250)))
    await social.posts.delete(bob, id)
    assert not await redis_client.exists(k.POST_LIKES(id))


async def write_documented_post(
    redis_client: Any, author: str, content: str, at: int, tags: list[str], *, count: bool = True
) -> str:
    """Write a post with exactly the documented fields and keys."""
    id = str(uuid.uuid4())
    fields = {"id": id, "user_id": author, "content": content, "media_url": "", "created_at": at}
    fields |= {"username": author, "avatar": "", "display_name": "", "user_role": "user"}
    fields |= {"likesCount": 0, "commentsCount": 0, "bookmarksCount": 0}
    await redis_client.hset(k.POST(id), mapping=fields)
    await redis_client.zadd(k.USER_POSTS(author), {id: at})
    await redis_client.zadd(k.EXPLORE_FEED(), {id: at})
    for tag in tags:
        await redis_client.zadd(k.HASHTAG_POSTS(tag), {id: at})
        await redis_client.zadd(k.HASHTAG_RANKED(tag), {id: 0})
    if count:
        await redis_client.hincrby(k.USER(author), "postCount", 1)
    return id


async def test_the_hashtags_of_a_post_of_another_service_are_those_of_its_text(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    tags, content = ["tea", "été", "привет"], "#Tea #ÉTÉ, no#tag #ПРИВЕТ… http://x/#y"
    id = await write_documented_post(redis_client, "bob", content, social.clock.now_ms(), tags)
    assert (await social.posts.get(ana, id)).hashtags == tags
    await social.engagements.like(ana, id)
    for tag in tags:
        assert await redis_client.zscore(k.HASHTAG_RANKED(tag), id) == 3, tag
    assert await redis_client.hexists(k.POST(id), "hashtags") == 0, "the documented hash is unchanged"
    await social.functions.run("social_repair_post", [k.POST(id)], social.clock.now_ms(), id)
    assert await redis_client.zscore(k.HASHTAG_POSTS("tea"), id) is not None
    await social.posts.edit(bob, id, PostEdit("#coffee"))
    assert await redis_client.zscore(k.HASHTAG_POSTS("tea"), id) is None
    await social.posts.delete(bob, id)
    assert await redis_client.zscore(k.HASHTAG_POSTS("coffee"), id) is None


async def test_a_post_stays_under_a_hashtag_that_only_another_service_gave_it(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    id = await write_documented_post(redis_client, "bob", "no tag here", social.clock.now_ms(), ["tea"])
    await social.functions.run("social_repair_tagged", [k.POST(id)], social.clock.now_ms(), id, "tea")
    assert await redis_client.zscore(k.HASHTAG_POSTS("tea"), id) is not None
    assert [item.post.id for item in (await social.feeds.hashtag(ana, "tea", Page())).items] == [id]


async def test_posts_that_another_service_leaves_ranked_with_the_score_0_are_not_shown(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    now = social.clock.now_ms()
    ids = [
        await write_documented_post(redis_client, "bob", "#tea", now - (RANKED_MS + 1) * (n % 2), ["tea"])
        for n in range(8)
    ]
    shown = [item.post.id for item in (await social.feeds.ranked(ana, "tea", Page())).items]
    assert sorted(shown) == sorted(ids[::2])
    for offset in range(5):
        page = (await social.feeds.ranked(ana, "tea", Page(limit=2, offset=offset))).items
        assert [item.post.id for item in page] == shown[offset : offset + 2]
    (top,) = await social.feeds.top_posts(ana, "tea", 5)
    assert [item.post.id for item in top.posts] == shown
    for id in ids:
        await social.functions.run("social_repair_post", [k.POST(id)], now, id)
    assert await redis_client.zcard(k.HASHTAG_RANKED("tea")) == 8


async def test_the_raw_home_feed_loses_posts_of_unfollowed_and_blocked_users_and_banned_posts(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    cat, dan = await social.create_user("cat"), await social.create_user("dan")
    for name in ("bob", "cat", "dan"):
        await social.relations.follow(ana, name)
    bobs, cats, dans, banned = [await post(social, author) for author in (bob, cat, dan, dan)]
    assert await home_ids(social, ana) == [banned, dans, cats, bobs]
    await social.posts.ban(ADMIN, banned, on=True)
    await social.jobs.update_home_feeds()
    assert await redis_client.zrange(k.TMP_HOME("ana"), 0, -1) == [bobs, cats, dans]
    await social.posts.ban(ADMIN, banned, on=False)
    await social.jobs.update_home_feeds()
    assert await redis_client.zrange(k.TMP_HOME("ana"), 0, -1) == [bobs, cats, dans, banned]
    await social.relations.unfollow(ana, "bob")
    await social.relations.block(cat, "ana")
    assert {bobs, cats}.isdisjoint(await redis_client.zrange(k.TMP_HOME("ana"), 0, -1))
    assert await home_ids(social, ana) == [banned, dans]


async def test_imported_posts_are_in_the_home_feed_and_queue_nothing(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, server: Any
) -> None:
    await social.relations.follow(ana, "bob")
    new = await post(social, bob)
    await social.jobs.update_home_feeds()
    assert await home_ids(social, ana) == [new]
    old = str(uuid.uuid4())
    record = {"id": old, "username": "bob", "content": "old", "created_at": social.clock.now_ms() - 86_400_000}
    assert (await social.sync.apply("post", [record]))[0].status == "created"
    await social.functions.outbox.drain()
    assert await redis_client.zcard(k.FEEDS_PUSH()) == 0
    assert await home_ids(social, ana) == [new, old]
    moved = {**record, "created_at": social.clock.now_ms() - 43_200_000}
    assert (await social.sync.apply("post", [moved]))[0].status == "updated"
    recent = {**record, "id": str(uuid.uuid4()), "created_at": social.clock.now_ms()}
    assert (await social.sync.apply("post", [recent]))[0].status == "created"
    await social.functions.outbox.drain()
    assert await redis_client.zcard(k.FEEDS_PUSH()) == 0
    home = await home_ids(social, ana)
    assert (set(home), home[-1]) == ({new, old, recent["id"]}, old)


async def test_a_deleted_post_leaves_home_feeds_before_queued_posts_enter(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_feed_updates, "POSTS_PER_BATCH", 1)
    await social.relations.follow(ana, "bob")
    ids = [await post(social, bob) for _ in range(3)]
    assert len(await home_ids(social, ana)) == 3
    order: list[str] = []
    run, call = social.functions.run, social.valkey.batch

    async def record_push(command: str, keys: Any, *args: Any) -> Any:
        if command == "social_home_push":
            order.append(args[1])
        return await run(command, keys, *args)

    async def record_drop(commands: Any) -> Any:
        order.extend(f"drop {c[2]}" for c in commands if c[0] == "ZREM")
        return await call(commands)

    await social.posts.delete(bob, ids[0])
    monkeypatch.setattr(social.functions, "run", record_push)
    monkeypatch.setattr(social.valkey, "batch", record_drop)
    await social.jobs.update_home_feeds()
    assert order == [f"drop {ids[0]}", ids[2], ids[1]]


async def test_the_profile_has_only_documented_fields_after_changes_and_a_suspension(
    social: Social, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    credentials = social.parts[Credentials]
    await social.post(ana)
    await social.users.update_profile(ana, "ana", Profile(display_name="Ana the Great"))
    await social.relations.follow(ana, "bob")
    assert await credentials.actor("ana") is not None
    suspended = await social.users.suspend(ADMIN, "ana", on=True)
    assert suspended.suspended_at == social.clock.now_ms()
    assert (await redis_client.hgetall(k.USER("ana"))).keys() <= DOCUMENTED_FIELDS
    assert await credentials.actor("ana") is None
    assert (await social.users.suspend(ADMIN, "ana", on=False)).suspended_at is None
    assert await credentials.actor("ana") is not None


async def test_a_suspension_of_an_earlier_release_stays_and_is_moved_by_a_repair(
    social: Social, ana: Actor, redis_client: Any
) -> None:
    await redis_client.hset(k.USER("ana"), mapping={"suspended_at": 5, "suspended_by": "root"})
    credentials = social.parts[Credentials]
    assert await credentials.actor("ana") is None
    await social.functions.run("social_repair_user", [k.USER("ana")], social.clock.now_ms(), "ana")
    assert await redis_client.hget(k.AUTH_USER("ana"), "suspended_at") == "5"
    assert not await redis_client.hexists(k.USER("ana"), "suspended_by")
    assert await credentials.actor("ana") is None
    await social.users.suspend(ADMIN, "ana", on=False)
    assert await credentials.actor("ana") is not None


@pytest.mark.parametrize("list_key", [k.EXPLORE_FEED, lambda: k.HASHTAG_RANKED("tea"), lambda: k.USER_POSTS("ana")])
async def test_a_post_has_its_event_although_a_list_that_has_it_has_the_wrong_type(
    social: Social, ana: Actor, redis_client: Any, list_key: Callable[[], str]
) -> None:
    await redis_client.set(list_key(), "another type")
    operation = "5f0c1d1e-0000-4000-8000-000000000001"
    with pytest.raises(ReplyError, match="WRONGTYPE"):
        await social.posts.create(ana, NewPost("#tea"), operation)
    again = await social.posts.create(ana, NewPost("#tea"), operation)
    events = [event for event in await read_events(redis_client, "social") if event.type == "post.created"]
    assert [event.subject for event in events] == [again.id]


async def test_a_list_of_the_wrong_type_keeps_a_post_out_of_no_other_list_of_its_node(
    social: Social, ana: Actor, redis_client: Any
) -> None:
    if not social.valkey.clustered:
        return
    tags = [f"tag{n}" for n in range(12)]
    lists = [key(tag) for tag in tags for key in (k.HASHTAG_POSTS, k.HASHTAG_RANKED)]
    await redis_client.set(lists[0], "another type")
    await redis_client.set(lists[5], "another type")
    operation = "5f0c1d1e-0000-4000-8000-000000000001"
    with pytest.raises(ReplyError, match="WRONGTYPE"):
        await social.posts.create(ana, NewPost(" ".join(f"#{tag}" for tag in tags)), operation)
    others = [name for name in lists if name not in (lists[0], lists[5])]
    assert [name for name in others if await redis_client.zcard(name) != 1] == []


async def test_a_post_without_an_event_is_not_created(social: Social, ana: Actor, redis_client: Any) -> None:
    if social.valkey.clustered:
        return  # where the event is queued beside the post
    (stream,) = all_streams("social")
    await redis_client.set(stream.key, "another type")
    with pytest.raises(ReplyError, match="WRONGTYPE"):
        await social.post(ana, "#tea")
    assert await redis_client.keys("post:*") == []
    assert not await redis_client.exists(k.EXPLORE_FEED(), k.USER_POSTS("ana"))
