"""Customers use two shops on the same keys at the same time, Plaza and another service, and nothing is lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from plaza.sessions.model import new_token
from tests.other_services.interleaving import Slots, interleave, is_ours
from tests.other_services.running import PlazaBesideOthers
from tests.other_services.shop_service import ShopService


class ShopTraffic:
    """Customers fill carts, view items, sign in and out, and order, through both shops."""

    def __init__(self, beside: PlazaBesideOthers) -> None:
        self.beside = beside
        self.other = ShopService(beside)
        self.slots = Slots()
        self.items: list[int] = []
        self.carts: dict[str, dict[int, int]] = {}
        self.signed_in: dict[str, str] = {}
        self.ended: set[str] = set()
        self.views: Counter[int] = Counter()
        self.sold: Counter[int] = Counter()

    async def start(self) -> None:
        # Popularity is not halved while views are counted.
        await self.beside.client.set(f"shop:halved:{self.beside.owned('viewed:')}", 10**9)
        for n in range(4):
            new = {"name": f"Item {n}", "description": "", "price": "1.00", "qty": 1_000_000}
            made = await self.beside.http.post("/shop/items", json=new, headers=self.beside.api_key)
            self.items.append(made.json()["id"])
        for n in range(6):
            await self._open(f"customer{n}" if n % 2 else "")

    @property
    def operations(self) -> list[Any]:
        return [self.fill, self.fill, self.fill, self.view, self.order, self.sign_in, self.sign_out]

    async def _send(self, method: str, path: str, token: str, body: Any = None) -> Any:
        answer = await self.beside.http.request(method, path, json=body, headers={"cookie": f"plaza={token}"})
        assert answer.status_code in (200, 201), f"{method} {path}: {answer.status_code} {answer.text}"
        assert "set-cookie" not in answer.headers, "the token is valid"
        return answer.json()

    async def _open(self, user: str) -> str:
        """Open a session of the other shop; a guest's begins with a cart."""
        token = new_token()
        if user:
            await self.other.update_token(token, user)
        else:
            await self.other.add_to_cart(token, self.items[0], 1)
        self.carts[token] = {} if user else {self.items[0]: 1}
        self.signed_in[token] = user
        return token

    async def fill(self, dice: random.Random) -> None:
        token, item, qty = dice.choice([*self.carts]), dice.choice(self.items), dice.randrange(5)
        async with self.slots.take(("cart", token), token) as is_open:
            if not is_open:
                return
            if is_ours(dice):
                await self._send("PUT", f"/shop/cart/items/{item}", token, {"qty": qty})
            else:
                await self.other.add_to_cart(token, item, qty)
            if qty:
                self.carts[token][item] = qty
            else:
                self.carts[token].pop(item, None)

    async def view(self, dice: random.Random) -> None:
        token, item = dice.choice([*self.carts]), dice.choice(self.items)
        async with self.slots.take(("cart", token), token) as is_open:
            if not is_open:
                return
            if is_ours(dice) or not self.signed_in[token]:
                await self._send("GET", f"/shop/items/{item}", token)
            else:
                await self.other.update_token(token, self.signed_in[token], str(item))
            self.views[item] += 1

    async def order(self, dice: random.Random) -> None:
        token = dice.choice([*self.carts])
        async with self.slots.take(("cart", token), token) as is_open:
            if not is_open or not self.carts[token]:
                return
            order = await self._send("POST", "/shop/checkout", token)
            assert {line["id"]: line["qty"] for line in order["items"]} == self.carts[token]
            self.sold.update(self.carts[token])
            self.carts[token] = {}

    async def sign_in(self, dice: random.Random) -> None:
        if len(self.carts) < 10:
            await self._open(f"customer{dice.randrange(10**9)}")

    async def sign_out(self, dice: random.Random) -> None:
        tokens = [token for token, user in self.signed_in.items() if user]
        if len(tokens) < 3:
            return
        token = dice.choice(tokens)
        await self.slots.close(token)
        if self.carts.pop(token, None) is None:
            return  # another task has just done it
        del self.signed_in[token]
        self.ended.add(token)
        if is_ours(dice):
            await self.beside.http.post("/shop/logout", headers={"cookie": f"plaza={token}"})
        else:
            await self.other.clean_session(token)
        shown = await self.beside.http.get("/shop/cart", headers={"cookie": f"plaza={token}"})
        assert "set-cookie" in shown.headers, "the session has ended"

    async def assert_nothing_lost(self) -> None:
        client = self.beside.client
        for token, lines in self.carts.items():
            shown = await self._send("GET", "/shop/cart", token)
            assert {line["id"]: line["qty"] for line in shown["items"]} == lines
        await self.beside.plaza.core.functions.outbox.drain()
        for token, lines in self.carts.items():
            expected = {str(item): str(qty) for item, qty in lines.items()}
            assert await self.other.read_cart(token) == expected
            assert await client.hget("login:", token) == (self.signed_in[token] or None)
        assert await client.hgetall("login:") == {token: user for token, user in self.signed_in.items() if user}
        assert set(self.carts) <= (recent := set(await client.zrange("recent:", 0, -1)))
        assert self.ended.isdisjoint(recent)
        assert {
            int(item): -score for item, score in await client.zrange("viewed:", 0, -1, withscores=True)
        } == self.views
        for item in self.items:
            shown = await self.beside.get(f"/shop/items/{item}")
            self.views[item] += 1
            assert shown["qty"] == 1_000_000 - self.sold[item]


async def test_shops_interleave_without_a_loss(
    beside: PlazaBesideOthers, audits_without_pauses: Callable[[], None]
) -> None:
    traffic = ShopTraffic(beside)
    await traffic.start()
    await interleave(beside, traffic.operations)
    await traffic.assert_nothing_lost()
    audits_without_pauses()
    report = await beside.repair()
    assert report.clean, report.left
    await traffic.assert_nothing_lost()
    assert (await beside.audit()).clean
