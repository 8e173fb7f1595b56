"""What Valkey holds of challenges, as another writer broke it."""

from __future__ import annotations

from typing import Any

from plaza.challenges import keys as c
from tests.keyspace.audit.corruptions.ways import Breaks
from tests.keyspace.audit.sample_community import Town

breaks = Breaks()


@breaks.found_as("on_clg_info", "record")
async def a_challenge_says_something_else(r: Any, t: Town) -> None:
    await r.hset(c.ON_CLG_INFO(), t.challenges[0], "5,0,1,2020-01-01")


@breaks.found_as("on_clg_info", "value")
async def a_challenge_cannot_be_read(r: Any, t: Town) -> None:
    await r.hset(c.ON_CLG_INFO(), t.challenges[0], "fitness, public")


@breaks.found_as("user_contribution", "record")
async def somebody_did_more_days(r: Any, t: Town) -> None:
    await r.hset(c.USER_CONTRIBUTION(), "ana", "9,9,0,0,0")


@breaks.found_as("post_clg_pair", "record")
async def a_post_left_the_pool(r: Any, t: Town) -> None:
    await r.zrem(c.RECENT_POSTS(1), t.challenge_posts[0])


@breaks.found_as("post_clg_pair", "record")
async def a_post_that_is_not_there_is_in_the_pool(r: Any, t: Town) -> None:
    await r.zadd(c.RECENT_POSTS(3), {"4711": 1})


@breaks.found_as("<username>_liked_posts", "record")
async def a_reaction_is_forgotten(r: Any, t: Town) -> None:
    await r.srem(c.LIKED_POSTS("dora"), t.challenge_posts[0])


@breaks.found_as("<username>_liked_posts", "record")
async def a_preference_is_too_strong(r: Any, t: Town) -> None:
    await r.zadd(c.CLGS_PREFERENCE("dora"), {str(t.challenges[0]): 100})


@breaks.found_as("db_len", "record")
async def the_rows_are_counted_wrong(r: Any, t: Town) -> None:
    await r.hset(c.DB_LEN(), "post", 1)
