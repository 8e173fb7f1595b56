"""The session cache returns what Valkey would return."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.core.valkey import REQUEST_USAGE, RequestUsage
from plaza.sessions.keys import LOGIN_TOKENS, RECENT_TOKENS, SESSION_STATE
from plaza.sessions.model import new_token
from plaza.sessions.session_cache import SEEN_EVERY_SECONDS, SessionCache
from plaza.sessions.session_finder import SessionFinder
from plaza.sessions.sign_in import GRACE_SECONDS
from tests.shop.conftest import Shop
from tests.waiting import eventually


@pytest.fixture
def session_cache(shop: Shop) -> SessionCache:
    return SessionCache(SessionFinder(shop.sessions.store))


async def user(session_cache: SessionCache, token: str) -> str | None:
    visit = await session_cache.find(token)
    return None if visit is None else visit.user


async def test_a_made_up_token_has_no_session_and_creates_none(session_cache: SessionCache, redis_client: Any) -> None:
    token = new_token()
    assert await session_cache.find(token) is None
    assert not await redis_client.exists(SESSION_STATE(token))


async def test_a_replaced_token_is_served_for_requests_under_way(shop: Shop, session_cache: SessionCache) -> None:
    old = (await shop.sign_in.admit(None, "ana")).token
    assert await user(session_cache, old) == "ana"
    new = (await shop.sign_in.admit(old, "ana")).token
    assert (await user(session_cache, old), await user(session_cache, new)) == ("ana", "ana")
    shop.clock.advance(seconds=GRACE_SECONDS + 1)
    assert (await user(session_cache, old), await user(session_cache, new)) == (None, "ana")


async def test_a_cached_session_costs_no_round_trip(shop: Shop, session_cache: SessionCache) -> None:
    token = await shop.guest_token()
    first = await session_cache.find(token)
    usage = RequestUsage()
    mark = REQUEST_USAGE.set(usage)
    assert await session_cache.find(token) == first
    REQUEST_USAGE.reset(mark)
    assert usage.trips == 0


async def test_an_ended_session_is_not_found(shop: Shop, session_cache: SessionCache) -> None:
    token = (await shop.sign_in.admit(None, "ana")).token
    assert await user(session_cache, token) == "ana"
    await shop.sessions.logout(token)
    assert await session_cache.find(token) is None


async def test_a_session_ended_by_another_process_is_not_found(
    shop: Shop, session_cache: SessionCache, redis_client: Any
) -> None:
    token = (await shop.sign_in.admit(None, "ana")).token
    assert await user(session_cache, token) == "ana"
    await redis_client.hdel(LOGIN_TOKENS(), token)
    await redis_client.delete(SESSION_STATE(token))

    async def gone() -> bool:
        return await session_cache.find(token) is None

    await eventually(gone)


async def test_the_session_of_a_revoked_user_is_not_found(shop: Shop, session_cache: SessionCache) -> None:
    token = (await shop.sign_in.admit(None, "ana")).token
    assert await user(session_cache, token) == "ana"
    shop.clock.advance(seconds=1)
    await shop.revocations.revoke("ana")
    assert await session_cache.find(token) is None


async def test_a_session_is_marked_as_seen_once_a_minute_and_stays_alive(
    shop: Shop, session_cache: SessionCache, redis_client: Any
) -> None:
    token = await shop.guest_token()
    seen = await redis_client.zscore(RECENT_TOKENS(), token)
    shop.clock.advance(seconds=SEEN_EVERY_SECONDS / 2)
    await session_cache.find(token)
    assert await redis_client.zscore(RECENT_TOKENS(), token) == seen
    shop.clock.advance(seconds=SEEN_EVERY_SECONDS)
    await session_cache.find(token)
    assert await redis_client.zscore(RECENT_TOKENS(), token) == pytest.approx(seen + SEEN_EVERY_SECONDS * 1.5)


async def test_an_idle_session_is_not_found(shop: Shop, session_cache: SessionCache) -> None:
    token = await shop.guest_token()
    await session_cache.find(token)
    shop.clock.advance(seconds=shop.sessions.limits.idle_seconds + 1)
    assert await session_cache.find(token) is None
