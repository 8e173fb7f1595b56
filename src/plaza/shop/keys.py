"""Every key of the shop, with what is always true of it.

A token owns its session, its cart and what it has viewed: on a cluster they share a slot, and whatever a request does
with its session is one atomic step there. A person's account owns the cart that all their sessions show. An item owns
the copy of its database row. `login:`, `recent:`, `delay:` and `schedule:` have no owner and follow from those facts.
"""

from __future__ import annotations

from typing import Final

from plaza.core.keyspace import Access, Belongs, Catalogue, Field, Formula, Key, Refers
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
    of="token → username",
    holds="<token>",
    value="<username>",
    same=(Refers("shop:session:<token>"), Formula("a token is here exactly while its session is a signed-in one")),
    repair="session <token>",
    document="login:",
)
SHOP_RECENT = Key(
    "recent:",
    "zset",
    "Every session, by when it was last seen.",
    of="token",
    score="Unix seconds",
    holds="<token>",
    same=(Refers("shop:session:<token>"), Formula("a token is here exactly while it has a session")),
    repair="session <token>",
    document="recent:",
)
SHOP_VIEWED = Key(
    "viewed:<token>",
    "zset",
    "The newest 25 items that a session has looked at.",
    of="item id",
    score="when, Unix seconds",
    owner="token",
    holds="<item>",
    same=(Belongs("shop:session:<token>"), Formula("at most 25")),
    repair="session <token>",
    lifetime="as long as the session; a day if that was replaced at login",
    ttl_seconds=86_400,
    may_stay=True,
    document="viewed:EB9382CA-0376-4558-B271-EA230BDB7EAF",
    read=Access.ADMIN,
)
SHOP_POPULAR = Key(
    "viewed:",
    "zset",
    "How often items are looked at: one down from 0 per view, halved and cut to 20,000 every five minutes.",
    of="item id",
    score="minus the number of views, older ones counting less",
    holds="<item>",
    same=(Formula("no score is above 0"),),
    repair="popular <item>",
    read=Access.PUBLIC,
    document="viewed:",
)
SHOP_HALVED = Key(
    "shop:halved:<popular>",
    "string",
    "The five minutes in which `viewed:` was halved last, so that it is halved once in each.",
    of="Unix seconds divided by 300",
    holds="<count>",
    owner="popular",
    read=Access.ADMIN,
)
SHOP_CART = Key(
    "cart:<token>",
    "hash",
    "What a session wants to buy. Of a signed-in session it is the account's cart.",
    of="item id → quantity, 1 to 999",
    owner="token",
    holds="<item>",
    value=QUANTITY,
    same=(Belongs("shop:session:<token>"), Formula("of a signed-in session, the account's cart")),
    repair="session <token>",
    lifetime="as long as the session",
    document="cart:EB9382CA-0376-4558-B271-EA230BDB7EAF",
    read=Access.ADMIN,
)
SHOP_SESSION = Key(
    "shop:session:<token>",
    "hash",
    "A session. Without it a token is worth nothing.",
    owner="token",
    fields=(
        Field(
            "user", "the person who is signed in, empty for a guest", Access.NOBODY, shape="<username>|", needed=True
        ),
        Field("since", "when it began, Unix seconds", Access.NOBODY, shape="<seconds>", needed=True),
        Field("seen", "when it was last seen", Access.NOBODY, shape="<seconds>", needed=True),
        Field("cart", "id of a guest's cart, once it is being checked out", Access.NOBODY),
        Field("last", "id of the cart that was checked out last, and when", Access.NOBODY),
        Field("moved", "until when requests with this token, replaced at login, are still served", Access.NOBODY),
        Field("to", "the token that replaced it", Access.NOBODY),
        Field("parcel", "what was in its cart then, on its way to the account's", Access.NOBODY),
        Field("for", "the account that the parcel is for", Access.NOBODY),
        Field("ordered", "what of the parcel had become an order already", Access.NOBODY),
    ),
    same=(Formula("`recent:`, `login:` and the person's sessions say so"),),
    repair="session <token>",
    lifetime="until it ends; a day if it was replaced",
    ttl_seconds=86_400,
    may_stay=True,
)
SHOP_ACCOUNT = Key(
    "shop:account:<username>",
    "hash",
    "What the shop keeps of a person's cart beside its lines.",
    owner="username",
    fields=(
        Field("cart", "id of the cart, once it is being checked out", Access.NOBODY),
        Field("last", "id of the cart that was checked out last, and when", Access.NOBODY),
        Field(
            "absorbed", "the last tokens whose carts joined this one, and ids of carts ordered before", Access.NOBODY
        ),
        Field("parcel", "what was in the cart, on its way to the person's new name", Access.NOBODY),
    ),
)
SHOP_ACCOUNT_CART = Key(
    "shop:account:<username>:cart",
    "hash",
    "A person's cart, which all their sessions show and which waits for the next login.",
    of="item id → quantity, 1 to 999",
    owner="username",
    holds="<item>",
    value=QUANTITY,
    repair="person <username>",
    read=Access.SELF,
)
SHOP_ACCOUNT_SESSIONS = Key(
    "shop:account:<username>:sessions",
    "zset",
    "A person's sessions.",
    of="token",
    score="when it began, Unix seconds",
    owner="username",
    holds="<token>",
    same=(Formula("that session is this person's"),),
    repair="belongs <token> <username>",
)
SHOP_INV = Key(
    "inv:<item>",
    "string",
    "A database row of an item, as JSON.",
    of="`qty`, `name`, `description`, `price`, `id`, `version`",
    owner="item",
    holds=r"\{.*\}",
    lifetime="while it is scheduled; else a few seconds",
    ttl_seconds=60,
    may_stay=True,
    read=Access.PUBLIC,
    document="inv:273",
)
SHOP_ROW = Key(
    "shop:row:<item>",
    "hash",
    "What is known of the copy of a row.",
    owner="item",
    fields=(
        Field("at", "when it was copied, Unix milliseconds", Access.ADMIN),
        Field("until", "until when it is fresh, Unix milliseconds", Access.ADMIN),
        Field("version", "the version of the row that was copied", Access.ADMIN),
        Field("delay", "seconds between two copies, if it is scheduled", Access.ADMIN),
        Field("due", "when it was scheduled, Unix milliseconds", Access.ADMIN),
        Field("old", "the row, for when `inv:<item>` has expired", Access.ADMIN),
        Field("none", "until when it is known that there is no such row, Unix milliseconds", Access.ADMIN),
        Field("busy", "who is reading it from the database, and until when", Access.ADMIN),
        Field("removed", "when it left the cache, Unix milliseconds", Access.ADMIN),
    ),
    same=(Formula("with a `delay`, the item is in `delay:` and `schedule:`"),),
    repair="row <item>",
    lifetime="while it is scheduled; else an hour",
    ttl_seconds=3600,
    may_stay=True,
    read=Access.ADMIN,
)
SHOP_DELAYS = Key(
    "delay:",
    "zset",
    "The rows that are copied regularly. Zero or less takes a row out of the cache.",
    of="item id",
    score="seconds between two copies",
    holds="<item>",
    same=(Formula("each is in `schedule:` too"),),
    repair="row <item>",
    document="delay:",
    read=Access.ADMIN,
)
SHOP_SCHEDULE = Key(
    "schedule:",
    "zset",
    "When each row is copied next.",
    of="item id",
    score="Unix seconds",
    holds="<item>",
    same=(Formula("each is in `delay:` too"),),
    repair="row <item>",
    document="schedule:",
    read=Access.ADMIN,
)
SHOP_PAGE = Key(
    "cache:<page>",
    "string",
    "A page, as it is sent.",
    of="HTML",
    owner="page",
    lifetime="300 seconds",
    ttl_seconds=300,
    document="cache:236712hhl3213yu21_hash",
    read=Access.ADMIN,
)
SHOP_PAGE_STATE = Key(
    "shop:page:<page>",
    "hash",
    "What is known of a page, and the page itself for those who come while it is renewed.",
    owner="page",
    fields=(
        Field("head", "its status, headers and tags, as JSON", Access.ADMIN),
        Field("old", "the page", Access.ADMIN),
        Field("began", "when the computation under way, or the last one, began, Unix milliseconds", Access.ADMIN),
        Field("from", "when the computation of the stored page began", Access.ADMIN),
        Field("made", "when it was stored", Access.ADMIN),
        Field("until", "until when it is fresh", Access.ADMIN),
        Field("gone", "until when it may be shown while it is renewed", Access.ADMIN),
        Field("cost", "milliseconds it took to compute", Access.ADMIN),
        Field("busy", "who computes it now", Access.ADMIN),
        Field("lease", "until when that one has the right to", Access.ADMIN),
        Field("void", "set if what is being computed was purged meanwhile", Access.ADMIN),
        Field("pass", "until when it is known that this page is not for storing", Access.ADMIN),
    ),
    lifetime="ten minutes",
    ttl_seconds=86_400,
    read=Access.ADMIN,
)
SHOP_PAGE_TAG = Key(
    "shop:tag:<tag>",
    "zset",
    "The pages that show something, so that they go when it changes.",
    of="hash of a page; `purged` for the last purge",
    score="until when the page may be shown, Unix milliseconds; of `purged`, when that was",
    holds="<page>|purged",
    owner="tag",
    lifetime="two hours after the last page",
    ttl_seconds=172_800,
    read=Access.ADMIN,
)

CATALOGUE = Catalogue.of(
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
