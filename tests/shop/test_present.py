"""Who is behind a cookie, without asking again: as true as asking."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.core.wire import USAGE, Usage
from plaza.shop.keys import SHOP_RECENT
from plaza.shop.present import SEEN_EVERY_SECONDS, Present
from tests.eventually import eventually
from tests.shop.conftest import Shop


@pytest.fixture
def present(shop: Shop) -> Present:
    return Present(shop.sessions, shop.clock)


async def test_who_was_here_a_moment_ago_is_known_without_asking(shop: Shop, present: Present) -> None:
    token = await shop.token()
    first = await present.visit(token)
    usage = Usage()
    mark = USAGE.set(usage)
    assert await present.visit(token) == first
    USAGE.reset(mark)
    assert usage.trips == 0


async def test_a_session_that_ended_is_not_there_any_more(shop: Shop, present: Present) -> None:
    token = (await shop.sessions.admit(None, "ana")).token
    assert (await present.visit(token)).user == "ana"
    await shop.sessions.logout(token)
    visit = await present.visit(token)
    assert visit.new
    assert visit.user is None


async def test_a_session_that_another_process_ended_is_not_there_any_more(
    shop: Shop, present: Present, stranger: Any
) -> None:
    token = (await shop.sessions.admit(None, "ana")).token
    assert (await present.visit(token)).user == "ana"
    await stranger.delete(f"shop:session:{{{token}}}" if shop.functions.valkey.clustered else f"shop:session:{token}")

    async def gone() -> bool:
        return (await present.visit(token)).user is None

    await eventually(gone)


async def test_a_person_who_was_cut_off_is_nobody(shop: Shop, present: Present) -> None:
    token = (await shop.sessions.admit(None, "ana")).token
    assert (await present.visit(token)).user == "ana"
    shop.clock.forward(seconds=1)
    await shop.cutoffs.note("ana")
    assert (await present.visit(token)).user is None


async def test_being_here_is_written_down_once_a_minute_and_keeps_a_session_alive(
    shop: Shop, present: Present, stranger: Any
) -> None:
    token = await shop.token()
    seen = await stranger.zscore(SHOP_RECENT(), token)
    shop.clock.forward(seconds=SEEN_EVERY_SECONDS / 2)
    await present.visit(token)
    assert await stranger.zscore(SHOP_RECENT(), token) == seen
    shop.clock.forward(seconds=SEEN_EVERY_SECONDS)
    await present.visit(token)
    assert await stranger.zscore(SHOP_RECENT(), token) == pytest.approx(seen + SEEN_EVERY_SECONDS * 1.5)


async def test_a_session_that_was_idle_for_too_long_is_over(shop: Shop, present: Present) -> None:
    token = await shop.token()
    await present.visit(token)
    shop.clock.forward(seconds=shop.sessions.limits.idle + 1)
    assert (await present.visit(token)).new
