"""Every key of the shop, with what is always true of it.

A token owns its session, its cart and what it has viewed: on a cluster they share a slot, and whatever a request does
with its session is one atomic step there. A person's account owns the cart that all their sessions show. An item owns
the copy of its database row. `login:`, `recent:`, `delay:` and `schedule:` have no owner and follow from those facts.
"""

from __future__ import annotations

from typing import Final

from plaza.caching.keys import ITEM
from plaza.core.keyspace import (
    Catalogue,
    Formula,
    HashField,
    Key,
    KeyAccess,
    Reference,
    RequiresKey,
)
from plaza.core.tokens import USERNAME

UUID: Final = "[0-9A-F]{8}-[0-9A-F]{4}-4[0-9A-F]{3}-[89AB][0-9A-F]{3}-[0-9A-F]{12}"
QUANTITY: Final = "[1-9][0-9]{0,2}"

SHOP_LOGINS = Key(
    "login:",
    "hash",
    "Who is signed in: the person behind each token.",
    contains="token → username",
    element_regex="<token>",
    value_regex="<username>",
    invariants=(
        Reference("shop:session:<token>"),
        Formula("a token is here exactly while its session is a signed-in one"),
    ),
    repair="session <token>",
    document="login:",
)
SHOP_RECENT = Key(
    "recent:",
    "zset",
    "Every session, by when it was last seen.",
    contains="token",
    score="Unix seconds",
    element_regex="<token>",
    invariants=(Reference("shop:session:<token>"), Formula("a token is here exactly while it has a session")),
    repair="session <token>",
    document="recent:",
)
SHOP_VIEWED = Key(
    "viewed:<token>",
    "zset",
    "The newest 25 items that a session has looked at.",
    contains="item id",
    score="when, Unix seconds",
    owner="token",
    element_regex="<item>",
    invariants=(RequiresKey("shop:session:<token>"), Formula("at most 25")),
    repair="session <token>",
    lifetime="as long as the session; a day if that was replaced at login",
    ttl_seconds=86_400,
    ttl_optional=True,
    document="viewed:EB9382CA-0376-4558-B271-EA230BDB7EAF",
    read=KeyAccess.ADMIN,
)
SHOP_CART = Key(
    "cart:<token>",
    "hash",
    "What a session wants to buy. Of a signed-in session it is the account's cart.",
    contains="item id → quantity, 1 to 999",
    owner="token",
    element_regex="<item>",
    value_regex=QUANTITY,
    invariants=(RequiresKey("shop:session:<token>"), Formula("of a signed-in session, the account's cart")),
    repair="session <token>",
    lifetime="as long as the session",
    document="cart:EB9382CA-0376-4558-B271-EA230BDB7EAF",
    read=KeyAccess.ADMIN,
)
SHOP_SESSION = Key(
    "shop:session:<token>",
    "hash",
    "A session. Without it a token is worth nothing.",
    owner="token",
    fields=(
        HashField(
            "user",
            "the person who is signed in, empty for a guest",
            KeyAccess.NONE,
            value_regex="<username>|",
            required=True,
        ),
        HashField("since", "when it began, Unix seconds", KeyAccess.NONE, value_regex="<seconds>", required=True),
        HashField("seen", "when it was last seen", KeyAccess.NONE, value_regex="<seconds>", required=True),
        HashField("cart", "id of a guest's cart, once it is being checked out", KeyAccess.NONE),
        HashField("last", "id of the cart that was checked out last, and when", KeyAccess.NONE),
        HashField("moved", "until when requests with this token, replaced at login, are still served", KeyAccess.NONE),
        HashField("to", "the token that replaced it", KeyAccess.NONE),
        HashField("parcel", "what was in its cart then, on its way to the account's", KeyAccess.NONE),
        HashField("for", "the account that the parcel is for", KeyAccess.NONE),
        HashField("ordered", "what of the parcel had become an order already", KeyAccess.NONE),
    ),
    invariants=(Formula("`recent:`, `login:` and the person's sessions say so"),),
    repair="session <token>",
    lifetime="until it ends; a day if it was replaced",
    ttl_seconds=86_400,
    ttl_optional=True,
)
SHOP_ACCOUNT = Key(
    "shop:account:<username>",
    "hash",
    "What the shop keeps of a person's cart beside its lines.",
    owner="username",
    fields=(
        HashField("cart", "id of the cart, once it is being checked out", KeyAccess.NONE),
        HashField("last", "id of the cart that was checked out last, and when", KeyAccess.NONE),
        HashField(
            "absorbed", "the last tokens whose carts joined this one, and ids of carts ordered before", KeyAccess.NONE
        ),
        HashField("parcel", "what was in the cart, on its way to the person's new name", KeyAccess.NONE),
    ),
)
SHOP_ACCOUNT_CART = Key(
    "shop:account:<username>:cart",
    "hash",
    "A person's cart, which all their sessions show and which waits for the next login.",
    contains="item id → quantity, 1 to 999",
    owner="username",
    element_regex="<item>",
    value_regex=QUANTITY,
    repair="person <username>",
    read=KeyAccess.SELF,
)
SHOP_ACCOUNT_SESSIONS = Key(
    "shop:account:<username>:sessions",
    "zset",
    "A person's sessions.",
    contains="token",
    score="when it began, Unix seconds",
    owner="username",
    element_regex="<token>",
    invariants=(Formula("that session is this person's"),),
    repair="belongs <token> <username>",
)

CATALOGUE = Catalogue.from_module(
    "shop",
    globals(),
    {
        "token": UUID,
        "username": USERNAME,
        "item": ITEM,
    },
)


def of_session(token: str) -> list[str]:
    """What every verb of a session takes: session, cart, viewed."""
    return [SHOP_SESSION(token), SHOP_CART(token), SHOP_VIEWED(token)]


def of_account(username: str) -> list[str]:
    """What every verb of an account takes: account, cart, sessions."""
    return [SHOP_ACCOUNT(username), SHOP_ACCOUNT_CART(username), SHOP_ACCOUNT_SESSIONS(username)]
