"""Another service, a plain client here, writes `login:`, `recent:`, `viewed:<token>` and `cart:<token>`."""

from __future__ import annotations

from typing import Any

from plaza.core.paging import Page
from plaza.sessions import session_cache as session_cache_module
from plaza.sessions.keys import LOGIN_TOKENS, RECENT_TOKENS, SESSION_STATE
from plaza.sessions.model import new_token
from plaza.sessions.session_cache import SessionCache
from plaza.sessions.session_finder import SessionFinder
from plaza.shop.keys import CART, VIEWED_ITEMS
from tests.shop.conftest import CreateItem, Shop


async def test_a_token_removed_from_login_is_signed_out(shop: Shop, create_item: CreateItem, redis_client: Any) -> None:
    item = await create_item()
    token = await shop.login("ana")
    await shop.carts.put(token, item.id, 2)
    await redis_client.hdel(LOGIN_TOKENS(), token)
    visit = await shop.sessions.visit(token)
    assert (visit.user, visit.new) == (None, True)
    assert not await redis_client.hexists(LOGIN_TOKENS(), token)
    assert await shop.lines(await shop.login("ana")) == {item.id: 2}, "the account's cart stays"


async def test_a_token_cleaned_by_another_service_is_signed_out(shop: Shop, redis_client: Any) -> None:
    token = await shop.login("ana")
    await redis_client.delete(VIEWED_ITEMS(token))
    await redis_client.delete(CART(token))
    await redis_client.hdel(LOGIN_TOKENS(), token)
    await redis_client.zrem(RECENT_TOKENS(), token)
    assert (await shop.sessions.visit(token)).new
    assert not await redis_client.zscore(RECENT_TOKENS(), token)


async def test_a_cached_session_is_signed_out_when_login_lacks_it(
    shop: Shop, redis_client: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(session_cache_module, "LOGIN_CHECK_SECONDS", 0.0)
    sessions, token = SessionCache(SessionFinder(shop.sessions.store)), await shop.login("ana")
    found = await sessions.find(token)
    assert found is not None
    assert found.user == "ana"
    await redis_client.hdel(LOGIN_TOKENS(), token)
    assert await sessions.find(token) is None


async def test_a_login_written_by_another_service_is_signed_in(shop: Shop, redis_client: Any) -> None:
    now = shop.clock.now_s()
    for token in (new_token(), new_token().lower()):
        await redis_client.hset(LOGIN_TOKENS(), token, "ana")
        await redis_client.zadd(RECENT_TOKENS(), {token: now - 60})
        visit = await shop.sessions.visit(token)
        assert (visit.user, visit.token, visit.new) == ("ana", token, False)
        await shop.functions.outbox.drain()
        own = await shop.sessions.list_own(visit)
        assert visit.id in {session.id for session in own}


async def test_a_login_older_than_the_idle_limit_or_a_revocation_is_not_signed_in(
    shop: Shop, redis_client: Any
) -> None:
    idle, revoked = new_token(), new_token()
    await redis_client.hset(LOGIN_TOKENS(), mapping={idle: "ana", revoked: "ben"})
    now = shop.clock.now_s()
    await redis_client.zadd(RECENT_TOKENS(), {idle: now - shop.sessions.limits.idle_seconds - 1, revoked: now - 10})
    await shop.revocations.revoke("ben")
    for token in (idle, revoked):
        assert (await shop.sessions.visit(token)).new


async def test_a_guest_that_another_service_signs_in_is_signed_in(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    item = await create_item()
    token = await shop.guest_token()
    await shop.carts.put(token, item.id, 3)
    await redis_client.hset(LOGIN_TOKENS(), token, "ana")
    assert (await shop.sessions.visit(token)).user == "ana"


async def test_a_cart_and_views_written_by_another_service_are_a_guests(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    item, token = await create_item(), new_token()
    await redis_client.hset(CART(token), str(item.id), "2")
    await redis_client.zadd(VIEWED_ITEMS(token), {str(item.id): shop.clock.now_s()})
    assert await shop.lines(token) == {item.id: 2}
    visit, viewed = await shop.views.recently_viewed(token, Page())
    assert visit.token == token
    assert [one.id for one in viewed.items] == [item.id]
    _, order = await shop.checkout.check_out(token)
    assert [(line.id, line.qty) for line in order.items] == [(item.id, 2)]


async def test_a_session_ended_by_plaza_does_not_come_back_by_its_documented_keys(
    shop: Shop, redis_client: Any
) -> None:
    token = await shop.login("ana")
    await shop.sessions.logout(token)
    assert (await shop.sessions.visit(token)).new
    assert not await redis_client.exists(SESSION_STATE(token))
    assert not await redis_client.hexists(LOGIN_TOKENS(), token)


async def test_a_cart_written_by_another_service_is_merged_at_the_first_login(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    item, token = await create_item(), new_token()
    await redis_client.hset(CART(token), str(item.id), "2")
    await redis_client.zadd(RECENT_TOKENS(), {token: shop.clock.now_s()})
    assert await shop.lines(await shop.login("ana", token)) == {item.id: 2}
