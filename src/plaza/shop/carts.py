"""Carts: a guest's belongs to the session, a person's to the account, and every session of theirs shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from plaza.sessions.service import Sessions, Visit, is_token
from plaza.shop.items import Items
from plaza.shop.keys import of_account
from plaza.shop.model import MOST_LINES, Cart, CartFull, Item, Line, SessionMoved, hundredths, lines_of, price_text


class Carts:
    """What people have in mind to buy."""

    def __init__(self, sessions: Sessions, items: Items) -> None:
        self._sessions = sessions
        self._functions = sessions.functions
        self._items = items

    async def read(self, cookie: str | None) -> tuple[Visit, Cart]:
        """The cart at today's prices. One round trip for the session and the cart, one for the rows in it."""
        visit, flat = await self._sessions.visit(cookie, "shop_cart")
        if visit.was_guest:
            flat = await self._sessions.cart_before(visit.token)
        return visit, await self._priced(flat)

    async def put(self, cookie: str | None, id: int, qty: int) -> tuple[Visit, Cart]:
        """Set the quantity of an item in the cart; 0 removes it. Two round trips; on a cluster four in sequence."""
        if qty:
            await self._items.read(id)  # 404 for an unknown item
        visit, reply = await self._put_line(cookie, id, qty)
        if not reply:
            raise SessionMoved("A login has replaced this session. Repeat the request with the new cookie.")
        result, *flat = reply
        if result == "full":
            raise CartFull(f"A cart has at most {MOST_LINES} lines. Remove one first.")
        if visit.was_guest:
            flat = [*await self._sessions.cart_before(visit.token), str(id), str(qty)]
        return visit, await self._priced(flat)

    async def _put_line(self, cookie: str | None, id: int, qty: int) -> tuple[Visit, list[str]]:
        """On a cluster, where session and account are on different nodes, an account's cart is a second step."""
        if self._functions.valkey.clustered and cookie is not None and is_token(cookie):
            user = await self._sessions.peek(cookie)
            if user is not None:
                (visit, _), reply = await asyncio.gather(self._sessions.visit(cookie), self._put_account(user, id, qty))
                return visit, reply
        visit, reply = await self._sessions.visit(cookie, "shop_put", id, qty)
        if reply and reply[0] == "account":  # the user has just logged in
            username = visit.user or visit.heir
            assert username is not None
            reply = await self._put_account(username, id, qty)
        return visit, reply

    async def _put_account(self, username: str, id: int, qty: int) -> list[str]:
        reply: list[str] = await self._functions.run("shop_put_account", of_account(username), username, id, qty)
        return reply

    async def _priced(self, flat: Sequence[str]) -> Cart:
        wanted = lines_of(flat)
        ids = sorted(wanted)
        items = await self._items.read_many([str(id) for id in ids]) if ids else []
        lines = [_line(id, item, wanted[id]) for id, item in zip(ids, items, strict=True)]
        return Cart(lines, price_text(sum(hundredths(line.total) for line in lines)))


def _line(id: int, item: Item | None, qty: int) -> Line:
    if item is None:
        return Line(id, "", "0.00", qty, "0.00", available=False)
    total = price_text(hundredths(item.price) * qty)
    return Line(id, item.name, item.price, qty, total, available=item.qty >= qty)
