"""Sessions: never someone else's, never back from the dead, and no round trip of their own."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from plaza.core import paging
from plaza.core.clock import SetClock
from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from plaza.core.keys import Layout, use_layout
from plaza.core.paging import Page
from plaza.core.sql import Sql
from plaza.core.wire import USAGE, Usage, Valkey, connect
from plaza.shop.keys import (
    SHOP_ACCOUNT,
    SHOP_ACCOUNT_SESSIONS,
    SHOP_CART,
    SHOP_LOGINS,
    SHOP_RECENT,
    SHOP_SESSION,
    SHOP_VIEWED,
)
from plaza.shop.library import LIBRARY
from plaza.shop.model import Login, SessionMoved, WrongLogin
from plaza.shop.sessions import GRACE_SECONDS, Limits, is_token, new_token
from tests.rounds import rounds_of
from tests.servers import Cluster
from tests.shop.conftest import Book, Offer, Shop, assemble, offer_in


def test_tokens_are_upper_case_uuids_of_random_bits() -> None:
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    for token in tokens:
        assert re.fullmatch(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", token)
        assert uuid.UUID(token).version == 4


async def test_strangers_see_who_is_signed_in_and_when_each_token_was_seen(shop: Shop, stranger: Any) -> None:
    guest, ana = await shop.token(), await shop.login("ana")
    shop.clock.forward(seconds=1.5)
    await shop.sessions.visit(guest)
    assert await stranger.hgetall(SHOP_LOGINS()) == {ana: "ana"}
    seen = dict(await stranger.zrange(SHOP_RECENT(), 0, -1, withscores=True))
    assert seen == {ana: shop.clock.now_s() - 1.5, guest: shop.clock.now_s()}


@pytest.mark.parametrize(
    "cookie",
    [
        None,
        "",
        "nonsense",
        "A" * 10_000,
        "EB9382CA-0376-4558-B271-EA230BDB7EAF",  # well formed, but nobody's
        "EB9382CA-0376-4558-B271-EA230BDB7EA}",
        "eb9382ca-0376-4558-b271-ea230bdb7eaf",
        "*",
    ],
)
async def test_a_missing_dead_or_made_up_token_gets_a_new_session(
    shop: Shop, cookie: str | None, stranger: Any
) -> None:
    visit, _ = await shop.sessions.visit(cookie)
    assert visit.new
    assert is_token(visit.token)
    assert visit.token != cookie
    assert visit.user is None
    assert await stranger.zrange(SHOP_RECENT(), 0, -1) == [visit.token]


async def test_a_session_ends_when_idle_for_too_long(shop: Shop, stranger: Any) -> None:
    token = await shop.login("ana")
    shop.clock.forward(seconds=shop.sessions.limits.idle)
    visit, _ = await shop.sessions.visit(token)
    assert visit.user == "ana"
    shop.clock.forward(seconds=shop.sessions.limits.idle + 1)
    visit, _ = await shop.sessions.visit(token)
    assert visit.new
    assert visit.user is None
    assert await stranger.hgetall(SHOP_LOGINS()) == {}
    assert await stranger.exists(SHOP_SESSION(token)) == 0


async def test_a_session_ends_at_last_however_often_it_is_used(shop: Shop) -> None:
    token = await shop.login("ana")
    limits = shop.sessions.limits
    for _ in range(int(limits.absolute // limits.idle)):
        shop.clock.forward(seconds=limits.idle)
        assert (await shop.sessions.visit(token))[0].user == "ana"
    shop.clock.forward(seconds=limits.absolute % limits.idle + 1)
    assert (await shop.sessions.visit(token))[0].new


async def test_a_wrong_password_opens_nothing(shop: Shop, stranger: Any) -> None:
    guest = await shop.token()
    for name, password in (("ana", "wrong"), ("nobody", "ana password"), ("no:name", "x"), ("me", "x")):
        with pytest.raises(WrongLogin):
            await shop.sessions.login(guest, Login(name, password))
    assert await stranger.hgetall(SHOP_LOGINS()) == {}
    assert not (await shop.sessions.visit(guest))[0].new


async def test_the_token_changes_at_login_and_the_old_one_is_not_signed_in(shop: Shop, stranger: Any) -> None:
    guest = await shop.token()
    ana = await shop.login("ana", guest)
    assert ana != guest
    assert await stranger.hgetall(SHOP_LOGINS()) == {ana: "ana"}
    assert await stranger.zrange(SHOP_RECENT(), 0, -1) == [ana]


async def test_a_request_in_flight_with_the_old_token_succeeds_for_a_few_seconds(shop: Shop, offer: Offer) -> None:
    item = await offer()
    guest = await shop.token()
    ana = await shop.login("ana", guest)
    visit, _ = await shop.carts.put(guest, item.id, 2)  # left the browser before it heard of the new token
    assert visit.moved
    assert not visit.new, "a new cookie would take the place of the one from the login"
    assert await shop.lines(ana) == {item.id: 2}
    shop.clock.forward(seconds=GRACE_SECONDS + 1)
    visit, _ = await shop.sessions.visit(guest)
    assert visit.new
    assert visit.user is None


async def test_the_old_token_is_followed_through_several_logins(shop: Shop, offer: Offer) -> None:
    item = await offer()
    first = await shop.token()
    second = await shop.login("ana", first)
    third = await shop.login("ana", second)
    visit, _ = await shop.carts.put(first, item.id, 2)
    assert (visit.moved, visit.new, visit.heir) == (True, False, "ana")
    assert await shop.lines(third) == {item.id: 2}
    await shop.sessions.logout(third)
    visit, _ = await shop.sessions.visit(first)
    assert (visit.moved, visit.new, visit.heir) == (True, False, None), "the cookie that was cleared stays cleared"


async def test_mending_restores_what_follows_from_a_session(shop: Shop, offer: Offer, stranger: Any) -> None:
    item = await offer()
    guest, ana = await shop.token(), await shop.login("ana")
    await shop.carts.put(ana, item.id, 2)
    gone = new_token()
    await stranger.hset(SHOP_LOGINS(), mapping={guest: "ben", ana: "ben", gone: "ben"})
    await stranger.zadd(SHOP_RECENT(), {ana: 1, gone: 2})
    await stranger.zrem(SHOP_RECENT(), guest)
    await stranger.delete(SHOP_CART(ana))
    await stranger.delete(SHOP_ACCOUNT_SESSIONS("ana"))
    now_ms = shop.clock.now_ms()
    for token in (guest, ana, gone):
        await shop.functions.call("shop_mend_session", [SHOP_SESSION(token)], now_ms, token)
    await shop.functions.call("shop_mend_person", [SHOP_ACCOUNT("ana")], now_ms, "ana")
    assert await stranger.hgetall(SHOP_LOGINS()) == {ana: "ana"}
    now = shop.clock.now_s()
    assert dict(await stranger.zrange(SHOP_RECENT(), 0, -1, withscores=True)) == {guest: now, ana: now}
    assert await stranger.zrange(SHOP_ACCOUNT_SESSIONS("ana"), 0, -1) == [ana]
    assert await shop.lines(ana) == {item.id: 2}


async def test_the_old_token_may_not_do_what_only_the_person_may(shop: Shop, offer: Offer) -> None:
    item = await offer()
    guest = await shop.token()
    ana = await shop.login("ana", guest)
    await shop.carts.put(ana, item.id, 1)
    visit, _ = await shop.sessions.visit(guest)
    assert [session.id for session in await shop.sessions.own(visit)] == [visit.id]
    assert (await shop.orders.page(visit, Page())).orders == []
    with pytest.raises(SessionMoved):
        await shop.orders.check_out(guest)
    with pytest.raises(SessionMoved):
        await shop.sessions.end_own(visit, visit.id)


async def test_whoever_planted_the_token_learns_nothing_of_who_logged_in_with_it(shop: Shop, offer: Offer) -> None:
    secret, bait = await offer(), await offer()
    before = await shop.login("ana")
    await shop.carts.put(before, secret.id, 7)
    planted = await shop.token()
    await shop.carts.put(planted, bait.id, 1)
    await shop.views.view(planted, bait.id)
    ana = await shop.login("ana", planted)
    await shop.views.view(ana, secret.id)
    visit, _ = await shop.sessions.visit(planted)
    assert shop.sessions.session(visit).user is None
    assert visit.token == planted, "its id is not that of the person's session either"
    assert await shop.lines(planted) == {bait.id: 1}
    _, shown = await shop.carts.put(planted, bait.id, 2)
    assert [(line.id, line.qty) for line in shown.items] == [(bait.id, 2)]
    _, viewed = await shop.views.recently(planted, Page())
    assert [item.id for item in viewed.items] == [bait.id]
    assert await shop.lines(ana) == {secret.id: 7, bait.id: 2}, "what was under way was done all the same"


async def test_a_token_that_was_replaced_long_ago_does_not_end_the_session_that_followed(shop: Shop) -> None:
    planted = await shop.token()
    ana = await shop.login("ana", planted)
    shop.clock.forward(seconds=GRACE_SECONDS + 1)
    await shop.sessions.logout(planted)
    assert (await shop.sessions.visit(ana))[0].user == "ana"


async def test_another_person_who_logs_in_gets_nothing_of_the_first(shop: Shop, offer: Offer) -> None:
    item = await offer()
    ana = await shop.login("ana")
    await shop.carts.put(ana, item.id, 3)
    await shop.views.view(ana, item.id)
    ben = await shop.login("ben", ana)
    assert await shop.lines(ben) == {}
    _, viewed = await shop.views.recently(ben, Page())
    assert viewed.items == []
    visit, _ = await shop.sessions.visit(ana)
    assert visit.moved
    assert visit.user is None
    with pytest.raises(SessionMoved):
        await shop.carts.put(ana, item.id, 1)
    assert await shop.lines(await shop.login("ana")) == {item.id: 3}


async def test_logging_out_empties_what_the_token_had(shop: Shop, offer: Offer, stranger: Any) -> None:
    item = await offer()
    token = await shop.login("ana")
    await shop.carts.put(token, item.id, 2)
    await shop.views.view(token, item.id)
    await shop.sessions.logout(token)
    for key in (SHOP_SESSION(token), SHOP_CART(token), SHOP_VIEWED(token)):
        assert await stranger.exists(key) == 0
    assert await stranger.hexists(SHOP_LOGINS(), token) is False
    assert await stranger.zscore(SHOP_RECENT(), token) is None
    assert await stranger.zcard(SHOP_ACCOUNT_SESSIONS("ana")) == 0


async def test_a_session_that_is_logged_out_never_comes_back_whatever_runs_beside_it(
    shop: Shop, offer: Offer, stranger: Any
) -> None:
    item = await offer()
    for _ in range(8):
        guest = await shop.token()
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
        await shop.functions.effects.drain()
        for key in (SHOP_SESSION(token), SHOP_CART(token), SHOP_VIEWED(token)):
            assert await stranger.exists(key) == 0
        assert await stranger.hexists(SHOP_LOGINS(), token) is False
        assert await stranger.zscore(SHOP_RECENT(), token) is None
        assert await stranger.zscore(SHOP_ACCOUNT_SESSIONS("ana"), token) is None
        await shop.sessions.logout(other)


async def test_logging_out_with_a_token_that_was_just_replaced_ends_the_new_session(shop: Shop) -> None:
    guest = await shop.token()
    ana = await shop.login("ana", await shop.login("ana", guest))
    await shop.sessions.logout(guest)
    assert (await shop.sessions.visit(ana))[0].new


async def test_people_see_and_end_their_own_sessions_by_an_id_that_is_no_token(shop: Shop) -> None:
    first = await shop.login("ana")
    shop.clock.forward(seconds=5)
    second, bens = await shop.login("ana"), await shop.login("ben")
    visit, _ = await shop.sessions.visit(second)
    page = await shop.sessions.page(visit, Page())
    assert [s.current for s in page.sessions] == [True, False]
    assert not {s.id for s in page.sessions} & {first, second}
    bens_id = (await shop.sessions.visit(bens))[0].id
    with pytest.raises(NotFound):
        await shop.sessions.end_own(visit, bens_id)
    await shop.sessions.end_own(visit, page.sessions[1].id)
    assert (await shop.sessions.visit(first))[0].new
    assert (await shop.sessions.visit(bens))[0].user == "ben"
    assert [s.id for s in (await shop.sessions.page(visit, Page())).sessions] == [visit.id]


async def test_pages_of_sessions_neither_repeat_nor_skip(shop: Shop) -> None:
    for _ in range(4):
        token = await shop.login("ana")
        shop.clock.forward(seconds=1)
    visit, _ = await shop.sessions.visit(token)
    first = await shop.sessions.page(visit, Page(limit=3))
    rest = await shop.sessions.page(visit, Page(limit=3, cursor=first.pagination.next_cursor))
    times = [s.created_at for s in (*first.sessions, *rest.sessions)]
    assert len(times) == 4
    assert times == sorted(times, reverse=True)
    assert rest.pagination.next_cursor is None


async def test_a_person_has_fifty_sessions_at_most(shop: Shop, stranger: Any) -> None:
    book = shop.sessions.accounts
    assert isinstance(book, Book)
    first = await shop.login("ana")
    for _ in range(50):
        shop.clock.forward(seconds=1)
        token = new_token()
        await shop.functions.call(
            "shop_open", [SHOP_SESSION(token), SHOP_CART(token), SHOP_VIEWED(token)], token, shop.sessions.now(), "ana"
        )
    await shop.functions.effects.drain()
    assert await stranger.zcard(SHOP_ACCOUNT_SESSIONS("ana")) == 50
    assert (await shop.sessions.visit(first))[0].new


async def test_a_person_who_was_cut_off_is_signed_out(shop: Shop, offer: Offer) -> None:
    first, second = await offer(), await offer()
    tokens = [await shop.login("ana"), await shop.login("ana")]
    await shop.carts.put(tokens[0], first.id, 3)
    shop.clock.forward(seconds=1)
    await shop.cutoffs.note("ana")
    visit, _ = await shop.sessions.visit(tokens[0])
    assert (visit.new, visit.user) == (True, None)
    visit, cart = await shop.carts.put(tokens[1], second.id, 1)
    assert (visit.new, visit.user, [line.id for line in cart.items]) == (True, None, [second.id])


async def test_touching_costs_one_round_trip_with_the_work(shop: Shop, offer: Offer, valkey: Valkey) -> None:
    item = await offer()
    tokens = [await shop.token(), await shop.login("ana")]
    for token in tokens:
        for work in (
            lambda token=token: shop.sessions.visit(token),
            lambda token=token: shop.views.view(token, item.id),
            lambda token=token: shop.sessions.visit(token, "shop_cart"),
        ):
            await shop.functions.effects.drain()  # what the one before left to follow by itself is not ours
            shop.clock.forward(seconds=0.1)
            usage = Usage()
            mark = USAGE.set(usage)
            assert await rounds_of(valkey, work()) <= (2 if valkey.clustered else 1)
            USAGE.reset(mark)
            if not valkey.clustered:
                assert usage.trips == 1
        await shop.functions.effects.drain()
        shop.clock.forward(seconds=0.1)
        rounds = await rounds_of(valkey, shop.carts.put(token, item.id, tokens.index(token) + 1))
        assert rounds <= (5 if valkey.clustered else 2)  # one of them reads the rows of the cart
    await shop.functions.effects.drain()
    rounds = await rounds_of(valkey, shop.sessions.login(tokens[0], Login("ben", "ben password")))
    assert rounds <= (7 if valkey.clustered else 2)


async def test_cleaning_ends_the_oldest_beyond_the_limit_with_everything_of_theirs_while_traffic_goes_on(
    functions: Functions, database: Sql, clock: SetClock, people: Book, stranger: Any
) -> None:
    shop = assemble(functions, database, clock, people, Limits(idle=1000, absolute=10_000, most=30))
    item = await offer_in(shop)
    tokens = []
    for _ in range(80):
        token = await shop.token()
        await shop.carts.put(token, item.id, 1)
        tokens.append(token)
        clock.forward(seconds=0.01)
    spared = tokens[0]  # the oldest, but seen again while the cleaning goes on

    async def traffic() -> None:
        for _ in range(20):
            clock.forward(seconds=0.001)
            await shop.sessions.visit(spared)

    await traffic()
    ended, _ = await asyncio.gather(shop.sessions.clean(), traffic())
    assert ended == 50
    left = await stranger.zrange(SHOP_RECENT(), 0, -1)
    assert sorted(left) == sorted([spared, *tokens[51:]])
    for token in tokens[1:51]:
        assert await stranger.exists(SHOP_SESSION(token)) + await stranger.exists(SHOP_CART(token)) == 0
    assert await shop.lines(spared) == {item.id: 1}


async def test_a_session_that_is_seen_again_just_before_it_is_cleaned_stays(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.sessions.limits = Limits(most=1)
    token = await shop.token()
    shop.clock.forward(seconds=1)  # so that it is the oldest
    await shop.token()
    to_clean = shop.sessions._to_clean

    async def overtaken() -> list[tuple[str, str]]:
        monkeypatch.setattr(shop.sessions, "_to_clean", to_clean)
        found = await to_clean()
        shop.clock.forward(seconds=1)
        await shop.sessions.visit(token)
        return found

    monkeypatch.setattr(shop.sessions, "_to_clean", overtaken)
    assert await shop.sessions.clean() == 0
    assert not (await shop.sessions.visit(token))[0].new


async def test_cleaning_ends_sessions_that_nobody_came_back_to(shop: Shop, stranger: Any) -> None:
    await shop.login("ana")
    await shop.token()
    shop.clock.forward(seconds=shop.sessions.limits.idle + 1)
    fresh = await shop.token()
    assert await shop.sessions.clean() == 2
    assert await stranger.zrange(SHOP_RECENT(), 0, -1) == [fresh]
    assert await stranger.hlen(SHOP_LOGINS()) == 0


async def test_what_others_left_in_recent_without_a_session_is_cleaned_too(shop: Shop, stranger: Any) -> None:
    orphan = new_token()
    await stranger.zadd(SHOP_RECENT(), {orphan: 1.0, "no token": 0.5})
    await stranger.hset(SHOP_LOGINS(), orphan, "ana")
    await stranger.hset(SHOP_CART(orphan), "1", "2")
    assert await shop.sessions.clean() == 2
    assert await stranger.zcard(SHOP_RECENT()) == 0
    assert await stranger.hlen(SHOP_LOGINS()) == 0
    assert await stranger.exists(SHOP_CART(orphan)) == 0


async def test_a_login_whose_process_dies_is_finished_by_a_worker(
    cluster: Cluster, shop_on_cluster: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster, where a login is several steps on several nodes."""
    shop = shop_on_cluster
    item = await offer_in(shop)
    guest = await shop.token()
    await shop.carts.put(guest, item.id, 2)
    await shop.functions.effects.drain()

    async def die(*_: object) -> None:
        """The process is gone: nothing follows from what it has begun."""

    with monkeypatch.context() as patch:
        patch.setattr(shop.functions.effects, "_settle", die)
        token = await shop.login("ana", guest)
    with cluster.stranger() as stranger:
        assert stranger.hgetall(SHOP_LOGINS()) == {}
        while await shop.functions.effects.recover(abandoned_ms=0):
            await shop.functions.effects.drain()
        assert stranger.hgetall(SHOP_LOGINS()) == {token: "ana"}
        assert stranger.zrange(SHOP_RECENT(), 0, -1) == [token]
    assert await shop.lines(token) == {item.id: 2}
    assert await shop.lines(await shop.login("ana")) == {item.id: 2}


@pytest.fixture
async def shop_on_cluster(cluster: Cluster, database: Sql, clock: SetClock, people: Book) -> AsyncIterator[Shop]:
    use_layout(Layout.BRACES)
    valkey = await connect(cluster.url)
    functions = Functions(valkey, [LIBRARY, paging.LIBRARY])
    await functions.load()
    yield assemble(functions, database, clock, people)
    await functions.effects.drain()
    await valkey.close()
    use_layout(Layout.PLAIN)


async def test_who_is_suspended_while_the_password_is_checked_is_not_signed_in(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = shop.sessions.accounts.check

    async def slow(*args: Any) -> Any:
        actor = await check(*args)
        await shop.cutoffs.note("ana")
        shop.clock.forward(seconds=1)
        return actor

    with monkeypatch.context() as patch:
        patch.setattr(shop.sessions.accounts, "check", slow)
        token = await shop.login("ana")
    assert (await shop.sessions.visit(token))[0].user is None
    assert (await shop.sessions.visit(await shop.login("ana")))[0].user == "ana"
