"""Corrupted profiles, registries and relations."""

from __future__ import annotations

from typing import Any

from plaza.social import keys as k
from tests.keyspace.audit.corruptions.corruption import MISSING_ID, CorruptionList
from tests.keyspace.audit.sample_community import SampleCommunity

corruptions = CorruptionList()


@corruptions.found_as("user:<username>", "count")
async def a_follower_count_is_wrong(client: Any, community: SampleCommunity) -> None:
    await client.hset(k.USER("ana"), "followerCount", 17)


@corruptions.found_as("user:<username>", "count")
async def a_post_count_is_one_too_low(client: Any, community: SampleCommunity) -> None:
    await client.hincrby(k.USER("ben"), "postCount", -1)


@corruptions.found_as("user:<username>", "field")
async def a_count_is_not_a_number(client: Any, community: SampleCommunity) -> None:
    await client.hset(k.USER("ana"), "followingCount", "many")


@corruptions.found_as("user:<username>", "field")
async def a_count_is_missing(client: Any, community: SampleCommunity) -> None:
    await client.hdel(k.USER("ana"), "postCount")


@corruptions.found_as("user:<username>", "secret", kept=True)
async def a_profile_holds_a_password(client: Any, community: SampleCommunity) -> None:
    await client.hset(k.USER("ana"), "password", "hunter2")


@corruptions.found_as("user:<username>", "registry")
async def a_user_is_in_no_registry(client: Any, community: SampleCommunity) -> None:
    await client.zrem(k.USERS_REGULAR(), "dora")


@corruptions.found_as("users:models", "listed")
async def a_user_is_among_the_models(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.USERS_MODELS(), {"ana": 5})


@corruptions.found_as("users:regular", "listed")
async def a_missing_user_is_in_the_registry(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.USERS_REGULAR(), {"missing": 5})


@corruptions.found_as("models:top:engagement", "sum")
async def a_leaderboard_score_is_wrong(client: Any, community: SampleCommunity) -> None:
    await client.zincrby(k.MODELS_TOP_ENGAGEMENT(), 100, "ben")


@corruptions.found_as("user:<username>", "registry")
async def a_model_is_not_on_the_leaderboard(client: Any, community: SampleCommunity) -> None:
    await client.zrem(k.MODELS_TOP_ENGAGEMENT(), "cleo")


@corruptions.found_as("user:<username>:points", "sum")
async def a_sum_of_points_is_wrong(client: Any, community: SampleCommunity) -> None:
    await client.hset(k.USER_POINTS("ben"), "total", 1)


@corruptions.found_as("user:<username>:points", "sum")
async def a_sum_of_points_is_not_a_number(client: Any, community: SampleCommunity) -> None:
    await client.hset(k.USER_POINTS("cleo"), "total", "abc")


@corruptions.found_as("user:<username>:points", "points")
async def a_post_counts_for_too_much(client: Any, community: SampleCommunity) -> None:
    await client.hset(k.USER_POINTS("ben"), community.posts[1], 500)


@corruptions.found_as("user:<username>:points", "points")
async def a_missing_post_counts(client: Any, community: SampleCommunity) -> None:
    await client.hset(k.USER_POINTS("cleo"), MISSING_ID, 8)


@corruptions.found_as("user:<username>:following", "mirror")
async def a_follower_is_missing(client: Any, community: SampleCommunity) -> None:
    await client.srem(k.USER_FOLLOWERS("ben"), "ana")


@corruptions.found_as("user:<username>:followers", "mirror")
async def a_follower_never_followed(client: Any, community: SampleCommunity) -> None:
    await client.sadd(k.USER_FOLLOWERS("eli"), "ben")


@corruptions.found_as("user:<username>:following", "mirror")
async def a_user_follows_a_missing_user(client: Any, community: SampleCommunity) -> None:
    await client.sadd(k.USER_FOLLOWING("ana"), "missing")
    await client.zadd(k.USER_FOLLOWING_RECENT("ana"), {"missing": 5})


@corruptions.found_as("user:<username>:following:recent", "order")
async def the_order_of_follows_has_an_extra_user(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.USER_FOLLOWING_RECENT("ana"), {"eli": 5})


@corruptions.found_as("user:<username>:followers:recent", "mirror")
async def a_follow_began_at_another_time(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.USER_FOLLOWERS_RECENT("ana"), {"ben": 5})


@corruptions.found_as("user:<username>:blocked", "mirror")
async def one_side_of_a_block_is_missing(client: Any, community: SampleCommunity) -> None:
    await client.zrem(k.USER_BLOCKED_BY("eli"), "ana")


@corruptions.found_as("user:<username>:muted_by", "mirror")
async def one_side_of_a_mute_is_missing(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.USER_MUTED_BY("dora"), {"ana": 5})


@corruptions.found_as("user:<username>:posts", "listed")
async def a_user_has_a_missing_post(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.USER_POSTS("ana"), {MISSING_ID: 5})


@corruptions.found_as("post:<post>", "author")
async def a_post_is_missing_in_its_authors_posts(client: Any, community: SampleCommunity) -> None:
    await client.zrem(k.USER_POSTS("ana"), community.posts[0])


@corruptions.found_as("user:<username>:posts", "listed")
async def a_post_is_in_the_posts_of_another_user(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.USER_POSTS("dora"), {community.posts[0]: 5})


@corruptions.found_as("auth:<username>", "orphan")
async def credentials_without_a_user(client: Any, community: SampleCommunity) -> None:
    await client.hset(k.AUTH_USER("missing"), "password_hash", "$argon2id$")
