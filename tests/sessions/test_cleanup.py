"""Cleaning: the oldest sessions go with everything of theirs, and nobody who is still here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.sql import Sql
from plaza.sessions.service import Limits, new_token
from plaza.shop.keys import SHOP_CART, SHOP_LOGINS, SHOP_RECENT, SHOP_SESSION
from tests.shop.conftest import Book, Shop, assemble, offer_in


async def test_cleaning_ends_the_oldest_beyond_the_limit_with_everything_of_theirs_while_traffic_goes_on(
    functions: Functions, database: Sql, clock: ManualClock, people: Book, redis_client: Any
) -> None:
    shop = assemble(functions, database, clock, people, Limits(idle=1000, absolute=10_000, most=30))
    item = await offer_in(shop)
    tokens = []
    for _ in range(80):
        token = await shop.token()
        await shop.carts.put(token, item.id, 1)
        tokens.append(token)
        clock.advance(seconds=0.01)
    spared = tokens[0]  # the oldest, but seen again while the cleaning goes on

    async def traffic() -> None:
        for _ in range(20):
            clock.advance(seconds=0.001)
            await shop.sessions.visit(spared)

    await traffic()
    ended, _ = await asyncio.gather(shop.sessions.clean(), traffic())
    assert ended == 50
    left = await redis_client.zrange(SHOP_RECENT(), 0, -1)
    assert sorted(left) == sorted([spared, *tokens[51:]])
    for token in tokens[1:51]:
        assert await redis_client.exists(SHOP_SESSION(token)) + await redis_client.exists(SHOP_CART(token)) == 0
    assert await shop.lines(spared) == {item.id: 1}


async def test_a_session_that_is_seen_again_just_before_it_is_cleaned_stays(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.sessions.limits = Limits(most=1)
    token = await shop.token()
    shop.clock.advance(seconds=1)  # so that it is the oldest
    await shop.token()
    to_clean = shop.sessions._to_clean

    async def overtaken() -> list[tuple[str, str]]:
        monkeypatch.setattr(shop.sessions, "_to_clean", to_clean)
        found = await to_clean()
        shop.clock.advance(seconds=1)
        await shop.sessions.visit(token)
        return found

    monkeypatch.setattr(shop.sessions, "_to_clean", overtaken)
    assert await shop.sessions.clean() == 0
    assert not (await shop.sessions.visit(token))[0].new


async def test_cleaning_ends_sessions_that_nobody_came_back_to(shop: Shop, redis_client: Any) -> None:
    await shop.login("ana")
    await shop.token()
    shop.clock.advance(seconds=shop.sessions.limits.idle + 1)
    fresh = await shop.token()
    assert await shop.sessions.clean() == 2
    assert await redis_client.zrange(SHOP_RECENT(), 0, -1) == [fresh]
    assert await redis_client.hlen(SHOP_LOGINS()) == 0


async def test_what_others_left_in_recent_without_a_session_is_cleaned_too(shop: Shop, redis_client: Any) -> None:
    orphan = new_token()
    await redis_client.zadd(SHOP_RECENT(), {orphan: 1.0, "no token": 0.5})
    await redis_client.hset(SHOP_LOGINS(), orphan, "ana")
    await redis_client.hset(SHOP_CART(orphan), "1", "2")
    assert await shop.sessions.clean() == 2
    assert await redis_client.zcard(SHOP_RECENT()) == 0
    assert await redis_client.hlen(SHOP_LOGINS()) == 0
    assert await redis_client.exists(SHOP_CART(orphan)) == 0
