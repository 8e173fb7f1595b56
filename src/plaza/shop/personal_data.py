"""What the shop stores about a user: export, deletion and renaming."""

from __future__ import annotations

import secrets
from typing import Any, Final

import msgspec

from plaza.core.number_parsing import parse_int
from plaza.sessions.keys import USER_SESSION_TOKENS
from plaza.sessions.model import Visit
from plaza.sessions.service import Sessions
from plaza.shop import keys
from plaza.shop.keys import ACCOUNT_CART, account_keys
from plaza.shop.order_desk import OrderDesk
from plaza.shop.order_history import OrderHistory

# All keys with a username in their name.
PERSONAL_KEYS: Final = (USER_SESSION_TOKENS, keys.ACCOUNT, keys.ACCOUNT_CART)


class ShopPersonalData:
    """The carts, sessions and orders of a user."""

    def __init__(self, sessions: Sessions, orders: OrderHistory, desk: OrderDesk) -> None:
        self._sessions = sessions
        self._orders = orders
        self._desk = desk
        self._functions = sessions.store.functions

    async def export(self, username: str) -> dict[str, Any]:
        """Return everything the shop stores about a user. Tokens are left out: they are credentials."""
        cart = await self._functions.valkey.call("HGETALL", ACCOUNT_CART(username))
        sessions = await self._sessions.list_own(Visit("", username, 0, 0))
        return {
            "cart": {item: parse_int(qty, qty) for item, qty in cart.items()},  # also a quantity that is not a number
            "sessions": msgspec.to_builtins(sessions),
            "orders": msgspec.to_builtins(await self._desk.list_all(username)),
        }

    async def delete(self, username: str) -> None:
        """End a user's sessions, delete the cart, and remove the name from the orders. It can be repeated."""
        await self._functions.run("shop_delete_account", account_keys(username), username)
        await self._orders.change_buyer(username, None)

    async def rename(self, old: str, new: str) -> None:
        """Move the cart and the orders to a new name. All sessions end. It can be repeated."""
        run = self._functions.run
        while detached := await run("shop_detach_cart", account_keys(old), old, secrets.token_hex(16)):
            # A cart keeps its id during a checkout, so it is ordered once, under either name.
            merge_id, checkout_id, *lines = detached.split(" ")
            await run("shop_merge_cart", account_keys(new), new, merge_id, " ".join(lines), checkout_id.strip("-"))
            await run("shop_delete_detached_cart", account_keys(old)[:1], detached)
        await self._orders.change_buyer(old, new)
