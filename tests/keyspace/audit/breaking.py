"""Ways in which another writer can break a town, with a plain client, and what the audit calls each of them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from plaza.articles import keys as a
from plaza.challenges import keys as c
from plaza.live import keys as v
from plaza.shop import keys as s
from plaza.social import keys as k
from tests.keyspace.audit.loading import Town

NOBODY = "00000000-0000-4000-8000-000000000000"
TOKEN = "EB9382CA-0376-4558-B271-EA230BDB7EAF"

How = Callable[[Any, Town], Awaitable[Any]]


@dataclass(frozen=True)
class Break:
    """One corruption. `finding` is a family and a rule that the report must name."""

    name: str
    finding: tuple[str, str]
    how: How


BREAKS: list[Break] = []


def breaks(family: str, rule: str) -> Callable[[How], How]:
    def note(how: How) -> How:
        BREAKS.append(Break(how.__name__, (family, rule), how))
        return how

    return note


@breaks("user:<username>", "count")
async def a_follower_count_is_wrong(r: Any, t: Town) -> None:
    await r.hset(k.USER("ana"), "followerCount", 17)


@breaks("user:<username>", "count")
async def a_post_count_is_negative_by_one(r: Any, t: Town) -> None:
    await r.hincrby(k.USER("ben"), "postCount", -1)


@breaks("user:<username>", "field")
async def a_count_is_no_number(r: Any, t: Town) -> None:
    await r.hset(k.USER("ana"), "followingCount", "many")


@breaks("user:<username>", "field")
async def a_count_is_missing(r: Any, t: Town) -> None:
    await r.hdel(k.USER("ana"), "postCount")


@breaks("user:<username>", "secret")
async def a_profile_holds_a_password(r: Any, t: Town) -> None:
    await r.hset(k.USER("ana"), "password", "hunter2")


@breaks("user:<username>", "registry")
async def a_user_is_in_no_registry(r: Any, t: Town) -> None:
    await r.zrem(k.USERS_REGULAR(), "dora")


@breaks("users:models", "listed")
async def a_user_is_among_the_models(r: Any, t: Town) -> None:
    await r.zadd(k.USERS_MODELS(), {"ana": 5})


@breaks("users:regular", "listed")
async def nobody_is_in_the_registry(r: Any, t: Town) -> None:
    await r.zadd(k.USERS_REGULAR(), {"nobody": 5})


@breaks("models:top:engagement", "sum")
async def the_leaderboard_lies(r: Any, t: Town) -> None:
    await r.zincrby(k.MODELS_TOP_ENGAGEMENT(), 100, "ben")


@breaks("user:<username>", "registry")
async def a_model_is_not_on_the_leaderboard(r: Any, t: Town) -> None:
    await r.zrem(k.MODELS_TOP_ENGAGEMENT(), "cleo")


@breaks("user:<username>:points", "sum")
async def a_sum_of_points_is_wrong(r: Any, t: Town) -> None:
    await r.hset(k.USER_POINTS("ben"), "total", 1)


@breaks("user:<username>:points", "points")
async def a_post_counts_for_too_much(r: Any, t: Town) -> None:
    await r.hset(k.USER_POINTS("ben"), t.posts[1], 500)


@breaks("user:<username>:points", "points")
async def a_post_that_is_not_there_counts(r: Any, t: Town) -> None:
    await r.hset(k.USER_POINTS("cleo"), NOBODY, 8)


@breaks("user:<username>:following", "mirror")
async def a_follower_is_missing(r: Any, t: Town) -> None:
    await r.srem(k.USER_FOLLOWERS("ben"), "ana")


@breaks("user:<username>:followers", "mirror")
async def a_follower_never_followed(r: Any, t: Town) -> None:
    await r.sadd(k.USER_FOLLOWERS("eli"), "ben")


@breaks("user:<username>:following", "mirror")
async def somebody_follows_nobody(r: Any, t: Town) -> None:
    await r.sadd(k.USER_FOLLOWING("ana"), "ghost")
    await r.zadd(k.USER_FOLLOWING_RECENT("ana"), {"ghost": 5})


@breaks("user:<username>:following:recent", "order")
async def the_order_of_follows_has_one_more(r: Any, t: Town) -> None:
    await r.zadd(k.USER_FOLLOWING_RECENT("ana"), {"eli": 5})


@breaks("user:<username>:followers:recent", "mirror")
async def a_follow_began_at_another_time(r: Any, t: Town) -> None:
    await r.zadd(k.USER_FOLLOWERS_RECENT("ana"), {"ben": 5})


@breaks("user:<username>:blocked", "mirror")
async def one_side_of_a_block_is_missing(r: Any, t: Town) -> None:
    await r.zrem(k.USER_BLOCKED_BY("eli"), "ana")


@breaks("user:<username>:muted_by", "mirror")
async def someone_is_muted_by_nobody(r: Any, t: Town) -> None:
    await r.zadd(k.USER_MUTED_BY("dora"), {"ana": 5})


@breaks("user:<username>:posts", "listed")
async def a_person_has_a_post_that_is_not_there(r: Any, t: Town) -> None:
    await r.zadd(k.USER_POSTS("ana"), {NOBODY: 5})


@breaks("post:<post>", "author")
async def a_post_is_not_among_its_authors(r: Any, t: Town) -> None:
    await r.zrem(k.USER_POSTS("ana"), t.posts[0])


@breaks("user:<username>:posts", "listed")
async def a_post_is_among_anothers(r: Any, t: Town) -> None:
    await r.zadd(k.USER_POSTS("dora"), {t.posts[0]: 5})


@breaks("auth:<username>", "orphan")
async def credentials_of_nobody(r: Any, t: Town) -> None:
    await r.hset(k.AUTH_USER("ghost"), "password_hash", "$argon2id$")


@breaks("post:<post>", "count")
async def a_like_count_is_wrong(r: Any, t: Town) -> None:
    await r.hset(k.POST(t.posts[0]), "likesCount", 99)


@breaks("post:<post>", "count")
async def a_comment_count_is_wrong(r: Any, t: Town) -> None:
    await r.hset(k.POST(t.posts[1]), "commentsCount", 0)


@breaks("post:<post>", "count")
async def a_bookmark_count_is_wrong(r: Any, t: Town) -> None:
    await r.hincrby(k.POST(t.posts[1]), "bookmarksCount", 5)


@breaks("post:<post>", "copy")
async def a_post_shows_another_name(r: Any, t: Town) -> None:
    await r.hset(k.POST(t.posts[0]), "display_name", "Somebody")


@breaks("post:<post>", "lifetime")
async def a_post_expires(r: Any, t: Town) -> None:
    await r.expire(k.POST(t.posts[0]), 1000)


@breaks("post:<post>:likes", "mirror")
async def a_like_is_not_among_the_likers(r: Any, t: Town) -> None:
    await r.zrem(k.USER_LIKED("ana"), t.posts[0])


@breaks("user:<username>:liked", "mirror")
async def someone_likes_what_does_not_know_it(r: Any, t: Town) -> None:
    await r.zadd(k.USER_LIKED("dora"), {t.posts[0]: 5})


@breaks("user:<username>:liked", "mirror")
async def someone_likes_what_is_not_there(r: Any, t: Town) -> None:
    await r.zadd(k.USER_LIKED("dora"), {NOBODY: 5})


@breaks("post:<post>:likes:recent", "order")
async def a_like_in_the_order_alone(r: Any, t: Town) -> None:
    await r.zadd(k.POST_LIKES_RECENT(t.posts[0]), {"dora": 5})


@breaks("post:<post>:likes", "orphan")
async def likes_without_a_post(r: Any, t: Town) -> None:
    await r.sadd(k.POST_LIKES(NOBODY), "ana")
    await r.zadd(k.POST_LIKES_RECENT(NOBODY), {"ana": 5})


@breaks("post:<post>:likes", "member")
async def a_like_of_an_impossible_name(r: Any, t: Town) -> None:
    await r.sadd(k.POST_LIKES(t.posts[0]), "no such name!")


@breaks("user:<username>:bookmarked", "mirror")
async def a_bookmark_is_missing_on_the_post(r: Any, t: Town) -> None:
    await r.srem(k.POST_BOOKMARKS(t.posts[1]), "ana")


@breaks("post:<post>:bookmarks", "mirror")
async def a_bookmark_on_the_post_alone(r: Any, t: Town) -> None:
    await r.sadd(k.POST_BOOKMARKS(t.posts[1]), "dora")


@breaks("post:<post>:comments", "reference")
async def a_comment_without_its_text(r: Any, t: Town) -> None:
    await r.rpush(k.POST_COMMENTS(t.posts[0]), NOBODY)
    await r.zadd(k.POST_COMMENTS_RECENT(t.posts[0]), {NOBODY: 5})
    await r.hset(k.POST(t.posts[0]), "commentsCount", 1)


@breaks("comment:<comment>", "comment")
async def a_comment_is_not_among_its_authors(r: Any, t: Town) -> None:
    await r.zrem(k.USER_COMMENTS("ana"), t.comments[0])


@breaks("comment:<comment>", "comment")
async def a_comment_that_its_post_does_not_list(r: Any, t: Town) -> None:
    fields = {"id": NOBODY, "post_id": t.posts[0], "username": "ana", "content": "?", "created_at": 5}
    await r.hset(k.COMMENT(NOBODY), mapping=fields)


@breaks("user:<username>:comments", "score")
async def a_comment_that_is_not_there(r: Any, t: Town) -> None:
    await r.zadd(k.USER_COMMENTS("ana"), {NOBODY: 5})


@breaks("explore:feed", "listed")
async def a_banned_post_is_shown(r: Any, t: Town) -> None:
    await r.zadd(k.EXPLORE_FEED(), {t.banned: 5})


@breaks("explore:feed", "listed")
async def a_feed_has_what_is_not_there(r: Any, t: Town) -> None:
    await r.zadd(k.EXPLORE_FEED(), {NOBODY: 5})


@breaks("post:<post>", "standing")
async def a_post_is_in_no_feed(r: Any, t: Town) -> None:
    await r.zrem(k.EXPLORE_FEED(), t.posts[0])


@breaks("explore:feed", "listed")
async def a_post_is_in_the_feed_at_another_time(r: Any, t: Town) -> None:
    await r.zincrby(k.EXPLORE_FEED(), 1, t.posts[0])


@breaks("explore:feed", "type")
async def a_feed_is_a_string(r: Any, t: Town) -> None:
    await r.delete(k.EXPLORE_FEED())
    await r.set(k.EXPLORE_FEED(), "[]")


@breaks("post:<post>", "tags")
async def a_post_is_not_under_its_tag(r: Any, t: Town) -> None:
    await r.zrem(k.HASHTAG_POSTS("plaza"), t.posts[0])


@breaks("hashtag:<tag>:posts", "listed")
async def a_post_is_under_a_tag_it_has_not(r: Any, t: Town) -> None:
    await r.zadd(k.HASHTAG_POSTS("other"), {t.posts[0]: 5})


@breaks("hashtag:<tag>:ranked", "score")
async def a_ranked_score_is_3_percent_off(r: Any, t: Town) -> None:
    score = await r.zscore(k.HASHTAG_RANKED("plaza"), t.posts[1])
    await r.zadd(k.HASHTAG_RANKED("plaza"), {t.posts[1]: score * 1.03})


@breaks("post:<post>", "standing")
async def a_post_is_never_scored_again(r: Any, t: Town) -> None:
    await r.zrem(k.RANKING_DUE(), t.posts[1])


@breaks("ranking:posts", "record")
async def a_post_will_be_scored_by_other_points(r: Any, t: Town) -> None:
    held = await r.hget(k.RANKING_POSTS(), t.posts[1])
    created, _, tags = held.split("|")
    await r.hset(k.RANKING_POSTS(), t.posts[1], f"{created}|1|{tags}")


@breaks("tmp:home:<username>", "lifetime")
async def a_home_feed_stays_for_ever(r: Any, t: Town) -> None:
    await r.persist(k.TMP_HOME("ana"))


@breaks("article:<article>", "votes")
async def votes_are_wrong(r: Any, t: Town) -> None:
    await r.hset(a.ARTICLE(t.articles[0]), "votes", 77)


@breaks("upvoted:<article>", "votes")
async def someone_voted_both_ways(r: Any, t: Town) -> None:
    await r.sadd(a.ARTICLE_DOWN(t.articles[0]), "user:ben")


@breaks("article:<article>", "ranking")
async def an_articles_score_is_wrong(r: Any, t: Town) -> None:
    await r.zincrby(a.ARTICLES_BY_SCORE(), 432, f"article:{t.articles[0]}")


@breaks("article:<article>", "ranking")
async def an_article_is_in_no_list_by_time(r: Any, t: Town) -> None:
    await r.zrem(a.ARTICLES_BY_TIME(), f"article:{t.articles[1]}")


@breaks("score:", "reference")
async def a_ranking_has_an_article_that_is_not_there(r: Any, t: Town) -> None:
    await r.zadd(a.ARTICLES_BY_SCORE(), {"article:9999": 5})


@breaks("time:", "member")
async def a_ranking_has_something_else(r: Any, t: Town) -> None:
    await r.zadd(a.ARTICLES_BY_TIME(), {"99": 5})


@breaks("article:<article>:groups", "mirror")
async def a_group_lacks_an_article(r: Any, t: Town) -> None:
    await r.srem(a.GROUP("news"), f"article:{t.articles[0]}")


@breaks("group:<group>", "mirror")
async def a_group_has_an_article_too_many(r: Any, t: Town) -> None:
    await r.sadd(a.GROUP("group0"), f"article:{t.articles[1]}")


@breaks("group:<group>", "size")
async def a_groups_size_is_wrong(r: Any, t: Town) -> None:
    await r.zadd(a.GROUPS(), {"news": 40})


@breaks("groups:", "reference")
async def a_group_without_articles_is_listed(r: Any, t: Town) -> None:
    await r.zadd(a.GROUPS(), {"empty": 3})


@breaks("articles:<username>:voted", "votes")
async def a_voters_list_has_a_vote_more(r: Any, t: Town) -> None:
    await r.zadd(a.PERSON_VOTES("dora"), {f"article:{t.articles[0]}": 1})


@breaks("articles:<username>:posted", "author")
async def someone_posted_anothers_article(r: Any, t: Town) -> None:
    await r.zadd(a.PERSON_ARTICLES("dora"), {f"article:{t.articles[0]}": 5})


@breaks("article:<article>", "ranking")
async def the_last_id_fell(r: Any, t: Town) -> None:
    await r.set(a.ARTICLES_LAST(), 1)


@breaks("upvoted:<article>", "orphan")
async def votes_without_an_article(r: Any, t: Town) -> None:
    await r.sadd(a.ARTICLE_UP(9999), "user:ana")


@breaks("on_clg_info", "record")
async def a_challenge_says_something_else(r: Any, t: Town) -> None:
    await r.hset(c.ON_CLG_INFO(), t.challenges[0], "5,0,1,2020-01-01")


@breaks("on_clg_info", "value")
async def a_challenge_cannot_be_read(r: Any, t: Town) -> None:
    await r.hset(c.ON_CLG_INFO(), t.challenges[0], "fitness, public")


@breaks("user_contribution", "record")
async def somebody_did_more_days(r: Any, t: Town) -> None:
    await r.hset(c.USER_CONTRIBUTION(), "ana", "9,9,0,0,0")


@breaks("post_clg_pair", "record")
async def a_post_left_the_pool(r: Any, t: Town) -> None:
    await r.zrem(c.RECENT_POSTS(1), t.challenge_posts[0])


@breaks("post_clg_pair", "record")
async def a_post_that_is_not_there_is_in_the_pool(r: Any, t: Town) -> None:
    await r.zadd(c.RECENT_POSTS(3), {"4711": 1})


@breaks("<username>_liked_posts", "record")
async def a_reaction_is_forgotten(r: Any, t: Town) -> None:
    await r.srem(c.LIKED_POSTS("dora"), t.challenge_posts[0])


@breaks("<username>_liked_posts", "record")
async def a_preference_is_too_strong(r: Any, t: Town) -> None:
    await r.zadd(c.CLGS_PREFERENCE("dora"), {str(t.challenges[0]): 100})


@breaks("db_len", "record")
async def the_rows_are_counted_wrong(r: Any, t: Town) -> None:
    await r.hset(c.DB_LEN(), "post", 1)


@breaks("<event>#Event#Viewers", "viewer")
async def a_viewer_is_missing_in_the_statistics(r: Any, t: Town) -> None:
    name = v.EVENT_STATISTICS("E1")
    await r.zrem(name, next(m for m in await r.zrange(name, 0, -1) if m.startswith("dora#")))


@breaks("<event>#Event#Statistics", "viewer")
async def a_viewer_is_in_the_statistics_twice(r: Any, t: Town) -> None:
    await r.zadd(v.EVENT_STATISTICS("E1"), {"dora#203.0.113.99##NZ": 5})


@breaks("<session>#Session#Statistics", "member")
async def a_statistics_member_has_no_country(r: Any, t: Town) -> None:
    await r.zadd(v.SESSION_STATISTICS("S1"), {"ana": 5})


@breaks("<event>#Event#Viewers", "viewer")
async def a_viewer_is_counted_for_another_country(r: Any, t: Town) -> None:
    await r.zincrby(v.EVENT_COUNTRIES("E1"), 2**42, "ana")


@breaks("<event>#Event#Groups", "group")
async def a_viewer_is_counted_for_a_group(r: Any, t: Town) -> None:
    await r.zadd(v.EVENT_GROUPS("E1"), {"1#dora": 2**42 + 5})


@breaks("<event>#Event#Viewers", "group")
async def a_viewer_is_missing_in_a_group(r: Any, t: Town) -> None:
    await r.zrem(v.EVENT_GROUPS("E1"), "1#ana")


@breaks("<session>#Session#Viewers", "viewer")
async def a_viewer_did_not_attend(r: Any, t: Town) -> None:
    await r.srem(v.SESSION_ATTENDED("S1"), "ana")


@breaks("<event>#Event#Heartbeat", "viewer")
async def a_heartbeat_of_nobody(r: Any, t: Town) -> None:
    await r.zadd(v.EVENT_HEARTBEAT("E1"), {"ghost": time.time() * 1000})


@breaks("<event>#<location>#ViewingSessionStart", "viewing")
async def a_viewing_session_has_no_end(r: Any, t: Town) -> None:
    await r.zrem(v.VIEWING_END("E1", "phone"), "ana")


@breaks("<event>#Event#Info", "awake")
async def nobody_will_record_the_event(r: Any, t: Town) -> None:
    await r.delete(v.LIVE_AWAKE())


@breaks("shop:session:<token>", "session")
async def a_session_is_not_signed_in(r: Any, t: Town) -> None:
    await r.hdel(s.SHOP_LOGINS(), t.token)


@breaks("login:", "session")
async def a_guest_is_signed_in(r: Any, t: Town) -> None:
    await r.hset(s.SHOP_LOGINS(), t.guest, "ana")


@breaks("recent:", "session")
async def a_session_was_seen_that_is_not_there(r: Any, t: Town) -> None:
    await r.zadd(s.SHOP_RECENT(), {TOKEN: 5})


@breaks("shop:session:<token>", "cart")
async def a_session_shows_another_cart(r: Any, t: Town) -> None:
    await r.hset(s.SHOP_CART(t.token), t.items[2], 9)


@breaks("cart:<token>", "value")
async def a_quantity_cannot_be(r: Any, t: Town) -> None:
    await r.hset(s.SHOP_CART(t.guest), t.items[2], -4)


@breaks("cart:<token>", "orphan")
async def a_cart_of_no_session(r: Any, t: Town) -> None:
    await r.hset(s.SHOP_CART(TOKEN), t.items[0], 1)


@breaks("viewed:", "score")
async def an_item_was_viewed_less_than_never(r: Any, t: Town) -> None:
    await r.zadd(s.SHOP_POPULAR(), {t.items[2]: 3})


@breaks("shop:row:<item>", "schedule")
async def a_row_is_scheduled_nowhere(r: Any, t: Town) -> None:
    await r.zrem(s.SHOP_SCHEDULE(), t.items[0])


@breaks("shop:account:<username>:sessions", "session")
async def a_person_has_anothers_session(r: Any, t: Town) -> None:
    await r.zadd(s.SHOP_ACCOUNT_SESSIONS("ben"), {t.token: 5})
