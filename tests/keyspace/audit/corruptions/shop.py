"""Corrupted sessions, carts and cached rows."""

from __future__ import annotations

from typing import Any

from plaza.caching import keys as c
from plaza.sessions.keys import RECENT_TOKENS, USER_SESSION_TOKENS
from plaza.shop import keys as s
from tests.keyspace.audit.corruptions.corruption import CorruptionList
from tests.keyspace.audit.sample_community import SampleCommunity

corruptions = CorruptionList()


@corruptions.found_as("shop:session:<token>", "session")
async def a_signed_in_session_is_missing_in_recent(client: Any, community: SampleCommunity) -> None:
    await client.zrem(RECENT_TOKENS(), community.token)


@corruptions.found_as("shop:session:<token>", "session")
async def a_session_is_missing_among_those_of_its_user(client: Any, community: SampleCommunity) -> None:
    await client.zrem(USER_SESSION_TOKENS("ana"), community.token)


@corruptions.found_as("cart:<token>", "value", kept=True)
async def a_quantity_is_invalid(client: Any, community: SampleCommunity) -> None:
    await client.hset(s.CART(community.guest), community.items[2], -4)


@corruptions.found_as("viewed:", "score")
async def a_popularity_score_is_invalid(client: Any, community: SampleCommunity) -> None:
    await client.zadd(c.ITEM_VIEWS(), {community.items[2]: 3})


@corruptions.found_as("delay:", "schedule")
async def a_row_is_missing_in_the_schedule(client: Any, community: SampleCommunity) -> None:
    await client.zrem(c.ROW_SCHEDULE(), community.items[0])


@corruptions.found_as("shop:account:<username>:sessions", "session")
async def a_user_has_the_session_of_another(client: Any, community: SampleCommunity) -> None:
    await client.zadd(USER_SESSION_TOKENS("ben"), {community.token: 5})
