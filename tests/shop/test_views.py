"""Views: the 25 newest of a session, and popular items."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaza.caching import item_views
from plaza.caching.keys import ITEM_VIEWS
from plaza.core.errors import NotFound
from plaza.core.paging import Page
from plaza.shop.keys import VIEWED_ITEMS
from tests.shop.conftest import CreateItem, Shop


async def test_views_have_the_documented_keys(shop: Shop, create_item: CreateItem, redis_client: Any) -> None:
    one, two = await create_item(), await create_item()
    token = await shop.guest_token()
    for id in (one.id, one.id, two.id):
        shop.clock.advance(seconds=1.25)
        visit, item = await shop.views.view(token, id)
        assert not visit.new
        assert item.id == id
    assert await redis_client.zrange(ITEM_VIEWS(), 0, -1, withscores=True) == [
        (str(one.id), -2.0),
        (str(two.id), -1.0),
    ]
    now = shop.clock.now_s()
    assert await redis_client.zrange(VIEWED_ITEMS(token), 0, -1, withscores=True) == [
        (str(one.id), now - 1.25),
        (str(two.id), now),
    ]


async def test_a_session_keeps_its_25_newest_views(shop: Shop, create_item: CreateItem, redis_client: Any) -> None:
    ids = [(await create_item()).id for _ in range(27)]
    token = await shop.guest_token()
    for id in ids:
        shop.clock.advance(seconds=1)
        await shop.views.view(token, id)
    assert await redis_client.zrange(VIEWED_ITEMS(token), 0, -1) == [str(id) for id in ids[2:]]
    _, page = await shop.views.recently_viewed(token, Page(limit=20))
    assert [item.id for item in page.items] == ids[:6:-1]
    _, rest = await shop.views.recently_viewed(token, Page(limit=20, cursor=page.pagination.next_cursor))
    assert [item.id for item in rest.items] == ids[6:1:-1]
    assert rest.pagination.next_cursor is None


async def test_a_view_of_an_unknown_item_is_not_counted(shop: Shop, redis_client: Any) -> None:
    token = await shop.guest_token()
    with pytest.raises(NotFound):
        await shop.views.view(token, 12345)
    assert await redis_client.exists(ITEM_VIEWS()) == 0
    assert await redis_client.exists(VIEWED_ITEMS(token)) == 0


async def test_a_view_counts_once_also_if_the_row_was_not_cached_or_the_session_new(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    item = await create_item()
    for cookie in (None, "EB9382CA-0376-4558-B271-EA230BDB7EAF", await shop.guest_token()):
        await shop.rows.schedule(str(item.id), 0)
        before = await redis_client.zscore(ITEM_VIEWS(), item.id) or 0
        visit, _ = await shop.views.view(cookie, item.id)
        assert await redis_client.zscore(ITEM_VIEWS(), item.id) == before - 1
        assert await redis_client.zrange(VIEWED_ITEMS(visit.token), 0, -1) == [str(item.id)]


async def test_popular_items_are_ordered_by_views(shop: Shop, create_item: CreateItem) -> None:
    ids = [(await create_item()).id for _ in range(3)]
    token = await shop.guest_token()
    for id, times in zip(ids, (1, 3, 2), strict=True):
        for _ in range(times):
            await shop.views.view(token, id)
    page = await shop.views.popular(Page(limit=2))
    assert [item.id for item in page.items] == [ids[1], ids[2]]
    rest = await shop.views.popular(Page(limit=2, cursor=page.pagination.next_cursor))
    assert [item.id for item in rest.items] == [ids[0]]


async def test_concurrent_jobs_halve_views_once_in_five_minutes(shop: Shop, redis_client: Any) -> None:
    await redis_client.zadd(ITEM_VIEWS(), {"1": -8.0, "2": -3.0})
    await asyncio.gather(*(shop.item_views.halve() for _ in range(5)))
    assert await redis_client.zscore(ITEM_VIEWS(), "1") == -4
    shop.clock.advance(seconds=item_views.HALVE_SECONDS)
    await asyncio.gather(*(shop.item_views.halve() for _ in range(5)))
    assert await redis_client.zrange(ITEM_VIEWS(), 0, -1, withscores=True) == [("1", -2.0), ("2", -0.75)]


async def test_the_least_viewed_items_are_removed(
    shop: Shop, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_views, "MAX_ITEMS", 10)
    monkeypatch.setattr(item_views, "REMOVE_BATCH", 3)
    await redis_client.zadd(ITEM_VIEWS(), {str(n): -n for n in range(1, 31)})
    await shop.item_views.halve()
    left = await redis_client.zrange(ITEM_VIEWS(), 0, -1, withscores=True)
    assert left == [(str(n), -n / 2) for n in range(30, 20, -1)]
