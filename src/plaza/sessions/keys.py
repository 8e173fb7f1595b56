"""The keys of sessions.

A token owns its session and the data that other packages keep per session; on a cluster they share a slot. `login:` and
`recent:` have no owner. The prefix `shop:` is part of the published names, so it stays.
"""

from __future__ import annotations

from typing import Final

from plaza.core.keyspace import Formula, HashField, Key, KeyAccess, Reference

TOKEN: Final = "[0-9A-F]{8}-[0-9A-F]{4}-4[0-9A-F]{3}-[89AB][0-9A-F]{3}-[0-9A-F]{12}"  # noqa: S105 a pattern, not a secret

LOGIN_TOKENS = Key(
    "login:",
    "hash",
    "The signed-in user of each token.",
    contains="token → username",
    element_regex="<token>",
    value_regex="<username>",
    invariants=(
        Reference("shop:session:<token>"),
        Formula("it has a token exactly while its session is signed in"),
    ),
    repair="session <token>",
    document="login:",
)
RECENT_TOKENS = Key(
    "recent:",
    "zset",
    "Every session, by when it was last seen.",
    contains="token",
    score="Unix seconds",
    element_regex="<token>",
    invariants=(Reference("shop:session:<token>"), Formula("it has a token exactly while the session exists")),
    repair="session <token>",
    document="recent:",
)
SESSION_STATE = Key(
    "shop:session:<token>",
    "hash",
    "A session. A token without it is not valid.",
    owner="token",
    fields=(
        HashField(
            "user", "the signed-in user, empty for a guest", KeyAccess.NONE, value_regex="<username>|", required=True
        ),
        HashField("since", "when it started, Unix seconds", KeyAccess.NONE, value_regex="<seconds>", required=True),
        HashField("seen", "when it was last seen", KeyAccess.NONE, value_regex="<seconds>", required=True),
        HashField("cart", "id of a guest's cart while its checkout is not finished", KeyAccess.NONE),
        HashField("last", "id of the cart that was ordered last, and when", KeyAccess.NONE),
        HashField("moved", "until when requests with this token are served after a login replaced it", KeyAccess.NONE),
        HashField("to", "the token that replaced it", KeyAccess.NONE),
        HashField("parcel", "the guest's cart at the login, to be merged into the account's", KeyAccess.NONE),
        HashField("for", "the account that gets the parcel", KeyAccess.NONE),
        HashField("ordered", "the lines of the parcel that were already ordered", KeyAccess.NONE),
    ),
    invariants=(Formula("`recent:`, `login:` and the user's sessions agree with it"),),
    repair="session <token>",
    lifetime="until the session ends; a day after a login replaced it",
    ttl_seconds=86_400,
    ttl_optional=True,
)
USER_SESSION_TOKENS = Key(
    "shop:account:<username>:sessions",
    "zset",
    "The sessions of a user.",
    contains="token",
    score="when it started, Unix seconds",
    owner="username",
    element_regex="<token>",
    invariants=(Formula("each session belongs to this user"),),
    repair="user_session <token> <username>",
)
