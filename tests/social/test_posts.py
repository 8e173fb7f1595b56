"""Posts, likes, bookmarks and comments."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from plaza.core.auth import Actor
from plaza.core.comment_tree import MAX_EDITS
from plaza.core.errors import Forbidden, Invalid, NotFound
from plaza.core.paging import Page
from plaza.social import keys as k
from plaza.social.model import NewComment, NewPost, NoProfile, PostEdit, Profile
from tests.social.conftest import ADMIN, Social, trips


async def test_a_post_is_the_documented_hash_and_in_every_feed(
    social: Social, ana: Actor, redis_client: Any, assert_consistent: Any
) -> None:
    post = await social.posts.create(ana, NewPost("Off to #Paris!", "https://img.example/1.jpg", ["Été", "paris"]))
    now = social.clock.now_ms()
    assert await redis_client.hgetall(k.POST(post.id)) == {
        "id": post.id, "user_id": "ana", "username": "ana", "content": "Off to #Paris!", "created_at": str(now),
        "media_url": "https://img.example/1.jpg", "hashtags": "paris,été", "likesCount": "0", "commentsCount": "0",
        "bookmarksCount": "0", "display_name": "Ana", "avatar": "https://img.example/ana.png", "user_role": "user",
        "user_version": "0", "listed_hashtags": "paris",
    }  # fmt: skip
    for feed in (k.EXPLORE_FEED(), k.USER_POSTS("ana"), k.HASHTAG_POSTS("paris"), k.HASHTAG_POSTS("été")):
        assert await redis_client.zrange(feed, 0, -1, withscores=True) == [(post.id, now)], feed
    assert await redis_client.zscore(k.HASHTAG_RANKED("été"), post.id) == 0
    assert await redis_client.hget(k.USER("ana"), "postCount") == "1"
    assert (post.hashtags, post.isLiked, post.likesCount) == (["paris", "été"], False, 0)
    await assert_consistent()


async def test_case_and_unicode_composition_do_not_change_a_tag(social: Social, ana: Actor, redis_client: Any) -> None:
    for text in ("#Été", "#été", "#E\u0301te\u0301", "#ÉTÉ"):
        await social.post(ana, text)
    assert await redis_client.zcard(k.HASHTAG_POSTS("été")) == 4
    post = await social.post(ana, "no#tag http://x.example/#frag & #नमस्ते #привет_мир #2026. ##x")
    assert post.hashtags == ["नमस्ते", "привет_мир", "2026"]


async def test_posting_commenting_and_following_need_a_profile(
    social: Social, ana: Actor, assert_consistent: Any
) -> None:
    no_profile = Actor("missing", "user")
    post = await social.post(ana)
    with pytest.raises(NoProfile):
        await social.post(no_profile)
    with pytest.raises(NoProfile):
        await social.comments.create(no_profile, post.id, NewComment("hi"))
    with pytest.raises(NoProfile):
        await social.relations.follow(no_profile, "ana")
    assert (await social.engagements.like(no_profile, post.id)).changed
    await assert_consistent()


async def test_a_profile_of_another_service_is_accepted(
    social: Social, redis_client: Any, assert_consistent: Any
) -> None:
    """It has the documented fields, without those that Plaza adds."""
    profile = {"username": "old", "role": "model", "postCount": 0, "followerCount": 0, "followingCount": 0}
    await redis_client.hset(k.USER("old"), mapping=profile | {"created_at": 5, "display_name": "Old"})
    await redis_client.zadd(k.USERS_MODELS(), {"old": 5})
    await redis_client.zadd(k.MODELS_TOP_ENGAGEMENT(), {"old": 0})
    post = await social.post(Actor("old", "model"))
    assert post.display_name == "Old"
    await social.users.update_profile(Actor("old", "model"), "old", Profile(display_name="Older"))
    await social.jobs.restyle()
    assert (await social.posts.get(None, post.id)).display_name == "Older"
    await assert_consistent()


async def test_an_operation_run_twice_creates_one_post_and_one_comment(
    social: Social, ana: Actor, assert_consistent: Any
) -> None:
    posts = [await social.posts.create(ana, NewPost("once"), "ab" * 16) for _ in range(2)]
    assert posts[0] == posts[1]
    comments = []
    for _ in range(2):
        comments.append(await social.comments.create(ana, posts[0].id, NewComment("once"), "cd" * 16))
        social.clock.advance(seconds=1)
    assert comments[0] == comments[1]
    keyspace = await assert_consistent()
    assert len(keyspace["post"]) == len(keyspace["comment"]) == 1


async def test_liking_twice_counts_once_and_unliking_removes_it(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, assert_consistent: Any
) -> None:
    post = await social.post(ana, "#tea")
    first, second = await social.engagements.like(bob, post.id), await social.engagements.like(bob, post.id)
    assert (first.changed, first.likesCount, second.changed, second.likesCount) == (True, 1, False, 1)
    assert await redis_client.smembers(k.POST_LIKES(post.id)) == {"bob"}
    assert await redis_client.zscore(k.HASHTAG_RANKED("tea"), post.id) == 3
    assert (await social.posts.get(bob, post.id)).isLiked
    await assert_consistent()
    assert (await social.engagements.unlike(bob, post.id)).likesCount == 0
    assert not (await social.engagements.unlike(bob, post.id)).changed
    assert await redis_client.exists(k.POST_LIKES(post.id), k.USER_LIKED("bob")) == 0
    await assert_consistent()


async def test_a_bookmark_is_on_both_sides_and_comments_are_oldest_first(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, assert_consistent: Any
) -> None:
    post = await social.post(ana, "#tea")
    assert (await social.engagements.bookmark(bob, post.id)).changed
    assert not (await social.engagements.bookmark(bob, post.id)).changed
    assert await redis_client.zscore(k.USER_BOOKMARKED("bob"), post.id) == social.clock.now_ms()
    made = []
    for user in (bob, ana):
        social.clock.advance(seconds=1)
        made.append(await social.comments.create(user, post.id, NewComment(f"by {user.name}")))
    assert await redis_client.lrange(k.POST_COMMENTS(post.id), 0, -1) == [comment.id for comment in made]
    assert (await redis_client.hgetall(k.COMMENT(made[0].id)))["content"] == "by bob"
    assert (await social.comments.page(None, post.id, Page())).items == made
    seen = await social.posts.get(bob, post.id)
    assert (seen.isBookmarked, seen.bookmarksCount, seen.commentsCount) == (True, 1, 2)
    await assert_consistent()
    with pytest.raises(Forbidden):
        await social.comments.delete(bob, made[1].id)
    await social.comments.delete(ana, made[0].id)  # the post's author is allowed to
    await social.engagements.unbookmark(bob, post.id)
    keyspace = await assert_consistent()
    assert list(keyspace["comment"]) == [(made[1].id,)]


async def test_likes_are_listed_latest_first(social: Social, ana: Actor) -> None:
    post = await social.post(ana)
    fans = [await social.create_user(f"fan{i}") for i in range(5)]
    for fan in fans:
        social.clock.advance(seconds=1)
        await social.engagements.like(fan, post.id)
    first = await social.engagements.likes(ana, post.id, Page(limit=3))
    rest = await social.engagements.likes(ana, post.id, Page(limit=3, cursor=first.pagination.next_cursor))
    assert [user.username for user in first.items + rest.items] == [fan.name for fan in reversed(fans)]


async def test_editing_keeps_history_and_moves_tags(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, assert_consistent: Any
) -> None:
    post = await social.posts.create(ana, NewPost("#one and #two", None, ["listed"]))
    await social.engagements.like(bob, post.id)
    social.clock.advance(seconds=60)
    await social.engagements.like(ana, post.id)
    edited = await social.posts.edit(ana, post.id, PostEdit("#two and #three"))
    assert (edited.isLiked, edited.isBookmarked, edited.likesCount) == (True, False, 2)
    assert edited.hashtags == ["two", "three", "listed"]
    assert edited.edited_at == social.clock.now_ms()
    (history,) = await redis_client.lrange(k.POST_EDITS(post.id), 0, -1)
    assert "#one and #two" in history
    assert await redis_client.exists(k.HASHTAG_POSTS("one"), k.HASHTAG_RANKED("one")) == 0
    with pytest.raises(Forbidden):
        await social.posts.edit(bob, post.id, PostEdit("mine"))
    with pytest.raises(Forbidden):
        await social.posts.edit(ADMIN, post.id, PostEdit("mine"))
    await assert_consistent()
    await social.posts.edit(ana, post.id, PostEdit("nothing"))
    await social.posts.edit(ana, post.id, PostEdit("nothing"))
    assert await redis_client.llen(k.POST_EDITS(post.id)) == 2
    await assert_consistent()


async def test_a_deleted_post_is_in_no_key(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, assert_consistent: Any
) -> None:
    before = (await assert_consistent()).items()
    post = await social.post(ana, "#tea")
    await social.engagements.like(bob, post.id)
    await social.engagements.bookmark(bob, post.id)
    await social.comments.create(bob, post.id, NewComment("hi"))
    await social.posts.edit(ana, post.id, PostEdit("#coffee"))
    with pytest.raises(Forbidden):
        await social.posts.delete(bob, post.id)
    await social.posts.delete(ana, post.id)
    assert (await assert_consistent()).items() == before
    with pytest.raises(NotFound):
        await social.posts.delete(ana, post.id)
    with pytest.raises(NotFound):
        await social.engagements.like(bob, post.id)
    assert (await assert_consistent()).items() == before


async def test_a_post_with_many_likes_is_deleted_in_steps(social: Social, ana: Actor, assert_consistent: Any) -> None:
    post = await social.post(ana)
    fans = [await social.create_user(f"fan{i}") for i in range(130)]
    before = await assert_consistent()
    await asyncio.gather(*(social.engagements.like(fan, post.id) for fan in fans))
    await asyncio.gather(*(social.engagements.bookmark(fan, post.id) for fan in fans))
    await asyncio.gather(*(social.comments.create(fan, post.id, NewComment("hi")) for fan in fans))
    await assert_consistent()
    await social.posts.delete(ADMIN, post.id)
    after = await assert_consistent()
    assert not after["user_liked"]
    assert not after["comment"]
    assert not after["posts_leaving"]
    assert after["user"] == before["user"] | {("ana",): before["user"][("ana",)] | {"postCount": "0"}}


async def test_a_banned_post_leaves_every_list_until_unbanned(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, assert_consistent: Any
) -> None:
    model = await social.create_user("mia", "model")
    post = await social.post(model, "#tea")
    await social.engagements.like(bob, post.id)
    await social.engagements.bookmark(bob, post.id)
    comment = await social.comments.create(bob, post.id, NewComment("hm"))
    assert await redis_client.zscore(k.MODELS_TOP_ENGAGEMENT(), "mia") == 12
    banned = await social.posts.ban(ADMIN, post.id, on=True)
    assert (banned.banned, banned.banned_by) == (True, "root")
    fields = await redis_client.hgetall(k.POST(post.id))
    assert (fields["banned"], fields["banned_by"]) == ("true", "root")
    assert await redis_client.zscore(k.MODELS_TOP_ENGAGEMENT(), "mia") == 0
    assert await redis_client.zscore(k.USER_BOOKMARKED("bob"), post.id)
    keyspace = await assert_consistent()
    assert keyspace["explore_feed"] == keyspace["hashtag_posts"] == keyspace["ranking_due"] == {}
    for work in (
        social.posts.get(bob, post.id),
        social.engagements.like(ana, post.id),
        social.engagements.bookmark(ana, post.id),
        social.comments.create(ana, post.id, NewComment("x")),
        social.comments.page(bob, post.id, Page()),
        social.engagements.likes(bob, post.id, Page()),
        social.posts.edit(model, post.id, PostEdit("y")),
        social.posts.delete(bob, post.id),
        social.comments.delete(ana, comment.id),
    ):
        with pytest.raises(NotFound):
            await work
    for page in (
        await social.feeds.explore(bob, Page()),
        await social.feeds.user_posts(bob, "mia", Page()),
        await social.feeds.bookmarked(bob, "bob", Page()),
        await social.feeds.hashtag(bob, "tea", Page()),
        await social.feeds.ranked(bob, "tea", Page()),
    ):
        assert page.items == []
    assert [found.posts for found in await social.feeds.top_posts(bob, "tea", 5)] == [[]]
    assert (await social.posts.get(ADMIN, post.id)).banned
    assert [each.id for each in (await social.feeds.banned(Page())).items] == [post.id]
    assert await redis_client.zrange(k.POSTS_BANNED(), 0, -1, withscores=True) == [(post.id, int(fields["banned_at"]))]
    await social.posts.ban(ADMIN, post.id, on=False)
    assert (await social.feeds.banned(Page())).items == []
    assert not {"banned", "banned_at", "banned_by"} & (await redis_client.hgetall(k.POST(post.id))).keys()
    assert await redis_client.zscore(k.MODELS_TOP_ENGAGEMENT(), "mia") == 12
    with pytest.raises(Forbidden):
        await social.comments.delete(ana, comment.id)
    await assert_consistent()
    await social.posts.ban(ADMIN, post.id, on=True)
    await social.posts.delete(ADMIN, post.id)
    assert not await redis_client.exists(k.POSTS_BANNED())


async def test_every_write_takes_one_round_trip_on_one_server(social: Social, ana: Actor, bob: Actor) -> None:
    post = await social.post(ana, "#a #b #c")
    writes = [
        social.post(ana, "#a #b"),
        social.engagements.like(bob, post.id),
        social.engagements.bookmark(bob, post.id),
        social.comments.create(bob, post.id, NewComment("hi")),
        social.relations.follow(bob, "ana"),
        social.engagements.unlike(bob, post.id),
        social.engagements.unbookmark(bob, post.id),
        social.relations.unfollow(bob, "ana"),
        social.posts.delete(ana, post.id),
    ]
    for write in writes:
        assert await trips(write) == 1 or social.valkey.clustered


async def test_bad_content_is_refused_with_its_field(social: Social, ana: Actor, http: Any) -> None:
    for content in ("", "   \n", "\u200b\ufeff \u2060", "a\x00b", "a\x85b", "x" * 10_001):
        answer = await http.post("/posts", json={"content": content}, headers=social.token(ana))
        assert (answer.status_code, answer.json()["field"]) == (422, "content")
        assert "regex" not in answer.text, "the error explains the rule in words"
    seen = "a\tb\nc \u200d\U0001f468\u200d\U0001f469\n"
    assert (await social.post(ana, seen)).content == seen


async def test_thirty_tags_are_accepted_and_one_more_is_refused(
    social: Social, ana: Actor, assert_consistent: Any
) -> None:
    thirty = " ".join(f"#t{i}" for i in range(30))
    assert len((await social.post(ana, thirty)).hashtags) == 30
    with pytest.raises(Invalid):
        await social.posts.create(ana, NewPost(thirty, None, ["more"]))
    with pytest.raises(Invalid):
        await social.posts.create(ana, NewPost("x", None, ["a{b}"]))
    await assert_consistent()


async def test_a_thousand_concurrent_writes_leave_every_counter_correct(social: Social, assert_consistent: Any) -> None:
    """Many users like, bookmark, follow, comment, edit, ban and delete a few posts."""
    dice = random.Random(7)
    users = [await social.create_user(f"p{i}", "model" if i % 3 == 0 else "user") for i in range(12)]
    posts = [await social.post(users[i], f"#tag{i % 2} #all") for i in range(6)]

    async def write_once() -> None:
        user, post, other = dice.choice(users), dice.choice(posts), dice.choice(users)
        operations: list[Callable[[], Awaitable[object]]] = [
            lambda: social.engagements.like(user, post.id),
            lambda: social.engagements.unlike(user, post.id),
            lambda: social.engagements.bookmark(user, post.id),
            lambda: social.engagements.unbookmark(user, post.id),
            lambda: social.comments.create(user, post.id, NewComment("hi")),
            lambda: social.relations.follow(user, other.name),
            lambda: social.relations.unfollow(user, other.name),
            lambda: social.relations.block(user, other.name),
            lambda: social.relations.unblock(user, other.name),
            lambda: social.posts.edit(user, post.id, PostEdit(f"#tag{dice.randrange(3)}")),
        ]
        operation: Callable[[], Awaitable[object]] = dice.choice(operations)
        if dice.random() < 0.01:
            operation = lambda: social.posts.delete(ADMIN, post.id)  # noqa: E731
        if dice.random() < 0.03:
            operation = lambda: social.posts.ban(ADMIN, post.id, on=dice.random() < 0.5)  # noqa: E731
        with contextlib.suppress(NotFound, Invalid, Forbidden):
            await operation()

    for _ in range(5):
        await asyncio.gather(*(write_once() for _ in range(200)))
    await assert_consistent()


async def test_the_history_of_a_post_is_limited(social: Social, ana: Actor, redis_client: Any) -> None:
    post = await social.post(ana, "text 0")
    for n in range(1, MAX_EDITS + 3):
        await social.posts.edit(ana, post.id, PostEdit(f"text {n}"))
    history = await redis_client.lrange(k.POST_EDITS(post.id), 0, -1)
    assert len(history) == MAX_EDITS
    assert '"text 2"' in history[0]
    assert f'"text {MAX_EDITS + 1}"' in history[-1]


async def test_a_listed_hashtag_stays_when_an_edit_removes_it_from_the_text(
    social: Social, ana: Actor, assert_consistent: Any
) -> None:
    post = await social.posts.create(ana, NewPost("off to #Paris", hashtags=["paris", "été"]))
    edited = await social.posts.edit(ana, post.id, PostEdit("off to Rome"))
    assert set(edited.hashtags) == {"paris", "été"}
    again = await social.posts.edit(ana, post.id, PostEdit("#été and #rome"))
    assert set(again.hashtags) == {"été", "rome", "paris"}
    last = await social.posts.edit(ana, post.id, PostEdit("nothing"))
    assert set(last.hashtags) == {"paris", "été"}
    await assert_consistent()
