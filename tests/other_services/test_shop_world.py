"""A web shop that another service wrote by the document alone."""

from __future__ import annotations

import time
from typing import Any

import pytest

from plaza.sessions.service import Sessions
from plaza.shop.items import Items
from tests.other_services.running import PlazaBesideOthers, assert_kept, assert_unchanged
from tests.other_services.shop_service import ShopService

pytestmark = pytest.mark.usefixtures("audit_at_full_speed")

USER1, USER2 = "EB9382CA-0376-4558-B271-EA230BDB7EAF", "E1F27C8C-527C-42CC-BCD0-1F8A433F7A44"
GUEST, OLD = "4C1A2A2B-6C4F-4E53-9A5B-2C2B1F0A7D11", "5D2B3B3C-7D50-4F64-8B6C-3D3C2A1B8E22"
PAGE = "236712hhl3213yu21_hash"


class ShopWorld:
    """Two users, a guest and a token of 2009; two items of Plaza's database and some that only the other shop has."""

    def __init__(self, service: ShopService) -> None:
        self.service = service
        self.items: list[int] = []
        self.now = time.time()

    async def write(self, beside: PlazaBesideOthers) -> None:
        for n in range(2):
            new = {"name": f"Tablet {n}", "description": "A tablet.", "price": "19.90", "qty": 600}
            made = await beside.http.post("/shop/items", json=new, headers=beside.api_key)
            self.items.append(made.json()["id"])
        first, second = self.items
        service, client, owned = self.service, self.service.client, self.service.owned
        await service.update_token(USER1, "user1", at=self.now - 60)
        await service.update_token(USER2, "user2", at=self.now - 120)
        await service.update_token(OLD, "user3", at=1234567890.0)
        viewed = {"item1": self.now - 30, str(first): self.now - 20, str(second): self.now - 10, "273": self.now - 5}
        await client.zadd(f"viewed:{owned(USER1)}", viewed)
        await client.zadd("viewed:", {"item1": -23.0, "item2": -1.0, str(second): -7, str(first): -5, "273": -3})
        for item, count in (("item1", 10), ("item2", 3), (first, 2), ("273", 1)):
            await service.add_to_cart(USER1, item, count)
        await service.add_to_cart(GUEST, second, 4)
        await service.cache_row(273, qty=629, name="GTab 7inch", description="...")
        await service.schedule_row(273, 10.0, self.now + 3600)
        await service.schedule_row("237_row_id", 10.0, self.now + 3600)
        await service.schedule_row(first, 30.0, self.now + 3600)
        await service.cache_page(PAGE, "html-content")


@pytest.fixture
async def world(beside: PlazaBesideOthers) -> ShopWorld:
    world = ShopWorld(ShopService(beside))
    await world.write(beside)
    return world


async def get(beside: PlazaBesideOthers, path: str, token: str) -> Any:
    """Read a route with the cookie that another shop has set."""
    answer = await beside.http.get(path, headers={"cookie": f"plaza={token}"})
    assert answer.status_code == 200, answer.text
    assert "set-cookie" not in answer.headers, "the token is valid"
    return answer.json()


async def assert_shown(beside: PlazaBesideOthers, world: ShopWorld) -> None:
    first, second = world.items
    for token, user in ((USER1, "user1"), (USER2, "user2"), (GUEST, None)):
        sessions = (await get(beside, "/shop/sessions", token))["sessions"]
        assert [session["user"] for session in sessions if session["current"]] == [user]
    cart = await get(beside, "/shop/cart", USER1)
    assert [(line["id"], line["qty"], line["available"]) for line in cart["items"]] == [
        (first, 2, True),
        (273, 1, False),
    ]
    assert cart["total"] == "39.80"
    guest = await get(beside, "/shop/cart", GUEST)
    assert [(line["id"], line["qty"]) for line in guest["items"]] == [(second, 4)]
    viewed = await get(beside, "/shop/recently-viewed", USER1)
    assert [item["id"] for item in viewed["items"]] == [273, second, first]
    popular = await beside.get("/shop/items/popular")
    assert [item["id"] for item in popular["items"]] == [second, first, 273]
    cache = await beside.get("/shop/cache")
    assert {row["id"]: row["delay"] for row in cache["rows"]} == {first: 30.0, 273: 10.0}
    assert cache["scheduled"] == 3


@pytest.mark.parametrize("read_first", [True, False])
async def test_a_shop_of_another_service_is_shown_and_kept(
    beside: PlazaBesideOthers, world: ShopWorld, read_first: bool
) -> None:
    written = await beside.documented_keys()
    if read_first:
        await assert_shown(beside, world)
    before = await beside.documented_keys()
    assert before.pop("recent:").keys() >= written.pop("recent:").keys()  # some were seen just now
    assert_kept(before, written)
    report = await beside.repair()
    assert report.clean, report.left
    after = await beside.documented_keys()
    after.pop("recent:")
    assert_unchanged(after, before)
    assert (await beside.audit()).clean
    await assert_shown(beside, world)


async def test_an_item_that_only_another_service_has_is_shown_and_not_sold(
    beside: PlazaBesideOthers, world: ShopWorld
) -> None:
    key = f"inv:{beside.owned(273)}"
    written = await beside.client.get(key)
    for _ in range(2):
        item = await get(beside, "/shop/items/273", USER2)
        assert (item["id"], item["name"], item["description"], item["qty"]) == (273, "GTab 7inch", "...", 629)
        assert (item["price"], item["version"], item["stale"]) == ("", 0, True)
    assert await beside.client.get(key) == written
    page = await beside.http.get("/shop/pages/items/273")
    assert (page.status_code, "GTab 7inch" in page.text) == (200, True)
    await world.service.add_to_cart(USER2, 273, 1)
    ordered = await beside.http.post("/shop/checkout", headers={"cookie": f"plaza={USER2}"})
    assert (ordered.status_code, ordered.json()["code"]) == (409, "out_of_stock")
    # When it is due, Plaza's worker has nothing to copy; the other service's worker copies it.
    await beside.client.zadd("schedule:", {"273": 1.0})
    await beside.plaza.get(Items).rows.worker.copy_due()
    assert await beside.client.zscore("delay:", "273") == 10.0
    assert await beside.client.zscore("schedule:", "273") > world.now
    assert await beside.client.get(key) == written


async def test_the_cleanup_leaves_idle_tokens_of_another_service_to_its_own(
    beside: PlazaBesideOthers, world: ShopWorld
) -> None:
    await beside.plaza.get(Sessions).clean()
    assert await beside.client.hget("login:", OLD) == "user3"
    assert await beside.client.zscore("recent:", OLD) == 1234567890.0
    visit = await beside.http.get("/shop/cart", headers={"cookie": f"plaza={OLD}"})
    assert "set-cookie" in visit.headers, "it is not signed in at Plaza"
