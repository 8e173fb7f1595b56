"""The keys of the shop: carts and viewed items of sessions, and the carts of accounts.

A token owns its session, its cart and the items it has viewed: on a cluster they share a slot, so a request changes
them in one atomic step. An account owns the cart that all sessions of its user show.
"""

from __future__ import annotations

from typing import Final

from plaza.caching.keys import ITEM
from plaza.core.keyspace import Catalogue, Formula, HashField, Key, KeyAccess
from plaza.core.tokens import USERNAME
from plaza.sessions.keys import LOGIN_TOKENS, RECENT_TOKENS, SESSION_STATE, TOKEN, USER_SESSION_TOKENS

# Plaza writes 1 to 999; other services may write more.
QUANTITY: Final = "[1-9][0-9]{0,8}"

VIEWED_ITEMS = Key(
    "viewed:<token>",
    "zset",
    "The items that a session has viewed last. Plaza keeps the 25 newest.",
    contains="item id",
    score="when, Unix seconds",
    owner="token",
    element_regex="<item>",
    lifetime="as long as the session; a day after a login replaced it",
    ttl_seconds=86_400,
    ttl_optional=True,
    document="viewed:EB9382CA-0376-4558-B271-EA230BDB7EAF",
    read=KeyAccess.ADMIN,
)
CART = Key(
    "cart:<token>",
    "hash",
    "The cart of a session. For a signed-in session it is a copy of the account's cart, which follows changes here.",
    contains="item id → quantity",
    owner="token",
    element_regex="<item>",
    value_regex=QUANTITY,
    invariants=(Formula("for a signed-in session, the account's cart"),),
    repair="session <token>",
    lifetime="as long as the session",
    document="cart:EB9382CA-0376-4558-B271-EA230BDB7EAF",
    read=KeyAccess.ADMIN,
)
ACCOUNT = Key(
    "shop:account:<username>",
    "hash",
    "The state of a user's cart.",
    owner="username",
    fields=(
        HashField("cart", "id of the cart while its checkout is not finished", KeyAccess.NONE),
        HashField("last", "id of the cart that was ordered last, and when", KeyAccess.NONE),
        HashField(
            "absorbed", "the last merges: tokens of merged carts, and ids of carts ordered before", KeyAccess.NONE
        ),
        HashField("parcel", "the cart, while it is moved to the user's new name", KeyAccess.NONE),
    ),
)
ACCOUNT_CART = Key(
    "shop:account:<username>:cart",
    "hash",
    "A user's cart. All sessions of the user show it, and it stays for the next login.",
    contains="item id → quantity",
    owner="username",
    element_regex="<item>",
    value_regex=QUANTITY,
    repair="account <username>",
    read=KeyAccess.SELF,
)

# The keys of sessions are part of this catalogue: their commands run in the shop's library.
_SESSION_KEYS = (LOGIN_TOKENS, RECENT_TOKENS, SESSION_STATE, USER_SESSION_TOKENS)

CATALOGUE = Catalogue.from_module("shop", globals(), {"token": TOKEN, "username": USERNAME, "item": ITEM})


def account_keys(username: str) -> list[str]:
    """The keys of a user's account: account, cart, sessions."""
    return [ACCOUNT(username), ACCOUNT_CART(username), USER_SESSION_TOKENS(username)]
