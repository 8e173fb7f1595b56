"""What is always true of the shop's keys, beyond the lines in `keys.py`: what is said of a session follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaza.core.invariants import Command, Entry, Invariant, Invariants
from plaza.shop import keys as k

MENDS = {
    "session": k.SHOP_SESSION,
    "belongs": k.SHOP_SESSION,
    "person": k.SHOP_ACCOUNT,
}

MOST_VIEWED = 25


def _asks_known(entry: Entry) -> Sequence[Command]:
    token, user = entry.parts[0], entry.value.get("user", "")
    asked: list[Command] = [("ZSCORE", k.SHOP_RECENT(), token), ("HGET", k.SHOP_LOGINS(), token)]
    return [*asked, ("ZSCORE", k.SHOP_ACCOUNT_SESSIONS(user), token)] if user else asked


def _known(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    fields = entry.value
    there = "moved" not in fields
    user = fields["user"] if there else ""
    if replies[0] != (float(fields["seen"]) if there else None):
        return f"was seen at {fields['seen']}, and `{k.SHOP_RECENT()}` has {replies[0]}"
    if replies[1] != (user or None):
        return f"is of {user or 'nobody'}, and `{k.SHOP_LOGINS()}` has {replies[1]}"
    if len(replies) > 2 and (replies[2] is not None) != there:
        return f"is of {fields['user']}, whose sessions do not say so"
    return None


def _asks_cart(entry: Entry) -> Sequence[Command]:
    token, user = entry.parts[0], entry.value.get("user", "")
    if not user or "moved" in entry.value:
        return ()
    return (("HGETALL", k.SHOP_CART(token)), ("HGETALL", k.SHOP_ACCOUNT_CART(user)))


def _cart(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if not replies or replies[0] == replies[1]:
        return None
    return f"shows another cart than the account of {entry.value['user']}"


def _asks_session(entry: Entry) -> Sequence[Command]:
    return (("HMGET", k.SHOP_SESSION(entry.ids[0]), "user", "seen", "moved"),)


def _login(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    user, _, moved = replies[0]
    if user == entry.value and moved is None:
        return None
    return f"has {entry.value} behind {entry.member}, whose session says {user or 'nobody'}"


def _recent(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    _, seen, moved = replies[0]
    fits = seen is not None and moved is None and float(seen) == entry.value
    return None if fits else f"has {entry.member} at {entry.value}, and its session was seen at {seen}"


def _own(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    user, _, moved = replies[0]
    fits = user == entry.parts[0] and moved is None
    return None if fits else f"has {entry.member}, which is not a session of {entry.parts[0]}"


def _asks_viewed(entry: Entry) -> Sequence[Command]:
    return (("ZCARD", entry.name),)


def _viewed(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return None if replies[0] <= MOST_VIEWED else f"has {replies[0]} items, more than {MOST_VIEWED}"


INVARIANTS = Invariants(
    [
        Invariant("session", k.SHOP_SESSION, _asks_known, _known, per_key=True),
        Invariant("cart", k.SHOP_SESSION, _asks_cart, _cart, per_key=True),
        Invariant("session", k.SHOP_LOGINS, _asks_session, _login),
        Invariant("session", k.SHOP_RECENT, _asks_session, _recent),
        Invariant("session", k.SHOP_ACCOUNT_SESSIONS, _asks_session, _own),
        Invariant("size", k.SHOP_VIEWED, _asks_viewed, _viewed, per_key=True),
        Invariant("size", k.SHOP_VIEWED, _asks_viewed, _viewed, per_key=True),
    ],
    MENDS,
)
