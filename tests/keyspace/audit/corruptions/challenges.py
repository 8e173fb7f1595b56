"""Corrupted projections of challenges."""

from __future__ import annotations

from typing import Any

from plaza.challenges import keys as c
from tests.keyspace.audit.corruptions.corruption import CorruptionList
from tests.keyspace.audit.sample_community import SampleCommunity

corruptions = CorruptionList()


@corruptions.found_as("on_clg_info", "record")
async def a_challenge_differs_from_its_row(client: Any, community: SampleCommunity) -> None:
    await client.hset(c.ON_CLG_INFO(), community.challenges[0], "5,0,1,2020-01-01")


@corruptions.found_as("on_clg_info", "value")
async def a_challenge_is_unreadable(client: Any, community: SampleCommunity) -> None:
    await client.hset(c.ON_CLG_INFO(), community.challenges[0], "fitness, public")


@corruptions.found_as("user_contribution", "record")
async def a_user_has_too_many_days(client: Any, community: SampleCommunity) -> None:
    await client.hset(c.USER_CONTRIBUTION(), "ana", "9,9,0,0,0")


@corruptions.found_as("post_clg_pair", "record")
async def a_post_is_missing_in_the_recent_posts(client: Any, community: SampleCommunity) -> None:
    await client.zrem(c.RECENT_POSTS(1), community.challenge_posts[0])


@corruptions.found_as("post_clg_pair", "record")
async def a_missing_post_is_in_the_recent_posts(client: Any, community: SampleCommunity) -> None:
    await client.zadd(c.RECENT_POSTS(3), {"4711": 1})


@corruptions.found_as("<username>_liked_posts", "record")
async def a_reaction_is_missing(client: Any, community: SampleCommunity) -> None:
    await client.srem(c.LIKED_POSTS("dora"), community.challenge_posts[0])


@corruptions.found_as("<username>_liked_posts", "record")
async def a_preference_is_too_high(client: Any, community: SampleCommunity) -> None:
    await client.zadd(c.CLGS_PREFERENCE("dora"), {str(community.challenges[0]): 100})


@corruptions.found_as("db_len", "record")
async def the_row_count_is_wrong(client: Any, community: SampleCommunity) -> None:
    await client.hset(c.DB_LEN(), "post", 1)
