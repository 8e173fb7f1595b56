"""The page cache: one computation for all requests, the previous page meanwhile, and never outdated content."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaza.caching.keys import CACHED_PAGE, ITEM_VIEWS, PAGE_STATE, PAGE_TAG
from plaza.caching.page_cache import Computation, PageCache
from plaza.caching.page_store import FRESH_SECONDS, CachedPage, PageCacheOptions, ServedPage, is_not_modified, page_hash
from plaza.caching.standalone import connect
from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.valkey import REQUEST_USAGE, RequestUsage
from plaza.shop.model import ItemChange
from tests.servers import Cluster, Server
from tests.shop.conftest import CreateItem, Shop
from tests.waiting import eventually

PAGE = page_hash(["a page"])


class Renderer:
    """Renders pages that contain the number of renderings."""

    def __init__(self) -> None:
        self.count = 0
        self.gate: asyncio.Event | None = None
        self.tags: tuple[str, ...] = ()
        self.headers: tuple[tuple[str, str], ...] = ()
        self.fails = False

    async def __call__(self, _: Computation) -> CachedPage:
        self.count += 1
        body = f"<p>{self.count}</p>".encode()
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            raise RuntimeError("no page today")
        return CachedPage(body, headers=self.headers, tags=self.tags)


@pytest.fixture
def render() -> Renderer:
    return Renderer()


@pytest.fixture
def pages(functions: Functions, clock: ManualClock) -> PageCache:
    """A page cache without early renewal, which is random."""
    return PageCache(functions, PageCacheOptions(beta=0), clock)


async def get(pages: PageCache, render: Renderer, page: str = PAGE, item: str | None = None) -> ServedPage:
    served = await pages.serve(page, render, item)
    assert served is not None
    return served


async def expire(pages: PageCache, clock: ManualClock, redis_client: Any) -> None:
    """Expire the page: advance the clock, and delete the key, whose TTL runs on Valkey's clock."""
    clock.advance(seconds=FRESH_SECONDS + 1)
    await redis_client.delete(CACHED_PAGE(PAGE))


async def test_a_page_is_computed_once_and_stored_for_300_seconds_as_it_is_sent(
    pages: PageCache, render: Renderer, clock: ManualClock, redis_client: Any
) -> None:
    first = await get(pages, render)
    assert first.cache_status == "fwd=uri-miss; stored"
    assert await redis_client.get(CACHED_PAGE(PAGE)) == "<p>1</p>"
    assert 240_000 < await redis_client.pttl(CACHED_PAGE(PAGE)) <= 300_000
    clock.advance(seconds=120)
    again = await get(pages, render)
    assert (again.page.body, again.cache_status, again.age) == (b"<p>1</p>", "hit; ttl=180", 120)
    assert again.etag == first.etag
    assert render.count == 1


async def test_only_pages_have_names_that_start_with_cache(
    pages: PageCache, render: Renderer, redis_client: Any, clock: ManualClock
) -> None:
    render.tags = ("item-1",)
    await get(pages, render)
    await pages.purge("item-1")
    clock.advance(seconds=2)
    await get(pages, render, page_hash(["another"]))
    names = [key async for key in redis_client.scan_iter("cache:*")]
    assert names == [CACHED_PAGE(page_hash(["another"]))]


async def test_etags_are_strong_and_the_same_in_every_process(
    functions: Functions, clock: ManualClock, pages: PageCache, render: Renderer
) -> None:
    first = await get(pages, render)
    assert first.etag.startswith('"')
    other = PageCache(functions, clock=clock)
    fresh = await other.serve(page_hash(["elsewhere"]), Renderer())
    assert fresh is not None
    assert fresh.etag == first.etag, "the same content"


async def test_five_hundred_misses_in_five_processes_cost_one_computation(
    functions: Functions, render: Renderer, clock: ManualClock
) -> None:
    processes = [PageCache(functions, clock=clock) for _ in range(5)]
    render.gate = asyncio.Event()
    readers = [asyncio.create_task(get(process, render)) for process in processes for _ in range(100)]
    await asyncio.sleep(0.1)
    render.gate.set()
    served = await asyncio.gather(*readers)
    assert {one.page.body for one in served} == {b"<p>1</p>"}
    assert render.count == 1


async def test_while_an_expired_page_is_computed_all_readers_get_the_previous_one(
    functions: Functions, pages: PageCache, render: Renderer, clock: ManualClock, redis_client: Any
) -> None:
    await get(pages, render)
    await expire(pages, clock, redis_client)
    render.gate = asyncio.Event()
    other = PageCache(functions, PageCacheOptions(beta=0), clock)
    served = await asyncio.gather(*(get(process, render) for process in (pages, other) for _ in range(100)))
    assert {one.page.body for one in served} == {b"<p>1</p>"}
    assert {one.cache_status for one in served} == {"hit; ttl=-1"}
    assert await redis_client.exists(CACHED_PAGE(PAGE)) == 0
    render.gate.set()
    await pages.drain()
    await other.drain()
    assert render.count == 2
    assert (await get(pages, render)).page.body == b"<p>2</p>"


async def test_early_renewal_is_more_likely_near_the_end(
    functions: Functions, clock: ManualClock, render: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = PageCache(functions, PageCacheOptions(beta=1), clock)
    await get(pages, render)
    await functions.run(  # it took ten seconds to compute, let us say
        "caching_claim_page", [CACHED_PAGE(PAGE), PAGE_STATE(PAGE)], "me", clock.now_ms(), 1000, "1"
    )
    args = (PAGE, "me", b"<p>1</p>", '[200,[],"\\"x\\""]', clock.now_ms(), 10_000, 300_000, 300_000)
    await functions.run("caching_store_page", [CACHED_PAGE(PAGE), PAGE_STATE(PAGE)], *args)
    monkeypatch.setattr("plaza.caching.page_store.random.random", lambda: 0.9)  # -ln(0.1) is 2.3: 23 s before the end
    clock.advance(seconds=276)
    assert (await get(pages, render)).cache_status == "hit; ttl=24"
    await pages.drain()
    assert render.count == 1
    clock.advance(seconds=2)
    early = await asyncio.gather(*(get(pages, render) for _ in range(50)))
    assert {one.cache_status for one in early} == {"hit; ttl=22"}, "the reader that renews it does not wait either"
    await pages.drain()
    assert render.count == 2
    assert (await get(pages, render)).cache_status == "hit; ttl=300"


async def test_a_page_with_a_cookie_or_a_private_one_is_not_stored_and_delays_no_reader(
    pages: PageCache, render: Renderer, redis_client: Any, clock: ManualClock
) -> None:
    for header in (("set-cookie", "a=b"), ("cache-control", "private"), ("cache-control", "max-age=3, no-store")):
        page = page_hash(header)
        render.headers = (header,)
        render.count, render.gate = 0, asyncio.Event()
        readers = [asyncio.create_task(get(pages, render, page)) for _ in range(10)]
        await eventually(lambda: render.count)
        await asyncio.sleep(0.05)  # the others come
        assert render.count == 1
        render.gate.set()
        served = await asyncio.gather(*readers)
        assert len({one.page.body for one in served}) == 10, "each got a page of their own"
        assert {one.etag for one in served} == {""}
        assert await redis_client.exists(CACHED_PAGE(page)) == 0
        clock.advance(seconds=6)


async def test_after_a_failed_computation_the_next_reader_tries(pages: PageCache, render: Renderer) -> None:
    render.fails = True
    with pytest.raises(RuntimeError):
        await get(pages, render)
    render.fails = False
    assert (await get(pages, render)).page.body == b"<p>2</p>"


async def test_when_a_renewal_fails_the_previous_page_stays(
    pages: PageCache, render: Renderer, clock: ManualClock, redis_client: Any
) -> None:
    await get(pages, render)
    await expire(pages, clock, redis_client)
    render.fails = True
    for _ in range(2):
        assert (await get(pages, render)).page.body == b"<p>1</p>"
        await pages.drain()
    assert render.count == 3


async def test_if_the_computing_process_dies_another_computes_after_the_lease(
    functions: Functions, render: Renderer, clock: ManualClock
) -> None:
    keys = [CACHED_PAGE(PAGE), PAGE_STATE(PAGE)]
    pages = PageCache(functions, PageCacheOptions(lease_seconds=5), clock)
    await functions.run("caching_claim_page", keys, "the dead", clock.now_ms(), 5000, "0")
    reader = asyncio.create_task(get(pages, render))
    await asyncio.sleep(0.1)
    assert render.count == 0
    clock.advance(seconds=6)
    assert (await reader).page.body == b"<p>1</p>"
    late = await functions.run(
        "caching_store_page", keys, PAGE, "the dead", b"late", "[]", clock.now_ms(), 1, 300_000, 300_000
    )
    assert late == 0
    assert (await get(pages, render)).page.body == b"<p>1</p>"


async def test_after_the_clock_was_set_back_a_lease_from_before_delays_no_page(
    functions: Functions, render: Renderer, clock: ManualClock
) -> None:
    keys = [CACHED_PAGE(PAGE), PAGE_STATE(PAGE)]

    async def claim(request: str) -> str:
        return str(await functions.run("caching_claim_page", keys, request, clock.now_ms(), 5000, "0"))

    assert (await claim("the dead"), await claim("another")) == ("yours", "busy")
    clock.advance(seconds=-3600)
    assert (await claim("the next"), await claim("another")) == ("yours", "busy")
    clock.advance(seconds=6)
    assert (await get(PageCache(functions, clock=clock), render)).page.body == b"<p>1</p>"


async def test_purging_a_tag_drops_every_page_with_it_and_no_other(
    pages: PageCache, render: Renderer, clock: ManualClock
) -> None:
    render.tags = ("item-7", "sale")
    await get(pages, render, page_hash(["1"]))
    render.tags = ("item-8", "sale")
    await get(pages, render, page_hash(["2"]))
    assert await pages.purge("item-7") == 1
    assert (await get(pages, render, page_hash(["2"]))).page.body == b"<p>2</p>"
    clock.advance(seconds=2)
    assert (await get(pages, render, page_hash(["1"]))).page.body == b"<p>3</p>"
    assert await pages.purge("item-7") == 0, "it was not tagged so this time"


async def test_a_tag_lives_as_long_as_its_pages_may_be_served(
    functions: Functions, render: Renderer, clock: ManualClock, redis_client: Any
) -> None:
    day = 86_400
    lasting = PageCache(functions, PageCacheOptions(fresh_seconds=day, old_seconds=day, beta=0), clock)
    render.tags = ("item-7",)
    await get(lasting, render, page_hash(["1"]))
    assert await redis_client.ttl(PAGE_TAG("item-7")) >= await redis_client.ttl(PAGE_STATE(page_hash(["1"])))
    clock.advance(seconds=day * 1.5)
    await get(lasting, render, page_hash(["2"]))  # when others are tagged, those that are only old stay known
    assert await lasting.purge("item-7") == 2


async def test_a_page_purged_during_its_computation_is_not_stored(
    pages: PageCache, render: Renderer, clock: ManualClock
) -> None:
    render.tags, render.gate = ("item-7",), asyncio.Event()
    reader = asyncio.create_task(get(pages, render))
    await eventually(lambda: render.count)
    clock.advance(seconds=0.1)
    await pages.purge("item-7")  # the page has no tag yet
    clock.advance(seconds=0.1)
    render.gate.set()
    assert (await reader).page.body == b"<p>1</p>"
    clock.advance(seconds=2)
    assert (await get(pages, render)).page.body == b"<p>2</p>"
    assert (await get(pages, render)).page.body == b"<p>2</p>"


@pytest.mark.parametrize("tags", [("item-7",), ()])
async def test_a_purge_during_a_renewal_drops_both_versions(
    pages: PageCache, render: Renderer, clock: ManualClock, redis_client: Any, tags: tuple[str, ...]
) -> None:
    render.tags = ("item-7",)
    await get(pages, render)
    await expire(pages, clock, redis_client)
    render.tags = tags
    render.gate = asyncio.Event()
    await get(pages, render)  # the old one; the new one is being computed
    clock.advance(seconds=0.1)
    await pages.purge("item-7")
    render.gate.set()
    await pages.drain()
    clock.advance(seconds=2)
    assert (await get(pages, render)).page.body == b"<p>3</p>"


async def test_only_pages_of_popular_items_are_stored(
    functions: Functions, render: Renderer, clock: ManualClock, redis_client: Any
) -> None:
    pages = PageCache(functions, PageCacheOptions(popular=3), clock)
    await redis_client.zadd(ITEM_VIEWS(), {"1": -9, "2": -8, "3": -7, "4": -6})
    for item, stored in (("3", True), ("4", False), ("5", False)):
        served = await get(pages, render, page_hash([item]), item)
        assert served.cache_status == ("fwd=uri-miss; stored" if stored else "fwd=bypass; detail=unpopular")
        assert await redis_client.exists(CACHED_PAGE(page_hash([item]))) == stored
        assert served.etag, "it can be compared all the same"


@pytest.mark.parametrize(
    ("given", "same"),
    [('"a"', True), ('W/"a"', True), ('"b", "a"', True), ("*", True), ('"b"', False), ("", False), (None, False)],
)
def test_if_none_match_follows_rfc_9110(given: str | None, same: bool) -> None:
    assert is_not_modified('"a"', given) is same


async def test_a_change_of_an_item_changes_its_page(shop: Shop, create_item: CreateItem) -> None:
    item = await create_item(name="<script>alert(1)</script>", qty=3)
    await shop.views.view(None, item.id)
    served = await shop.storefront.item_page(item.id, None)
    assert b"<script>" not in served.page.body
    assert b"&lt;script&gt;" in served.page.body
    assert b"Only 3 left" in served.page.body
    assert (await shop.storefront.item_page(item.id, await shop.guest_token())).cache_status.startswith("hit")
    shop.clock.advance(seconds=2)
    await shop.items.change(item.id, ItemChange(name="A tablet", qty=0))
    shop.clock.advance(seconds=2)
    changed = await shop.storefront.item_page(item.id, None)
    assert b"A tablet" in changed.page.body
    assert b"Sold out" in changed.page.body
    assert changed.etag != served.etag


async def test_the_page_of_a_stale_item_is_cached_briefly(shop: Shop, create_item: CreateItem) -> None:
    item = await create_item()
    note = b"may be outdated"
    assert note not in (await shop.storefront.item_page(item.id, None)).page.body
    await shop.rows.schedule(str(item.id), 5)
    await shop.rows.worker.copy_due()
    shop.clock.advance(seconds=10)
    assert note in (await shop.storefront.item_page(item.id, None)).page.body


async def test_a_signed_in_user_never_gets_a_cached_page(shop: Shop, create_item: CreateItem) -> None:
    item = await create_item()
    await shop.views.view(None, item.id)
    await shop.storefront.item_page(item.id, None)
    served = await shop.storefront.item_page(item.id, await shop.login("ana"))
    assert served.cache_status == "fwd=bypass; detail=personal"
    assert served.personal


async def test_a_locally_cached_page_costs_no_round_trip_and_is_dropped_when_it_changes(
    functions: Functions, pages: PageCache, render: Renderer, clock: ManualClock, place: Server | Cluster
) -> None:
    render.tags = ("item-7",)
    await get(pages, render)
    await get(pages, render)
    usage = RequestUsage()
    mark = REQUEST_USAGE.set(usage)
    served = await asyncio.gather(*(get(pages, render) for _ in range(20)))
    REQUEST_USAGE.reset(mark)
    assert usage.trips == 0
    assert {one.cache_status for one in served} == {"hit; ttl=300"}
    clock.advance(seconds=2)
    async with connect(place.url) as elsewhere:
        other = PageCache(elsewhere, PageCacheOptions(beta=0), clock)
        await other.purge("item-7")
        clock.advance(seconds=2)

        async def renewed() -> bool:
            return (await get(pages, render)).page.body == b"<p>2</p>"

        await eventually(renewed)
        await other.close()
    assert render.count == 2


async def test_a_purge_is_visible_at_once_in_the_same_process(
    pages: PageCache, render: Renderer, clock: ManualClock
) -> None:
    render.tags = ("item-7",)
    for n in range(1, 6):
        assert (await get(pages, render)).page.body == f"<p>{n}</p>".encode()
        assert (await get(pages, render)).page.body == f"<p>{n}</p>".encode()
        clock.advance(seconds=2)
        await pages.purge("item-7")
        clock.advance(seconds=2)


async def test_a_page_that_another_service_deletes_is_computed_again(
    pages: PageCache, render: Renderer, redis_client: Any
) -> None:
    assert (await get(pages, render)).page.body == b"<p>1</p>"
    await redis_client.delete(CACHED_PAGE(PAGE))

    async def is_computed_again() -> bool:
        return (await get(pages, render)).page.body == b"<p>2</p>"

    await eventually(is_computed_again)  # when the process has heard of the deletion
    assert await redis_client.get(CACHED_PAGE(PAGE)) == "<p>2</p>"


async def test_a_page_that_another_service_replaces_is_served_with_its_own_etag(
    pages: PageCache, render: Renderer, redis_client: Any
) -> None:
    first = await get(pages, render)
    await redis_client.set(CACHED_PAGE(PAGE), "<p>theirs</p>", keepttl=True)

    async def is_replaced() -> ServedPage | None:
        served = await get(pages, render)
        return served if served.page.body == b"<p>theirs</p>" else None

    assert (await eventually(is_replaced)).etag != first.etag
    assert render.count == 1
