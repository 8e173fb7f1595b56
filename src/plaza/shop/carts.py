"""Carts: a guest's belongs to the session, a user's to the account, and every session of the user shows it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from plaza.core.errors import NotFound
from plaza.sessions.keys import SESSION_STATE
from plaza.sessions.model import SessionClient, SessionReplaced, Visit
from plaza.sessions.session_finder import SessionCall, SessionFinder
from plaza.shop.items import Items
from plaza.shop.keys import account_keys
from plaza.shop.model import MAX_LINES, Cart, CartFull, Item, Line, cart_lines, hundredths, price_text


class Carts:
    """Carts at current prices."""

    def __init__(self, sessions: SessionFinder, items: Items) -> None:
        self._sessions = sessions
        self._functions = sessions.store.functions
        self._items = items

    async def read(self, cookie: str | SessionClient | None) -> tuple[Visit, Cart]:
        """Return the cart. One round trip for the session and the cart, one for the rows of its items."""
        visit, lines = await self._sessions.visit(cookie, self._read_lines)
        if visit.was_guest:
            lines = await self._lines_before_login(visit.token)
        return visit, await self._priced(lines)

    async def put(self, cookie: str | SessionClient | None, id: int, qty: int) -> tuple[Visit, Cart]:
        """Set the quantity of an item; 0 removes it. Two round trips; on a cluster four in sequence."""
        if qty and not (await self._items.read(id)).price:  # 404 for an unknown item
            raise NotFound("This item is not sold here.", id=id)
        visit, reply = await self._put_line(cookie, id, qty)
        if not reply:
            raise SessionReplaced("A login has replaced this session. Repeat the request with the new cookie.")
        result, *lines = reply
        if result == "full":
            raise CartFull(f"A cart has at most {MAX_LINES} lines. Remove one first.")
        return visit, await self._priced(lines)

    async def _read_lines(self, call: SessionCall) -> list[Any]:
        reply: list[Any] = await self._functions.run_deferred("shop_cart", call.keys, *call.args)
        return reply

    async def _lines_before_login(self, token: str) -> list[str]:
        """Return the lines of a guest's cart when a login replaced the token: item, quantity, …"""
        parcel: str | None = await self._functions.valkey.call("HGET", SESSION_STATE(token), "parcel")
        return (parcel or "").split()

    async def _put_line(self, cookie: str | SessionClient | None, id: int, qty: int) -> tuple[Visit, list[str]]:
        """On a cluster, where session and account are on different nodes, an account's cart is a second step."""
        visit, reply = await self._sessions.visit(cookie, partial(self._put_session_line, id, qty))
        if not reply or reply[0] != "account":
            return visit, reply
        assert visit.user is not None
        if reply[1] == "1":  # the account must have what another service has changed before
            await self._sessions.store.settle(visit.token)
        reply = await self._put_account_line(visit.user, id, qty)
        if not reply:  # the session is not among the user's yet: another service has just signed them in
            await self._sessions.store.settle(visit.token)
            reply = await self._put_account_line(visit.user, id, qty)
        return visit, reply

    async def _put_session_line(self, id: int, qty: int, call: SessionCall) -> list[Any]:
        reply: list[Any] = await self._functions.run_deferred("shop_put_line", call.keys, *call.args, id, qty)
        return reply

    async def _put_account_line(self, username: str, id: int, qty: int) -> list[str]:
        keys = account_keys(username)
        reply: list[str] = await self._functions.run("shop_put_account_line", keys, username, id, qty)
        return reply

    async def _priced(self, lines: Sequence[str]) -> Cart:
        quantities = cart_lines(lines)
        ids = sorted(quantities)
        items = await self._items.read_many([str(id) for id in ids]) if ids else []
        missing = [id for id, item in zip(ids, items, strict=True) if item is None]
        names = await self._items.names(missing)
        priced = [_line(id, item, quantities[id], names.get(id, "")) for id, item in zip(ids, items, strict=True)]
        return Cart(priced, price_text(sum(hundredths(line.total) for line in priced)))


def _line(id: int, item: Item | None, qty: int, withdrawn_name: str) -> Line:
    if item is None or not item.price:
        name = withdrawn_name if item is None else item.name
        return Line(id, name, "0.00", qty, "0.00", available=False, withdrawn=True)
    total = price_text(hundredths(item.price) * qty)
    return Line(id, item.name, item.price, qty, total, available=item.qty >= qty, media=item.media)
