"""What the shop holds about a person: all of it on request, and none of it when they leave."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from plaza.sessions.service import Sessions, Visit
from plaza.shop.keys import SHOP_ACCOUNT_CART, of_account
from plaza.shop.orders import Orders


class Shoppers:
    """People, as the shop knows them."""

    def __init__(self, sessions: Sessions, orders: Orders) -> None:
        self._sessions = sessions
        self._orders = orders
        self._valkey = sessions.functions.valkey

    async def export(self, username: str) -> dict[str, Any]:
        """Everything the shop holds about a person. Tokens are left out: they are keys, not data."""
        cart = await self._valkey.call("HGETALL", SHOP_ACCOUNT_CART(username))
        sessions = await self._sessions.own(Visit("", username, 0, 0))
        return {
            "cart": {item: int(qty) for item, qty in cart.items()},
            "sessions": msgspec.to_builtins(sessions),
            "orders": msgspec.to_builtins(await self._orders.of_person(username)),
        }

    async def delete(self, username: str) -> None:
        """End a person's sessions, drop their cart, and take their name off their orders. May be repeated."""
        await self._sessions.end_all(username)
        await self._orders.hand_over(username, None)

    async def rename(self, old: str, new: str) -> None:
        """Hand cart and orders over to a new name. Sessions end, as all tokens of the person do. May be repeated."""
        call = self._sessions.functions.run
        while parcel := await call("shop_pack", of_account(old), old, secrets.token_hex(16)):
            # A cart that is being checked out keeps its id: whichever name it is ordered under, it is ordered once.
            name, id, *lines = parcel.split(" ")
            await call("shop_absorb", of_account(new), new, name, " ".join(lines), id.strip("-"))
            await call("shop_unpack", of_account(old)[:1], parcel)
        await self._orders.hand_over(old, new)
