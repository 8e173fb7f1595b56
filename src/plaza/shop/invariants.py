"""The invariants of the shop's keys that `keys.py` cannot express, with those of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaza.core.invariants import Command, Entry, Invariant, Invariants
from plaza.sessions import invariants as sessions
from plaza.sessions.keys import SESSION_STATE
from plaza.shop.keys import ACCOUNT, ACCOUNT_CART, CART

REPAIRS = {**sessions.REPAIRS, "account": ACCOUNT}


def _read_carts(entry: Entry) -> Sequence[Command]:
    token, user = entry.parts[0], entry.value.get("user", "")
    if not user or "moved" in entry.value:
        return ()
    return (("HGETALL", CART(token)), ("HGETALL", ACCOUNT_CART(user)))


def _check_cart_copy(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if not replies or replies[0] == replies[1]:
        return None
    return f"has another cart than the account of {entry.value['user']}"


INVARIANTS = Invariants(
    [
        *sessions.INVARIANTS,
        Invariant("cart", SESSION_STATE, _read_carts, _check_cart_copy, per_key=True),
    ],
    REPAIRS,
)
