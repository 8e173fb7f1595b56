"""Who is behind a cookie, without asking again: as true as asking."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.core.valkey import REQUEST_USAGE, RequestUsage
from plaza.sessions.service import GRACE_SECONDS, new_token
from plaza.sessions.session_cache import SEEN_EVERY_SECONDS, Present
from plaza.shop.keys import SHOP_RECENT, SHOP_SESSION
from tests.shop.conftest import Shop
from tests.waiting import eventually


@pytest.fixture
def present(shop: Shop) -> Present:
    return Present(shop.sessions, shop.clock)


async def user(present: Present, token: str) -> str | None:
    visit = await present.visit(token)
    return None if visit is None else visit.user


async def test_a_made_up_token_is_nobodys_and_begins_nothing(present: Present, redis_client: Any) -> None:
    token = new_token()
    assert await present.visit(token) is None
    assert not await redis_client.exists(SHOP_SESSION(token))


async def test_a_token_that_was_replaced_is_served_while_requests_are_under_way(shop: Shop, present: Present) -> None:
    old = (await shop.sessions.admit(None, "ana")).token
    assert await user(present, old) == "ana"
    new = (await shop.sessions.admit(old, "ana")).token
    assert (await user(present, old), await user(present, new)) == ("ana", "ana")
    shop.clock.advance(seconds=GRACE_SECONDS + 1)
    assert (await user(present, old), await user(present, new)) == (None, "ana")


async def test_who_was_here_a_moment_ago_is_known_without_asking(shop: Shop, present: Present) -> None:
    token = await shop.token()
    first = await present.visit(token)
    usage = RequestUsage()
    mark = REQUEST_USAGE.set(usage)
    assert await present.visit(token) == first
    REQUEST_USAGE.reset(mark)
    assert usage.trips == 0


async def test_a_session_that_ended_is_not_there_any_more(shop: Shop, present: Present) -> None:
    token = (await shop.sessions.admit(None, "ana")).token
    assert await user(present, token) == "ana"
    await shop.sessions.logout(token)
    assert await present.visit(token) is None


async def test_a_session_that_another_process_ended_is_not_there_any_more(
    shop: Shop, present: Present, redis_client: Any
) -> None:
    token = (await shop.sessions.admit(None, "ana")).token
    assert await user(present, token) == "ana"
    await redis_client.delete(SHOP_SESSION(token))

    async def gone() -> bool:
        return await present.visit(token) is None

    await eventually(gone)


async def test_a_person_who_was_cut_off_is_nobody(shop: Shop, present: Present) -> None:
    token = (await shop.sessions.admit(None, "ana")).token
    assert await user(present, token) == "ana"
    shop.clock.advance(seconds=1)
    await shop.revocations.note("ana")
    assert await present.visit(token) is None


async def test_being_here_is_written_down_once_a_minute_and_keeps_a_session_alive(
    shop: Shop, present: Present, redis_client: Any
) -> None:
    token = await shop.token()
    seen = await redis_client.zscore(SHOP_RECENT(), token)
    shop.clock.advance(seconds=SEEN_EVERY_SECONDS / 2)
    await present.visit(token)
    assert await redis_client.zscore(SHOP_RECENT(), token) == seen
    shop.clock.advance(seconds=SEEN_EVERY_SECONDS)
    await present.visit(token)
    assert await redis_client.zscore(SHOP_RECENT(), token) == pytest.approx(seen + SEEN_EVERY_SECONDS * 1.5)


async def test_a_session_that_was_idle_for_too_long_is_over(shop: Shop, present: Present) -> None:
    token = await shop.token()
    await present.visit(token)
    shop.clock.advance(seconds=shop.sessions.limits.idle + 1)
    assert await present.visit(token) is None
