"""The keys of challenges and their invariants.

All values are derived from the SQL tables and the current day. On a cluster these share a slot: a user's two keys and
their tickets; a category's pool and its day; the row counts and the job's cursor.
"""

from __future__ import annotations

from typing import Final

from plaza.core.keyspace import Catalogue, Formula, HashField, Key, KeyAccess
from plaza.core.tokens import USERNAME

# Owners of additional keys that share a slot with a documented key.
COUNTS: Final = "db_len"
POOL: Final = "recent_posts_for_category"
# Far longer than a write takes from its ticket to Valkey.
TICKETS_SECONDS: Final = 3_600

RS_PARAM = Key(
    "rs_param",
    "hash",
    "The parameters of recommendations.",
    fields=(
        HashField(
            "max_post_age", "days that a post stays in the pool", KeyAccess.PUBLIC, value_regex="<count>", required=True
        ),
        HashField("distinct_category", "the number of categories", KeyAccess.PUBLIC, value_regex="5", required=True),
        HashField(
            "day_index",
            "the UTC day number modulo `max_post_age`",
            KeyAccess.PUBLIC,
            value_regex="<count>",
            required=True,
        ),
    ),
    read=KeyAccess.PUBLIC,
    document="rs_param",
)
DB_LEN = Key(
    "db_len",
    "hash",
    "The number of rows of each SQL table at the last run of the daily job.",
    fields=(
        HashField("clg", "challenges", KeyAccess.PUBLIC, value_regex="<count>", required=True),
        HashField("mmbr", "members", KeyAccess.PUBLIC, value_regex="<count>", required=True),
        HashField("post", "posts", KeyAccess.PUBLIC, value_regex="<count>", required=True),
        HashField("reaction", "reactions", KeyAccess.PUBLIC, value_regex="<count>", required=True),
        HashField("tracking", "tracked days", KeyAccess.PUBLIC, value_regex="<count>", required=True),
    ),
    read=KeyAccess.PUBLIC,
    document="db_len",
)
DB_CURSOR = Key(
    "<counts>:cursor",
    "hash",
    "The daily job's position in each table.",
    contains="table → last id read; `<table>:counted` → the last id included in `db_len`; `<table>:taken` → rows read "
    "by an unfinished run; `day` → the day of the last run; `format` → 3; `model` → the rows that the neighbours were "
    "computed from",
    owner="counts",
    element_regex="(?:clg|mmbr|post|reaction|tracking)(?::counted|:taken)?|day|format|model",
    read=KeyAccess.ADMIN,
)
RECENT_POSTS = Key(
    "recent_posts_for_category<category>",
    "zset",
    "The pool: recent posts of a category's public ongoing challenges, without breaks.",
    contains="post id",
    score="the post's day number modulo `max_post_age`",
    element_regex="<count>",
    invariants=(Formula("exactly the posts that belong in the pool by the SQL tables and the day"),),
    read=KeyAccess.PUBLIC,
    document="recent_posts_for_category1",
)
POOL_DAY = Key(
    "<pool>:day",
    "string",
    "The latest day whose slot in a category's pool was cleared of older posts.",
    contains="UTC day number",
    owner="pool",
    element_regex="<count>",
    read=KeyAccess.ADMIN,
)
ON_CLG_INFO = Key(
    "on_clg_info",
    "hash",
    "The ongoing challenges.",
    contains="challenge id → category, public (1 or 0), days, ISO date of its end, separated by commas",
    element_regex="<count>",
    value_regex=r"[1-5],[01],<count>,\d{4}-\d\d-\d\d",
    invariants=(Formula("exactly the challenges that have not ended"),),
    read=KeyAccess.ADMIN,  # private challenges are in it too
    document="on_clg_info",
)
USER_CONTRIBUTION = Key(
    "user_contribution",
    "hash",
    "The number of days each user has tracked in each category.",
    contains="username → five numbers, separated by commas",
    element_regex="<username>",
    value_regex="<count>,<count>,<count>,<count>,<count>",
    invariants=(Formula("the number of the user's rows in `tracking`, by category"),),
    read=KeyAccess.ADMIN,
    document="user_contribution",
)
POST_CLG_PAIR = Key(
    "post_clg_pair",
    "hash",
    "The challenge of each post in the pool.",
    contains="post id → challenge id",
    element_regex="<count>",
    value_regex="<count>",
    invariants=(Formula("exactly the posts of the five pools"),),
    read=KeyAccess.PUBLIC,
    document="post_clg_pair",
)
LIKED_POSTS = Key(
    "<username>_liked_posts",
    "set",
    "The posts that a user has reacted to.",
    contains="post id",
    owner="username",
    element_regex="<count>",
    invariants=(Formula("the posts of the user's rows in `reaction`"),),
    read=KeyAccess.SELF,
    document="{user_id}_liked_posts",
)
CLGS_PREFERENCE = Key(
    "<username>_clgs_preference",
    "zset",
    "The number of a user's reactions in each challenge.",
    contains="challenge id",
    score="the number of reactions",
    owner="username",
    element_regex="<count>",
    invariants=(Formula("the number of the user's rows in `reaction`, by challenge"),),
    read=KeyAccess.SELF,
    document="{user_id}_clgs_preference",
)
CLG_TICKETS = Key(
    "challenges:turn:<username>",
    "hash",
    "Tickets that order writes of a user's keys: the writer that read SQL last writes last.",
    owner="username",
    fields=(
        HashField("next", "the last ticket issued", KeyAccess.ADMIN, value_regex="<count>"),
        HashField("done", "the last ticket used to write", KeyAccess.ADMIN, value_regex="<count>"),
    ),
    lifetime="an hour after the last reaction",
    ttl_seconds=TICKETS_SECONDS,
    read=KeyAccess.ADMIN,
)
CLG_SHOWN = Key(
    "challenges:shown:<username>",
    "hash",
    "The posts recommended to a user, so that none is shown too often.",
    contains="post id → number of days shown and the last day, separated by a comma",
    owner="username",
    element_regex="<count>",
    value_regex="<count>,<count>",
    lifetime="`max_post_age` days after the last recommendation",
    ttl_seconds=3_650 * 86_400,
    read=KeyAccess.SELF,
)

CLG_NEIGHBOURS = Key(
    "challenges:neighbours:<challenge>",
    "string",
    "Similar challenges, computed by the daily job from who takes part in which.",
    contains="a byte with the size of an id (4 or 8), then pairs of a challenge id (unsigned) and a weight (32-bit "
    "float), little-endian, strongest first; a weight below 0: dissimilar",
    owner="challenge",
    lifetime="7 days after the last training",
    ttl_seconds=7 * 86_400,
    read=KeyAccess.PUBLIC,
)
CLG_POPULAR = Key(
    "challenges:popular",
    "zset",
    "The posts of the pool with most reactions in the 30 days before the last run of the daily job.",
    contains="post id",
    element_regex="<count>",
    score="the number of these reactions",
    lifetime="7 days after the last training",
    ttl_seconds=7 * 86_400,
    read=KeyAccess.PUBLIC,
)

CATALOGUE = Catalogue.from_module(
    "challenges",
    globals(),
    {"username": USERNAME, "category": "[1-5]", "challenge": "[0-9]+", "counts": COUNTS, "pool": f"{POOL}[1-5]"},
)


def user_keys(username: str) -> list[str]:
    """The keys of a user's reactions, in the order of the Lua commands: tickets, liked posts, preference."""
    return [CLG_TICKETS(username), LIKED_POSTS(username), CLGS_PREFERENCE(username)]


def pool_keys(category: int) -> list[str]:
    """The keys of a category's pool, in the order of the Lua command: posts, day."""
    return [RECENT_POSTS(category), POOL_DAY(f"{POOL}{category}")]
