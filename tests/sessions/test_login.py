"""Login: a new token, the same cart, and no access with the old token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from plaza.caching.library import LIBRARY as CACHING_LIBRARY
from plaza.core import paging
from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.keyspace import Layout, use_layout
from plaza.core.paging import Page
from plaza.core.sql import Sql
from plaza.sessions.keys import LOGIN_TOKENS, RECENT_TOKENS
from plaza.sessions.model import Login, SessionReplaced, WrongLogin
from plaza.sessions.sign_in import GRACE_SECONDS
from plaza.shop.library import LIBRARY
from tests.servers import Cluster
from tests.shop.conftest import CreateItem, MemoryAccounts, Shop, assemble, create_item_in
from tests.timeouts import connect_for_test


async def test_a_wrong_password_starts_no_session(shop: Shop, redis_client: Any) -> None:
    guest = await shop.guest_token()
    for name, password in (("ana", "wrong"), ("unknown", "ana password"), ("no:name", "x"), ("me", "x")):
        with pytest.raises(WrongLogin):
            await shop.sign_in.login(guest, Login(name, password))
    assert await redis_client.hgetall(LOGIN_TOKENS()) == {}
    assert not (await shop.sessions.visit(guest)).new


async def test_login_changes_the_token_and_the_old_one_is_not_signed_in(shop: Shop, redis_client: Any) -> None:
    guest = await shop.guest_token()
    ana = await shop.login("ana", guest)
    assert ana != guest
    assert await redis_client.hgetall(LOGIN_TOKENS()) == {ana: "ana"}
    assert await redis_client.zrange(RECENT_TOKENS(), 0, -1) == [ana]


async def test_a_request_with_a_users_old_token_succeeds_for_a_few_seconds(shop: Shop, create_item: CreateItem) -> None:
    item = await create_item()
    before = await shop.login("ana")
    ana = await shop.login("ana", before)
    visit, _ = await shop.carts.put(before, item.id, 2)  # left the browser before it heard of the new token
    assert visit.replaced
    assert not visit.new, "a new cookie would take the place of the one from the login"
    assert await shop.lines(ana) == {item.id: 2}
    shop.clock.advance(seconds=GRACE_SECONDS + 1)
    visit = await shop.sessions.visit(before)
    assert visit.new
    assert visit.user is None


async def test_a_guests_old_token_changes_nothing_of_the_user(shop: Shop, create_item: CreateItem) -> None:
    item, other = await create_item(), await create_item()
    guest = await shop.guest_token()
    await shop.carts.put(guest, item.id, 1)
    ana = await shop.login("ana", guest)
    for qty in (0, 5):
        with pytest.raises(SessionReplaced):
            await shop.carts.put(guest, item.id, qty)
    await shop.views.view(guest, other.id)
    await shop.sessions.logout(guest)
    assert (await shop.sessions.visit(ana)).user == "ana"
    assert await shop.lines(ana) == {item.id: 1}
    _, viewed = await shop.views.recently_viewed(ana, Page())
    assert viewed.items == []
    visit = await shop.sessions.visit(guest)
    assert (visit.replaced, visit.new, visit.user) == (True, False, None)


async def test_a_users_old_token_is_followed_through_several_logins(shop: Shop, create_item: CreateItem) -> None:
    item = await create_item()
    first = await shop.login("ana")
    third = await shop.login("ana", await shop.login("ana", first))
    visit, _ = await shop.carts.put(first, item.id, 2)
    assert (visit.replaced, visit.new, visit.user) == (True, False, "ana")
    assert await shop.lines(third) == {item.id: 2}
    await shop.sessions.logout(third)
    visit = await shop.sessions.visit(first)
    assert (visit.replaced, visit.new, visit.user) == (True, False, None), "the cookie that was cleared stays cleared"


async def test_the_old_token_cannot_do_what_needs_the_user(shop: Shop, create_item: CreateItem) -> None:
    item = await create_item()
    guest = await shop.guest_token()
    ana = await shop.login("ana", guest)
    await shop.carts.put(ana, item.id, 1)
    visit = await shop.sessions.visit(guest)
    assert [session.id for session in await shop.sessions.list_own(visit)] == [visit.id]
    assert (await shop.orders.page(visit, Page())).orders == []
    with pytest.raises(SessionReplaced):
        await shop.checkout.check_out(guest)
    with pytest.raises(SessionReplaced):
        await shop.sessions.end_own(visit, visit.id)


async def test_a_planted_token_reveals_nothing_of_the_user_who_logs_in_with_it(
    shop: Shop, create_item: CreateItem
) -> None:
    secret, bait = await create_item(), await create_item()
    before = await shop.login("ana")
    await shop.carts.put(before, secret.id, 7)
    planted = await shop.guest_token()
    await shop.carts.put(planted, bait.id, 1)
    await shop.views.view(planted, bait.id)
    ana = await shop.login("ana", planted)
    await shop.views.view(ana, secret.id)
    visit = await shop.sessions.visit(planted)
    assert shop.sessions.describe(visit).user is None
    assert visit.token == planted, "its id is not that of the user's session either"
    assert await shop.lines(planted) == {bait.id: 1}
    _, viewed = await shop.views.recently_viewed(planted, Page())
    assert [item.id for item in viewed.items] == [bait.id]
    assert await shop.lines(ana) == {secret.id: 7, bait.id: 1}


async def test_a_token_replaced_long_ago_cannot_end_the_new_session(shop: Shop) -> None:
    planted = await shop.guest_token()
    ana = await shop.login("ana", planted)
    shop.clock.advance(seconds=GRACE_SECONDS + 1)
    await shop.sessions.logout(planted)
    assert (await shop.sessions.visit(ana)).user == "ana"


async def test_another_user_who_logs_in_gets_no_data_of_the_first(shop: Shop, create_item: CreateItem) -> None:
    item = await create_item()
    ana = await shop.login("ana")
    await shop.carts.put(ana, item.id, 3)
    await shop.views.view(ana, item.id)
    ben = await shop.login("ben", ana)
    assert await shop.lines(ben) == {}
    _, viewed = await shop.views.recently_viewed(ben, Page())
    assert viewed.items == []
    visit = await shop.sessions.visit(ana)
    assert visit.replaced
    assert visit.user is None
    with pytest.raises(SessionReplaced):
        await shop.carts.put(ana, item.id, 1)
    assert await shop.lines(await shop.login("ana")) == {item.id: 3}


async def test_logout_with_a_just_replaced_token_ends_the_new_session(shop: Shop) -> None:
    before = await shop.login("ana")
    ana = await shop.login("ana", await shop.login("ana", before))
    await shop.sessions.logout(before)
    assert (await shop.sessions.visit(ana)).new


async def test_a_worker_finishes_the_login_of_a_process_that_died(
    cluster: Cluster, shop_on_cluster: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster, where a login is several steps on several nodes."""
    shop = shop_on_cluster
    item = await create_item_in(shop)
    guest = await shop.guest_token()
    await shop.carts.put(guest, item.id, 2)
    await shop.functions.outbox.drain()

    async def die(*_: object) -> None:
        """The process is gone: nothing follows from what it has begun."""

    with monkeypatch.context() as patch:
        patch.setattr(shop.functions.outbox, "settle", die)
        token = await shop.login("ana", guest)
    with cluster.redis_client() as redis_client:
        assert redis_client.hgetall(LOGIN_TOKENS()) == {}
        while await shop.functions.outbox_recovery.recover(abandoned_ms=0):
            await shop.functions.outbox.drain()
        assert redis_client.hgetall(LOGIN_TOKENS()) == {token: "ana"}
        assert redis_client.zrange(RECENT_TOKENS(), 0, -1) == [token]
    assert await shop.lines(token) == {item.id: 2}
    assert await shop.lines(await shop.login("ana")) == {item.id: 2}


@pytest.fixture
async def shop_on_cluster(
    cluster: Cluster, database: Sql, clock: ManualClock, registered_accounts: MemoryAccounts
) -> AsyncIterator[Shop]:
    use_layout(Layout.BRACES)
    valkey = await connect_for_test(cluster.url)
    functions = Functions(valkey, [LIBRARY, CACHING_LIBRARY, paging.LIBRARY])
    await functions.load()
    yield assemble(functions, database, clock, registered_accounts)
    await functions.outbox.drain()
    await valkey.close()
    use_layout(Layout.PLAIN)


async def test_a_user_suspended_during_the_password_check_is_not_signed_in(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = MemoryAccounts.check

    async def slow(*args: Any) -> Any:
        actor = await check(*args)
        await shop.revocations.revoke("ana")
        shop.clock.advance(seconds=1)
        return actor

    with monkeypatch.context() as patch:
        patch.setattr(MemoryAccounts, "check", slow)
        token = await shop.login("ana")
    assert (await shop.sessions.visit(token)).user is None
    assert (await shop.sessions.visit(await shop.login("ana"))).user == "ana"
