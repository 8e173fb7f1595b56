"""Profiles, registries and relations that another writer broke."""

from __future__ import annotations

from typing import Any

from plaza.social import keys as k
from tests.keyspace.audit.corruptions.ways import NOBODY, Breaks
from tests.keyspace.audit.sample_community import Town

breaks = Breaks()


@breaks.found_as("user:<username>", "count")
async def a_follower_count_is_wrong(r: Any, t: Town) -> None:
    await r.hset(k.USER("ana"), "followerCount", 17)


@breaks.found_as("user:<username>", "count")
async def a_post_count_is_negative_by_one(r: Any, t: Town) -> None:
    await r.hincrby(k.USER("ben"), "postCount", -1)


@breaks.found_as("user:<username>", "field")
async def a_count_is_no_number(r: Any, t: Town) -> None:
    await r.hset(k.USER("ana"), "followingCount", "many")


@breaks.found_as("user:<username>", "field")
async def a_count_is_missing(r: Any, t: Town) -> None:
    await r.hdel(k.USER("ana"), "postCount")


@breaks.found_as("user:<username>", "secret")
async def a_profile_holds_a_password(r: Any, t: Town) -> None:
    await r.hset(k.USER("ana"), "password", "hunter2")


@breaks.found_as("user:<username>", "registry")
async def a_user_is_in_no_registry(r: Any, t: Town) -> None:
    await r.zrem(k.USERS_REGULAR(), "dora")


@breaks.found_as("users:models", "listed")
async def a_user_is_among_the_models(r: Any, t: Town) -> None:
    await r.zadd(k.USERS_MODELS(), {"ana": 5})


@breaks.found_as("users:regular", "listed")
async def nobody_is_in_the_registry(r: Any, t: Town) -> None:
    await r.zadd(k.USERS_REGULAR(), {"nobody": 5})


@breaks.found_as("models:top:engagement", "sum")
async def the_leaderboard_lies(r: Any, t: Town) -> None:
    await r.zincrby(k.MODELS_TOP_ENGAGEMENT(), 100, "ben")


@breaks.found_as("user:<username>", "registry")
async def a_model_is_not_on_the_leaderboard(r: Any, t: Town) -> None:
    await r.zrem(k.MODELS_TOP_ENGAGEMENT(), "cleo")


@breaks.found_as("user:<username>:points", "sum")
async def a_sum_of_points_is_wrong(r: Any, t: Town) -> None:
    await r.hset(k.USER_POINTS("ben"), "total", 1)


@breaks.found_as("user:<username>:points", "points")
async def a_post_counts_for_too_much(r: Any, t: Town) -> None:
    await r.hset(k.USER_POINTS("ben"), t.posts[1], 500)


@breaks.found_as("user:<username>:points", "points")
async def a_post_that_is_not_there_counts(r: Any, t: Town) -> None:
    await r.hset(k.USER_POINTS("cleo"), NOBODY, 8)


@breaks.found_as("user:<username>:following", "mirror")
async def a_follower_is_missing(r: Any, t: Town) -> None:
    await r.srem(k.USER_FOLLOWERS("ben"), "ana")


@breaks.found_as("user:<username>:followers", "mirror")
async def a_follower_never_followed(r: Any, t: Town) -> None:
    await r.sadd(k.USER_FOLLOWERS("eli"), "ben")


@breaks.found_as("user:<username>:following", "mirror")
async def somebody_follows_nobody(r: Any, t: Town) -> None:
    await r.sadd(k.USER_FOLLOWING("ana"), "ghost")
    await r.zadd(k.USER_FOLLOWING_RECENT("ana"), {"ghost": 5})


@breaks.found_as("user:<username>:following:recent", "order")
async def the_order_of_follows_has_one_more(r: Any, t: Town) -> None:
    await r.zadd(k.USER_FOLLOWING_RECENT("ana"), {"eli": 5})


@breaks.found_as("user:<username>:followers:recent", "mirror")
async def a_follow_began_at_another_time(r: Any, t: Town) -> None:
    await r.zadd(k.USER_FOLLOWERS_RECENT("ana"), {"ben": 5})


@breaks.found_as("user:<username>:blocked", "mirror")
async def one_side_of_a_block_is_missing(r: Any, t: Town) -> None:
    await r.zrem(k.USER_BLOCKED_BY("eli"), "ana")


@breaks.found_as("user:<username>:muted_by", "mirror")
async def someone_is_muted_by_nobody(r: Any, t: Town) -> None:
    await r.zadd(k.USER_MUTED_BY("dora"), {"ana": 5})


@breaks.found_as("user:<username>:posts", "listed")
async def a_person_has_a_post_that_is_not_there(r: Any, t: Town) -> None:
    await r.zadd(k.USER_POSTS("ana"), {NOBODY: 5})


@breaks.found_as("post:<post>", "author")
async def a_post_is_not_among_its_authors(r: Any, t: Town) -> None:
    await r.zrem(k.USER_POSTS("ana"), t.posts[0])


@breaks.found_as("user:<username>:posts", "listed")
async def a_post_is_among_anothers(r: Any, t: Town) -> None:
    await r.zadd(k.USER_POSTS("dora"), {t.posts[0]: 5})


@breaks.found_as("auth:<username>", "orphan")
async def credentials_of_nobody(r: Any, t: Town) -> None:
    await r.hset(k.AUTH_USER("ghost"), "password_hash", "$argon2id$")
