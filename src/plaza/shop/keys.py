"""Every key of the shop, with what is always true of it.

A token owns its session, its cart and what it has viewed: on a cluster they share a slot, and whatever a request does
with its session is one atomic step there. A person's account owns the cart that all their sessions show. An item owns
the copy of its database row. `login:`, `recent:`, `delay:` and `schedule:` have no owner and follow from those facts.
"""

from __future__ import annotations

from typing import Final

from plaza.core.keyspace import Catalogue, Formula, HashField, Key, KeyAccess, Reference, RequiresKey
from plaza.core.tokens import USERNAME

UUID: Final = "[0-9A-F]{8}-[0-9A-F]{4}-4[0-9A-F]{3}-[89AB][0-9A-F]{3}-[0-9A-F]{12}"
ITEM: Final = "[A-Za-z0-9_.-]{1,64}"

QUANTITY: Final = "[1-9][0-9]{0,2}"

# The owner of what belongs to `viewed:` itself: on a cluster `shop:halved:{viewed:}` stands beside it.
POPULAR: Final = "viewed:"

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
SHOP_POPULAR = Key(
    "viewed:",
    "zset",
    "How often items are looked at: one down from 0 per view, halved and cut to 20,000 every five minutes.",
    contains="item id",
    score="minus the number of views, older ones counting less",
    element_regex="<item>",
    invariants=(Formula("no score is above 0"),),
    repair="popular <item>",
    read=KeyAccess.PUBLIC,
    document="viewed:",
)
SHOP_HALVED = Key(
    "shop:halved:<popular>",
    "string",
    "The five minutes in which `viewed:` was halved last, so that it is halved once in each.",
    contains="Unix seconds divided by 300",
    element_regex="<count>",
    owner="popular",
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
SHOP_INV = Key(
    "inv:<item>",
    "string",
    "A database row of an item, as JSON.",
    contains="`qty`, `name`, `description`, `price`, `id`, `version`",
    owner="item",
    element_regex=r"\{.*\}",
    lifetime="while it is scheduled; else a few seconds",
    ttl_seconds=60,
    ttl_optional=True,
    read=KeyAccess.PUBLIC,
    document="inv:273",
)
SHOP_ROW = Key(
    "shop:row:<item>",
    "hash",
    "What is known of the copy of a row.",
    owner="item",
    fields=(
        HashField("at", "when it was copied, Unix milliseconds", KeyAccess.ADMIN),
        HashField("until", "until when it is fresh, Unix milliseconds", KeyAccess.ADMIN),
        HashField("version", "the version of the row that was copied", KeyAccess.ADMIN),
        HashField("delay", "seconds between two copies, if it is scheduled", KeyAccess.ADMIN),
        HashField("due", "when it was scheduled, Unix milliseconds", KeyAccess.ADMIN),
        HashField("old", "the row, for when `inv:<item>` has expired", KeyAccess.ADMIN),
        HashField("none", "until when it is known that there is no such row, Unix milliseconds", KeyAccess.ADMIN),
        HashField("busy", "who is reading it from the database, and until when", KeyAccess.ADMIN),
        HashField("removed", "when it left the cache, Unix milliseconds", KeyAccess.ADMIN),
    ),
    invariants=(Formula("with a `delay`, the item is in `delay:` and `schedule:`"),),
    repair="row <item>",
    lifetime="while it is scheduled; else an hour",
    ttl_seconds=3600,
    ttl_optional=True,
    read=KeyAccess.ADMIN,
)
SHOP_DELAYS = Key(
    "delay:",
    "zset",
    "The rows that are copied regularly. Zero or less takes a row out of the cache.",
    contains="item id",
    score="seconds between two copies",
    element_regex="<item>",
    invariants=(Formula("each is in `schedule:` too"),),
    repair="row <item>",
    document="delay:",
    read=KeyAccess.ADMIN,
)
SHOP_SCHEDULE = Key(
    "schedule:",
    "zset",
    "When each row is copied next.",
    contains="item id",
    score="Unix seconds",
    element_regex="<item>",
    invariants=(Formula("each is in `delay:` too"),),
    repair="row <item>",
    document="schedule:",
    read=KeyAccess.ADMIN,
)
SHOP_PAGE = Key(
    "cache:<page>",
    "string",
    "A page, as it is sent.",
    contains="HTML",
    owner="page",
    lifetime="300 seconds",
    ttl_seconds=300,
    document="cache:236712hhl3213yu21_hash",
    read=KeyAccess.ADMIN,
)
SHOP_PAGE_STATE = Key(
    "shop:page:<page>",
    "hash",
    "What is known of a page, and the page itself for those who come while it is renewed.",
    owner="page",
    fields=(
        HashField("head", "its status, headers and tags, as JSON", KeyAccess.ADMIN),
        HashField("old", "the page", KeyAccess.ADMIN),
        HashField(
            "began", "when the computation under way, or the last one, began, Unix milliseconds", KeyAccess.ADMIN
        ),
        HashField("from", "when the computation of the stored page began", KeyAccess.ADMIN),
        HashField("made", "when it was stored", KeyAccess.ADMIN),
        HashField("until", "until when it is fresh", KeyAccess.ADMIN),
        HashField("gone", "until when it may be shown while it is renewed", KeyAccess.ADMIN),
        HashField("cost", "milliseconds it took to compute", KeyAccess.ADMIN),
        HashField("busy", "who computes it now", KeyAccess.ADMIN),
        HashField("lease", "until when that one has the right to", KeyAccess.ADMIN),
        HashField("void", "set if what is being computed was purged meanwhile", KeyAccess.ADMIN),
        HashField("pass", "until when it is known that this page is not for storing", KeyAccess.ADMIN),
    ),
    lifetime="ten minutes",
    ttl_seconds=86_400,
    read=KeyAccess.ADMIN,
)
SHOP_PAGE_TAG = Key(
    "shop:tag:<tag>",
    "zset",
    "The pages that show something, so that they go when it changes.",
    contains="hash of a page; `purged` for the last purge",
    score="until when the page may be shown, Unix milliseconds; of `purged`, when that was",
    element_regex="<page>|purged",
    owner="tag",
    lifetime="two hours after the last page",
    ttl_seconds=172_800,
    read=KeyAccess.ADMIN,
)

CATALOGUE = Catalogue.from_module(
    "shop",
    globals(),
    {
        "token": UUID,
        "username": USERNAME,
        "item": ITEM,
        "page": "[0-9a-f]{32}",
        "tag": ITEM,
        "popular": POPULAR,
    },
)


def of_session(token: str) -> list[str]:
    """What every verb of a session takes: session, cart, viewed."""
    return [SHOP_SESSION(token), SHOP_CART(token), SHOP_VIEWED(token)]


def of_account(username: str) -> list[str]:
    """What every verb of an account takes: account, cart, sessions."""
    return [SHOP_ACCOUNT(username), SHOP_ACCOUNT_CART(username), SHOP_ACCOUNT_SESSIONS(username)]


def of_row(item: str | int) -> list[str]:
    return [SHOP_INV(item), SHOP_ROW(item)]


def of_page(page: str) -> list[str]:
    return [SHOP_PAGE(page), SHOP_PAGE_STATE(page)]
