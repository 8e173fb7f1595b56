"""Corrupted posts, their likes, bookmarks and comments, and feeds."""

from __future__ import annotations

from typing import Any

from plaza.social import keys as k
from tests.keyspace.audit.corruptions.corruption import MISSING_ID, CorruptionList
from tests.keyspace.audit.sample_community import SampleCommunity

corruptions = CorruptionList()


@corruptions.found_as("post:<post>", "count")
async def a_like_count_is_wrong(client: Any, community: SampleCommunity) -> None:
    await client.hset(k.POST(community.posts[0]), "likesCount", 99)


@corruptions.found_as("post:<post>", "count")
async def a_comment_count_is_wrong(client: Any, community: SampleCommunity) -> None:
    await client.hset(k.POST(community.posts[1]), "commentsCount", 0)


@corruptions.found_as("post:<post>", "count")
async def a_bookmark_count_is_wrong(client: Any, community: SampleCommunity) -> None:
    await client.hincrby(k.POST(community.posts[1]), "bookmarksCount", 5)


@corruptions.found_as("post:<post>", "copy")
async def a_post_shows_another_name(client: Any, community: SampleCommunity) -> None:
    await client.hset(k.POST(community.posts[0]), "display_name", "Other name")


@corruptions.found_as("post:<post>", "lifetime")
async def a_post_expires(client: Any, community: SampleCommunity) -> None:
    await client.expire(k.POST(community.posts[0]), 1000)


@corruptions.found_as("post:<post>:likes", "mirror")
async def a_like_is_missing_in_the_users_likes(client: Any, community: SampleCommunity) -> None:
    await client.zrem(k.USER_LIKED("ana"), community.posts[0])


@corruptions.found_as("user:<username>:liked", "mirror")
async def a_users_likes_have_an_extra_post(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.USER_LIKED("dora"), {community.posts[0]: 5})


@corruptions.found_as("user:<username>:liked", "mirror")
async def a_users_likes_have_a_missing_post(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.USER_LIKED("dora"), {MISSING_ID: 5})


@corruptions.found_as("post:<post>:likes:recent", "order")
async def the_order_of_likes_has_an_extra_user(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.POST_LIKES_RECENT(community.posts[0]), {"dora": 5})


@corruptions.found_as("post:<post>:likes", "orphan")
async def likes_without_a_post(client: Any, community: SampleCommunity) -> None:
    await client.sadd(k.POST_LIKES(MISSING_ID), "ana")
    await client.zadd(k.POST_LIKES_RECENT(MISSING_ID), {"ana": 5})


@corruptions.found_as("post:<post>:likes", "member", kept=True)
async def a_like_of_an_invalid_username(client: Any, community: SampleCommunity) -> None:
    await client.sadd(k.POST_LIKES(community.posts[0]), "no such name!")


@corruptions.found_as("user:<username>:bookmarked", "mirror")
async def a_bookmark_is_missing_on_the_post(client: Any, community: SampleCommunity) -> None:
    await client.srem(k.POST_BOOKMARKS(community.posts[1]), "ana")


@corruptions.found_as("post:<post>:bookmarks", "mirror")
async def a_bookmark_is_on_the_post_only(client: Any, community: SampleCommunity) -> None:
    await client.sadd(k.POST_BOOKMARKS(community.posts[1]), "dora")


@corruptions.found_as("post:<post>:comments", "reference")
async def a_comment_without_its_text(client: Any, community: SampleCommunity) -> None:
    await client.rpush(k.POST_COMMENTS(community.posts[0]), MISSING_ID)
    await client.zadd(k.POST_COMMENTS_RECENT(community.posts[0]), {MISSING_ID: 5})
    await client.hset(k.POST(community.posts[0]), "commentsCount", 1)


@corruptions.found_as("comment:<comment>", "comment")
async def a_comment_is_missing_in_its_authors_comments(client: Any, community: SampleCommunity) -> None:
    await client.zrem(k.USER_COMMENTS("ana"), community.comments[0])


@corruptions.found_as("comment:<comment>", "comment")
async def a_comment_that_its_post_does_not_list(client: Any, community: SampleCommunity) -> None:
    fields = {"id": MISSING_ID, "post_id": community.posts[0], "username": "ana", "content": "?", "created_at": 5}
    await client.hset(k.COMMENT(MISSING_ID), mapping=fields)


@corruptions.found_as("user:<username>:comments", "score")
async def a_users_comments_have_a_missing_comment(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.USER_COMMENTS("ana"), {MISSING_ID: 5})


@corruptions.found_as("explore:feed", "listed")
async def a_banned_post_is_shown(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.EXPLORE_FEED(), {community.banned: 5})


@corruptions.found_as("explore:feed", "listed")
async def a_feed_has_a_missing_post(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.EXPLORE_FEED(), {MISSING_ID: 5})


@corruptions.found_as("post:<post>", "standing")
async def a_post_is_in_no_feed(client: Any, community: SampleCommunity) -> None:
    await client.zrem(k.EXPLORE_FEED(), community.posts[0])


@corruptions.found_as("explore:feed", "listed")
async def a_post_is_in_the_feed_at_another_time(client: Any, community: SampleCommunity) -> None:
    await client.zincrby(k.EXPLORE_FEED(), 1, community.posts[0])


@corruptions.found_as("explore:feed", "type")
async def a_feed_is_a_string(client: Any, community: SampleCommunity) -> None:
    await client.delete(k.EXPLORE_FEED())
    await client.set(k.EXPLORE_FEED(), "[]")


@corruptions.found_as("post:<post>", "tags")
async def a_post_is_not_under_its_tag(client: Any, community: SampleCommunity) -> None:
    await client.zrem(k.HASHTAG_POSTS("plaza"), community.posts[0])


@corruptions.found_as("hashtag:<tag>:posts", "listed")
async def a_post_is_under_another_tag(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.HASHTAG_POSTS("other"), {community.posts[0]: 5})


@corruptions.found_as("hashtag:<tag>:ranked", "score")
async def a_ranked_score_is_3_percent_off(client: Any, community: SampleCommunity) -> None:
    score = await client.zscore(k.HASHTAG_RANKED("plaza"), community.posts[1])
    await client.zadd(k.HASHTAG_RANKED("plaza"), {community.posts[1]: score * 1.03})


@corruptions.found_as("post:<post>", "standing")
async def a_post_is_never_scored_again(client: Any, community: SampleCommunity) -> None:
    await client.zrem(k.RANKING_DUE(), community.posts[1])


@corruptions.found_as("ranking:posts", "record")
async def a_post_will_be_scored_under_another_tag(client: Any, community: SampleCommunity) -> None:
    held = await client.hget(k.RANKING_POSTS(), community.posts[1])
    created, points, _ = held.split("|")
    await client.hset(k.RANKING_POSTS(), community.posts[1], f"{created}|{points}|other")


@corruptions.found_as("tmp:home:<username>", "lifetime")
async def a_home_feed_does_not_expire(client: Any, community: SampleCommunity) -> None:
    await client.persist(k.TMP_HOME("ana"))


@corruptions.found_as("posts:banned", "listed")
async def a_post_that_is_shown_is_listed_as_banned(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.POSTS_BANNED(), {community.posts[0]: 5})


@corruptions.found_as("posts:banned", "listed")
async def a_ban_is_listed_at_another_time(client: Any, community: SampleCommunity) -> None:
    await client.zincrby(k.POSTS_BANNED(), 1, community.banned)


@corruptions.found_as("post:<post>", "standing")
async def a_banned_post_is_not_listed(client: Any, community: SampleCommunity) -> None:
    await client.zrem(k.POSTS_BANNED(), community.banned)
