"""Who is behind a cookie, without asking again: as true as asking."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.core.valkey import REQUEST_USAGE, RequestUsage
from plaza.sessions.keys import RECENT_TOKENS, SESSION_STATE
from plaza.sessions.model import new_token
from plaza.sessions.session_cache import SEEN_EVERY_SECONDS, SessionCache
from plaza.sessions.sign_in import GRACE_SECONDS
from tests.shop.conftest import Shop
from tests.waiting import eventually


@pytest.fixture
def present(shop: Shop) -> SessionCache:
    return SessionCache(shop.sessions.store)


async def user(present: SessionCache, token: str) -> str | None:
    visit = await present.find(token)
    return None if visit is None else visit.user


async def test_a_made_up_token_is_nobodys_and_begins_nothing(present: SessionCache, redis_client: Any) -> None:
    token = new_token()
    assert await present.find(token) is None
    assert not await redis_client.exists(SESSION_STATE(token))


async def test_a_token_that_was_replaced_is_served_while_requests_are_under_way(
    shop: Shop, present: SessionCache
) -> None:
    old = (await shop.sign_in.admit(None, "ana")).token
    assert await user(present, old) == "ana"
    new = (await shop.sign_in.admit(old, "ana")).token
    assert (await user(present, old), await user(present, new)) == ("ana", "ana")
    shop.clock.advance(seconds=GRACE_SECONDS + 1)
    assert (await user(present, old), await user(present, new)) == (None, "ana")


async def test_who_was_here_a_moment_ago_is_known_without_asking(shop: Shop, present: SessionCache) -> None:
    token = await shop.token()
    first = await present.find(token)
    usage = RequestUsage()
    mark = REQUEST_USAGE.set(usage)
    assert await present.find(token) == first
    REQUEST_USAGE.reset(mark)
    assert usage.trips == 0


async def test_a_session_that_ended_is_not_there_any_more(shop: Shop, present: SessionCache) -> None:
    token = (await shop.sign_in.admit(None, "ana")).token
    assert await user(present, token) == "ana"
    await shop.sessions.logout(token)
    assert await present.find(token) is None


async def test_a_session_that_another_process_ended_is_not_there_any_more(
    shop: Shop, present: SessionCache, redis_client: Any
) -> None:
    token = (await shop.sign_in.admit(None, "ana")).token
    assert await user(present, token) == "ana"
    await redis_client.delete(SESSION_STATE(token))

    async def gone() -> bool:
        return await present.find(token) is None

    await eventually(gone)


async def test_a_person_who_was_cut_off_is_nobody(shop: Shop, present: SessionCache) -> None:
    token = (await shop.sign_in.admit(None, "ana")).token
    assert await user(present, token) == "ana"
    shop.clock.advance(seconds=1)
    await shop.revocations.revoke("ana")
    assert await present.find(token) is None


async def test_being_here_is_written_down_once_a_minute_and_keeps_a_session_alive(
    shop: Shop, present: SessionCache, redis_client: Any
) -> None:
    token = await shop.token()
    seen = await redis_client.zscore(RECENT_TOKENS(), token)
    shop.clock.advance(seconds=SEEN_EVERY_SECONDS / 2)
    await present.find(token)
    assert await redis_client.zscore(RECENT_TOKENS(), token) == seen
    shop.clock.advance(seconds=SEEN_EVERY_SECONDS)
    await present.find(token)
    assert await redis_client.zscore(RECENT_TOKENS(), token) == pytest.approx(seen + SEEN_EVERY_SECONDS * 1.5)


async def test_a_session_that_was_idle_for_too_long_is_over(shop: Shop, present: SessionCache) -> None:
    token = await shop.token()
    await present.find(token)
    shop.clock.advance(seconds=shop.sessions.limits.idle_seconds + 1)
    assert await present.find(token) is None
