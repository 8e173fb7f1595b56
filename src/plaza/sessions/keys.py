"""The keys of sessions.

A token owns its session and the data that other packages keep per session; on a cluster they share a slot. `login:` and
`recent:` have no owner; they are source data that other services may write too. The prefix `shop:` is part of the
published names, so it stays.
"""

from __future__ import annotations

from typing import Final

from plaza.core.keyspace import Formula, HashField, Key, KeyAccess

# Plaza issues upper-case UUIDs of version 4, as the document has them. Other services may write any UUID.
TOKEN: Final = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"  # noqa: S105 a pattern, not a secret

LOGIN_TOKENS = Key(
    "login:",
    "hash",
    "The signed-in user of each token. It decides who is signed in; other services may write it too.",
    contains="token → username",
    element_regex="<token>",
    value_regex="<username>",
    document="login:",
)
RECENT_TOKENS = Key(
    "recent:",
    "zset",
    "Every session, by when it was last seen.",
    contains="token",
    score="Unix seconds",
    element_regex="<token>",
    document="recent:",
)
SESSION_STATE = Key(
    "shop:session:<token>",
    "hash",
    "The state of a session. For a token that another service wrote, it is created at its first request.",
    owner="token",
    fields=(
        HashField(
            "user", "the signed-in user, empty for a guest", KeyAccess.NONE, value_regex="<username>|", required=True
        ),
        HashField("since", "when it started, Unix seconds", KeyAccess.NONE, value_regex="<seconds>", required=True),
        HashField("seen", "when it was last seen", KeyAccess.NONE, value_regex="<seconds>", required=True),
        HashField("device", "the browser and system that signed in", KeyAccess.NONE),
        HashField("address", "the address that signed in, truncated by default", KeyAccess.NONE),
        HashField("cart", "id of a guest's cart while its checkout is not finished", KeyAccess.NONE),
        HashField("last", "id of the cart that was ordered last, and when", KeyAccess.NONE),
        HashField("moved", "until when requests with this token are served after a login replaced it", KeyAccess.NONE),
        HashField("to", "the token that replaced it", KeyAccess.NONE),
        HashField("parcel", "the guest's cart at the login, to be merged into the account's", KeyAccess.NONE),
        HashField("for", "the account that gets the parcel", KeyAccess.NONE),
        HashField("ordered", "the lines of the parcel that were already ordered", KeyAccess.NONE),
        HashField("shown", "the lines that Plaza copied to `cart:<token>` last, as JSON", KeyAccess.NONE),
        HashField("changes", "the last changes of the cart by other services, on a cluster, as JSON", KeyAccess.NONE),
        HashField("batch", "the number of the last such change; it grows", KeyAccess.NONE),
    ),
    invariants=(Formula("its user is the one in `login:`; it is in `recent:` and among the user's sessions"),),
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
