"""Corrupted sessions, carts and cached rows."""

from __future__ import annotations

from typing import Any

from plaza.caching import keys as c
from plaza.sessions.keys import LOGIN_TOKENS, RECENT_TOKENS, USER_SESSION_TOKENS
from plaza.shop import keys as s
from tests.keyspace.audit.corruptions.corruption import TOKEN, CorruptionList
from tests.keyspace.audit.sample_community import SampleCommunity

corruptions = CorruptionList()


@corruptions.found_as("shop:session:<token>", "session")
async def a_session_is_not_signed_in(client: Any, community: SampleCommunity) -> None:
    await client.hdel(LOGIN_TOKENS(), community.token)


@corruptions.found_as("login:", "session")
async def a_guest_is_signed_in(client: Any, community: SampleCommunity) -> None:
    await client.hset(LOGIN_TOKENS(), community.guest, "ana")


@corruptions.found_as("recent:", "session")
async def a_missing_session_was_seen(client: Any, community: SampleCommunity) -> None:
    await client.zadd(RECENT_TOKENS(), {TOKEN: 5})


@corruptions.found_as("shop:session:<token>", "cart")
async def a_session_shows_another_cart(client: Any, community: SampleCommunity) -> None:
    await client.hset(s.CART(community.token), community.items[2], 9)


@corruptions.found_as("cart:<token>", "value")
async def a_quantity_is_invalid(client: Any, community: SampleCommunity) -> None:
    await client.hset(s.CART(community.guest), community.items[2], -4)


@corruptions.found_as("cart:<token>", "orphan")
async def a_cart_without_a_session(client: Any, community: SampleCommunity) -> None:
    await client.hset(s.CART(TOKEN), community.items[0], 1)


@corruptions.found_as("viewed:", "score")
async def a_popularity_score_is_invalid(client: Any, community: SampleCommunity) -> None:
    await client.zadd(c.ITEM_VIEWS(), {community.items[2]: 3})


@corruptions.found_as("shop:row:<item>", "schedule")
async def a_row_is_missing_in_the_schedule(client: Any, community: SampleCommunity) -> None:
    await client.zrem(c.ROW_SCHEDULE(), community.items[0])


@corruptions.found_as("shop:account:<username>:sessions", "session")
async def a_user_has_the_session_of_another(client: Any, community: SampleCommunity) -> None:
    await client.zadd(USER_SESSION_TOKENS("ben"), {community.token: 5})
