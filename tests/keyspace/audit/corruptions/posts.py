"""Posts, what is on them and the feeds they are in, as another writer broke them."""

from __future__ import annotations

from typing import Any

from plaza.social import keys as k
from tests.keyspace.audit.corruptions.ways import NOBODY, Breaks
from tests.keyspace.audit.sample_community import Town

breaks = Breaks()


@breaks.found_as("post:<post>", "count")
async def a_like_count_is_wrong(r: Any, t: Town) -> None:
    await r.hset(k.POST(t.posts[0]), "likesCount", 99)


@breaks.found_as("post:<post>", "count")
async def a_comment_count_is_wrong(r: Any, t: Town) -> None:
    await r.hset(k.POST(t.posts[1]), "commentsCount", 0)


@breaks.found_as("post:<post>", "count")
async def a_bookmark_count_is_wrong(r: Any, t: Town) -> None:
    await r.hincrby(k.POST(t.posts[1]), "bookmarksCount", 5)


@breaks.found_as("post:<post>", "copy")
async def a_post_shows_another_name(r: Any, t: Town) -> None:
    await r.hset(k.POST(t.posts[0]), "display_name", "Somebody")


@breaks.found_as("post:<post>", "lifetime")
async def a_post_expires(r: Any, t: Town) -> None:
    await r.expire(k.POST(t.posts[0]), 1000)


@breaks.found_as("post:<post>:likes", "mirror")
async def a_like_is_not_among_the_likers(r: Any, t: Town) -> None:
    await r.zrem(k.USER_LIKED("ana"), t.posts[0])


@breaks.found_as("user:<username>:liked", "mirror")
async def someone_likes_what_does_not_know_it(r: Any, t: Town) -> None:
    await r.zadd(k.USER_LIKED("dora"), {t.posts[0]: 5})


@breaks.found_as("user:<username>:liked", "mirror")
async def someone_likes_what_is_not_there(r: Any, t: Town) -> None:
    await r.zadd(k.USER_LIKED("dora"), {NOBODY: 5})


@breaks.found_as("post:<post>:likes:recent", "order")
async def a_like_in_the_order_alone(r: Any, t: Town) -> None:
    await r.zadd(k.POST_LIKES_RECENT(t.posts[0]), {"dora": 5})


@breaks.found_as("post:<post>:likes", "orphan")
async def likes_without_a_post(r: Any, t: Town) -> None:
    await r.sadd(k.POST_LIKES(NOBODY), "ana")
    await r.zadd(k.POST_LIKES_RECENT(NOBODY), {"ana": 5})


@breaks.found_as("post:<post>:likes", "member")
async def a_like_of_an_impossible_name(r: Any, t: Town) -> None:
    await r.sadd(k.POST_LIKES(t.posts[0]), "no such name!")


@breaks.found_as("user:<username>:bookmarked", "mirror")
async def a_bookmark_is_missing_on_the_post(r: Any, t: Town) -> None:
    await r.srem(k.POST_BOOKMARKS(t.posts[1]), "ana")


@breaks.found_as("post:<post>:bookmarks", "mirror")
async def a_bookmark_on_the_post_alone(r: Any, t: Town) -> None:
    await r.sadd(k.POST_BOOKMARKS(t.posts[1]), "dora")


@breaks.found_as("post:<post>:comments", "reference")
async def a_comment_without_its_text(r: Any, t: Town) -> None:
    await r.rpush(k.POST_COMMENTS(t.posts[0]), NOBODY)
    await r.zadd(k.POST_COMMENTS_RECENT(t.posts[0]), {NOBODY: 5})
    await r.hset(k.POST(t.posts[0]), "commentsCount", 1)


@breaks.found_as("comment:<comment>", "comment")
async def a_comment_is_not_among_its_authors(r: Any, t: Town) -> None:
    await r.zrem(k.USER_COMMENTS("ana"), t.comments[0])


@breaks.found_as("comment:<comment>", "comment")
async def a_comment_that_its_post_does_not_list(r: Any, t: Town) -> None:
    fields = {"id": NOBODY, "post_id": t.posts[0], "username": "ana", "content": "?", "created_at": 5}
    await r.hset(k.COMMENT(NOBODY), mapping=fields)


@breaks.found_as("user:<username>:comments", "score")
async def a_comment_that_is_not_there(r: Any, t: Town) -> None:
    await r.zadd(k.USER_COMMENTS("ana"), {NOBODY: 5})


@breaks.found_as("explore:feed", "listed")
async def a_banned_post_is_shown(r: Any, t: Town) -> None:
    await r.zadd(k.EXPLORE_FEED(), {t.banned: 5})


@breaks.found_as("explore:feed", "listed")
async def a_feed_has_what_is_not_there(r: Any, t: Town) -> None:
    await r.zadd(k.EXPLORE_FEED(), {NOBODY: 5})


@breaks.found_as("post:<post>", "standing")
async def a_post_is_in_no_feed(r: Any, t: Town) -> None:
    await r.zrem(k.EXPLORE_FEED(), t.posts[0])


@breaks.found_as("explore:feed", "listed")
async def a_post_is_in_the_feed_at_another_time(r: Any, t: Town) -> None:
    await r.zincrby(k.EXPLORE_FEED(), 1, t.posts[0])


@breaks.found_as("explore:feed", "type")
async def a_feed_is_a_string(r: Any, t: Town) -> None:
    await r.delete(k.EXPLORE_FEED())
    await r.set(k.EXPLORE_FEED(), "[]")


@breaks.found_as("post:<post>", "tags")
async def a_post_is_not_under_its_tag(r: Any, t: Town) -> None:
    await r.zrem(k.HASHTAG_POSTS("plaza"), t.posts[0])


@breaks.found_as("hashtag:<tag>:posts", "listed")
async def a_post_is_under_a_tag_it_has_not(r: Any, t: Town) -> None:
    await r.zadd(k.HASHTAG_POSTS("other"), {t.posts[0]: 5})


@breaks.found_as("hashtag:<tag>:ranked", "score")
async def a_ranked_score_is_3_percent_off(r: Any, t: Town) -> None:
    score = await r.zscore(k.HASHTAG_RANKED("plaza"), t.posts[1])
    await r.zadd(k.HASHTAG_RANKED("plaza"), {t.posts[1]: score * 1.03})


@breaks.found_as("post:<post>", "standing")
async def a_post_is_never_scored_again(r: Any, t: Town) -> None:
    await r.zrem(k.RANKING_DUE(), t.posts[1])


@breaks.found_as("ranking:posts", "record")
async def a_post_will_be_scored_by_other_points(r: Any, t: Town) -> None:
    held = await r.hget(k.RANKING_POSTS(), t.posts[1])
    created, _, tags = held.split("|")
    await r.hset(k.RANKING_POSTS(), t.posts[1], f"{created}|1|{tags}")


@breaks.found_as("tmp:home:<username>", "lifetime")
async def a_home_feed_stays_for_ever(r: Any, t: Town) -> None:
    await r.persist(k.TMP_HOME("ana"))
