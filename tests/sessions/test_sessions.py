"""Sessions: a token never opens another's session, an ended one never returns, and finding it costs no round trip."""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import Any

import pytest

from plaza.core.clients import UNKNOWN_CLIENT
from plaza.core.errors import NotFound
from plaza.core.paging import Page
from plaza.core.valkey import REQUEST_USAGE, RequestUsage, Valkey
from plaza.sessions.keys import LOGIN_TOKENS, RECENT_TOKENS, SESSION_STATE, USER_SESSION_TOKENS
from plaza.sessions.model import Login, is_token, new_token
from plaza.shop.keys import CART, VIEWED_ITEMS
from tests.round_trips import count_round_trips
from tests.shop.conftest import CreateItem, Shop


def test_tokens_are_upper_case_uuids_of_random_bits() -> None:
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    for token in tokens:
        assert re.fullmatch(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", token)
        assert uuid.UUID(token).version == 4


async def test_sessions_have_the_documented_keys(shop: Shop, redis_client: Any) -> None:
    guest, ana = await shop.guest_token(), await shop.login("ana")
    shop.clock.advance(seconds=1.5)
    await shop.sessions.visit(guest)
    assert await redis_client.hgetall(LOGIN_TOKENS()) == {ana: "ana"}
    seen = dict(await redis_client.zrange(RECENT_TOKENS(), 0, -1, withscores=True))
    assert seen == {ana: shop.clock.now_s() - 1.5, guest: shop.clock.now_s()}


@pytest.mark.parametrize(
    "cookie",
    [
        None,
        "",
        "nonsense",
        "A" * 10_000,
        "EB9382CA-0376-4558-B271-EA230BDB7EAF",  # well formed, but without a session
        "EB9382CA-0376-4558-B271-EA230BDB7EA}",
        "eb9382ca-0376-4558-b271-ea230bdb7eaf",
        "*",
    ],
)
async def test_a_missing_dead_or_made_up_token_gets_a_new_session(
    shop: Shop, cookie: str | None, redis_client: Any
) -> None:
    visit = await shop.sessions.visit(cookie)
    assert visit.new
    assert is_token(visit.token)
    assert visit.token != cookie
    assert visit.user is None
    assert await redis_client.zrange(RECENT_TOKENS(), 0, -1) == [visit.token]


async def test_a_session_ends_when_idle_for_too_long(shop: Shop, redis_client: Any) -> None:
    token = await shop.login("ana")
    shop.clock.advance(seconds=shop.sessions.limits.idle_seconds)
    visit = await shop.sessions.visit(token)
    assert visit.user == "ana"
    shop.clock.advance(seconds=shop.sessions.limits.idle_seconds + 1)
    visit = await shop.sessions.visit(token)
    assert visit.new
    assert visit.user is None
    assert await redis_client.hgetall(LOGIN_TOKENS()) == {}
    assert await redis_client.exists(SESSION_STATE(token)) == 0


async def test_a_session_ends_at_the_absolute_limit_even_if_it_is_used(shop: Shop) -> None:
    token = await shop.login("ana")
    limits = shop.sessions.limits
    for _ in range(int(limits.absolute_seconds // limits.idle_seconds)):
        shop.clock.advance(seconds=limits.idle_seconds)
        assert (await shop.sessions.visit(token)).user == "ana"
    shop.clock.advance(seconds=limits.absolute_seconds % limits.idle_seconds + 1)
    assert (await shop.sessions.visit(token)).new


async def test_repair_makes_sessions_follow_login_and_restores_their_indexes(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    item = await create_item()
    guest, ana, signed_out = await shop.guest_token(), await shop.login("ana"), await shop.login("ana")
    await shop.carts.put(ana, item.id, 2)
    foreign = new_token()
    await redis_client.hset(LOGIN_TOKENS(), mapping={guest: "ben", foreign: "ben"})
    await redis_client.hdel(LOGIN_TOKENS(), signed_out)
    await redis_client.zadd(RECENT_TOKENS(), {foreign: 2})
    await redis_client.zrem(RECENT_TOKENS(), ana)
    await redis_client.delete(USER_SESSION_TOKENS("ana"))
    now_ms = shop.clock.now_ms()
    for token in (guest, ana, signed_out, foreign):
        await shop.functions.run("shop_repair_session", [SESSION_STATE(token)], now_ms, token)
    assert await redis_client.hgetall(LOGIN_TOKENS()) == {guest: "ben", ana: "ana", foreign: "ben"}
    assert await redis_client.hget(SESSION_STATE(guest), "user") == "ben"
    assert not await redis_client.exists(SESSION_STATE(signed_out))
    assert set(await redis_client.zrange(RECENT_TOKENS(), 0, -1)) == {guest, ana, foreign}
    assert await redis_client.zrange(USER_SESSION_TOKENS("ana"), 0, -1) == [ana]
    assert await redis_client.zrange(USER_SESSION_TOKENS("ben"), 0, -1) == [guest]


async def test_logout_deletes_the_data_of_the_token(shop: Shop, create_item: CreateItem, redis_client: Any) -> None:
    item = await create_item()
    token = await shop.login("ana")
    await shop.carts.put(token, item.id, 2)
    await shop.views.view(token, item.id)
    await shop.sessions.logout(token)
    for key in (SESSION_STATE(token), CART(token), VIEWED_ITEMS(token)):
        assert await redis_client.exists(key) == 0
    assert await redis_client.hexists(LOGIN_TOKENS(), token) is False
    assert await redis_client.zscore(RECENT_TOKENS(), token) is None
    assert await redis_client.zcard(USER_SESSION_TOKENS("ana")) == 0


async def test_a_logged_out_session_never_comes_back_under_concurrent_requests(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    item = await create_item()
    for _ in range(8):
        guest = await shop.guest_token()
        token = await shop.login("ana", guest)
        other = await shop.login("ana")

        async def busy(token: str = token, other: str = other) -> None:
            for n in range(1, 4):
                await asyncio.gather(
                    shop.sessions.visit(token),
                    shop.carts.put(token, item.id, n),
                    shop.carts.put(other, item.id, n + 10),
                    shop.views.view(token, item.id),
                )

        async def leave(token: str = token) -> None:
            await asyncio.sleep(0.003)
            await shop.sessions.logout(token)

        await asyncio.gather(busy(), busy(), leave())
        await shop.functions.outbox.drain()
        for key in (SESSION_STATE(token), CART(token), VIEWED_ITEMS(token)):
            assert await redis_client.exists(key) == 0
        assert await redis_client.hexists(LOGIN_TOKENS(), token) is False
        assert await redis_client.zscore(RECENT_TOKENS(), token) is None
        assert await redis_client.zscore(USER_SESSION_TOKENS("ana"), token) is None
        await shop.sessions.logout(other)


async def test_users_list_and_end_their_sessions_by_an_id_that_is_not_the_token(shop: Shop) -> None:
    first = await shop.login("ana")
    shop.clock.advance(seconds=5)
    second, bens = await shop.login("ana"), await shop.login("ben")
    visit = await shop.sessions.visit(second)
    page = await shop.sessions.page(visit, Page())
    assert [s.current for s in page.sessions] == [True, False]
    assert not {s.id for s in page.sessions} & {first, second}
    bens_id = (await shop.sessions.visit(bens)).id
    with pytest.raises(NotFound):
        await shop.sessions.end_own(visit, bens_id)
    await shop.sessions.end_own(visit, page.sessions[1].id)
    assert (await shop.sessions.visit(first)).new
    assert (await shop.sessions.visit(bens)).user == "ben"
    assert [s.id for s in (await shop.sessions.page(visit, Page())).sessions] == [visit.id]


async def test_pages_of_sessions_neither_repeat_nor_skip(shop: Shop) -> None:
    for _ in range(4):
        token = await shop.login("ana")
        shop.clock.advance(seconds=1)
    visit = await shop.sessions.visit(token)
    first = await shop.sessions.page(visit, Page(limit=3))
    rest = await shop.sessions.page(visit, Page(limit=3, cursor=first.pagination.next_cursor))
    times = [s.created_at for s in (*first.sessions, *rest.sessions)]
    assert len(times) == 4
    assert times == sorted(times, reverse=True)
    assert rest.pagination.next_cursor is None


async def test_a_user_has_at_most_fifty_sessions(shop: Shop, redis_client: Any) -> None:
    first = await shop.login("ana")
    for _ in range(50):
        shop.clock.advance(seconds=1)
        token = new_token()
        await shop.sessions.store.open(token, "ana", shop.sessions.store.now(), UNKNOWN_CLIENT)
    await shop.functions.outbox.drain()
    assert await redis_client.zcard(USER_SESSION_TOKENS("ana")) == 50
    assert (await shop.sessions.visit(first)).new


async def test_a_revoked_user_is_signed_out(shop: Shop, create_item: CreateItem) -> None:
    first, second = await create_item(), await create_item()
    tokens = [await shop.login("ana"), await shop.login("ana")]
    await shop.carts.put(tokens[0], first.id, 3)
    shop.clock.advance(seconds=1)
    await shop.revocations.revoke("ana")
    visit = await shop.sessions.visit(tokens[0])
    assert (visit.new, visit.user) == (True, None)
    visit, cart = await shop.carts.put(tokens[1], second.id, 1)
    assert (visit.new, visit.user, [line.id for line in cart.items]) == (True, None, [second.id])


async def test_finding_the_session_costs_no_round_trip_of_its_own(
    shop: Shop, create_item: CreateItem, valkey: Valkey
) -> None:
    item = await create_item()
    await shop.items.read(item.id)  # this process caches the row
    tokens = [await shop.guest_token(), await shop.login("ana")]
    for token in tokens:
        for work in (
            lambda token=token: shop.sessions.visit(token),
            lambda token=token: shop.views.view(token, item.id),
        ):
            await shop.functions.outbox.drain()  # deferred updates of the previous call must not count
            shop.clock.advance(seconds=0.1)
            usage = RequestUsage()
            mark = REQUEST_USAGE.set(usage)
            assert await count_round_trips(valkey, work()) <= (2 if valkey.clustered else 1)
            REQUEST_USAGE.reset(mark)
            if not valkey.clustered:
                assert usage.trips == 1
        await shop.functions.outbox.drain()
        shop.clock.advance(seconds=0.1)
        rounds = await count_round_trips(valkey, shop.carts.put(token, item.id, tokens.index(token) + 1))
        assert rounds <= (5 if valkey.clustered else 2)  # one of them reads the rows of the cart
    await shop.functions.outbox.drain()
    rounds = await count_round_trips(valkey, shop.sign_in.login(tokens[0], Login("ben", "ben password")))
    assert rounds <= (7 if valkey.clustered else 2)
