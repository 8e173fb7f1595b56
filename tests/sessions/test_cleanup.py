"""Cleaning ends the oldest sessions with their data, and no active one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.sql import Sql
from plaza.sessions import service as service_module
from plaza.sessions.keys import LOGIN_TOKENS, RECENT_TOKENS, SESSION_STATE
from plaza.sessions.model import SessionLimits, new_token
from plaza.shop.keys import CART
from tests.shop.conftest import MemoryAccounts, Shop, assemble, create_item_in


async def test_cleaning_ends_the_oldest_sessions_and_their_data_during_traffic(
    functions: Functions, database: Sql, clock: ManualClock, registered_accounts: MemoryAccounts, redis_client: Any
) -> None:
    shop = assemble(
        functions,
        database,
        clock,
        registered_accounts,
        SessionLimits(idle_seconds=1000, absolute_seconds=10_000, max_sessions=30),
    )
    item = await create_item_in(shop)
    tokens = []
    for _ in range(80):
        token = await shop.guest_token()
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
    left = await redis_client.zrange(RECENT_TOKENS(), 0, -1)
    assert sorted(left) == sorted([spared, *tokens[51:]])
    for token in tokens[1:51]:
        assert await redis_client.exists(SESSION_STATE(token)) + await redis_client.exists(CART(token)) == 0
    assert await shop.lines(spared) == {item.id: 1}


async def test_a_session_seen_just_before_cleaning_stays(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.sessions.store.limits = SessionLimits(max_sessions=1)
    token = await shop.guest_token()
    shop.clock.advance(seconds=1)  # so that it is the oldest
    await shop.guest_token()
    to_clean = shop.sessions._sessions_to_clean

    async def overtaken() -> list[tuple[str, str, bool]]:
        monkeypatch.setattr(shop.sessions, "_sessions_to_clean", to_clean)
        found = await to_clean()
        shop.clock.advance(seconds=1)
        await shop.sessions.visit(token)
        return found

    monkeypatch.setattr(shop.sessions, "_sessions_to_clean", overtaken)
    assert await shop.sessions.clean() == 0
    assert not (await shop.sessions.visit(token)).new


async def test_cleaning_ends_idle_sessions(shop: Shop, redis_client: Any) -> None:
    await shop.login("ana")
    await shop.guest_token()
    shop.clock.advance(seconds=shop.sessions.limits.idle_seconds + 1)
    fresh = await shop.guest_token()
    assert await shop.sessions.clean() == 2
    assert await redis_client.zrange(RECENT_TOKENS(), 0, -1) == [fresh]
    assert await redis_client.hlen(LOGIN_TOKENS()) == 0


async def test_cleaning_passes_over_idle_tokens_of_another_service(
    shop: Shop, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "CLEAN_BATCH", 2)
    monkeypatch.setattr(service_module, "MAX_KEPT", 3)
    own = [await shop.guest_token() for _ in range(3)]
    shop.clock.advance(seconds=shop.sessions.limits.idle_seconds + 1)
    foreign = {new_token(): float(n) for n in range(7)}
    await redis_client.zadd(RECENT_TOKENS(), {**foreign, "no token": 0.5})
    await redis_client.hset(LOGIN_TOKENS(), mapping=dict.fromkeys(foreign, "ana"))
    await redis_client.hset(CART(next(iter(foreign))), "1", "2")
    ended = [await shop.sessions.clean() for _ in range(5)]
    assert sum(ended) == len(own)
    assert set(await redis_client.zrange(RECENT_TOKENS(), 0, -1)) == {*foreign, "no token"}
    assert await redis_client.hlen(LOGIN_TOKENS()) == len(foreign)
    assert await redis_client.exists(CART(next(iter(foreign)))) == 1


async def test_tokens_of_another_service_beyond_the_limit_end_with_their_data(shop: Shop, redis_client: Any) -> None:
    shop.sessions.store.limits = SessionLimits(max_sessions=1)
    orphan, kept = new_token(), new_token()
    await redis_client.zadd(RECENT_TOKENS(), {orphan: 1.0, "no token": 0.5, kept: 2.0})
    await redis_client.hset(LOGIN_TOKENS(), mapping={orphan: "ana", kept: "ben"})
    await redis_client.hset(CART(orphan), "1", "2")
    assert await shop.sessions.clean() == 2
    assert await redis_client.zrange(RECENT_TOKENS(), 0, -1) == [kept]
    assert await redis_client.hkeys(LOGIN_TOKENS()) == [kept]
    assert await redis_client.exists(CART(orphan)) == 0
