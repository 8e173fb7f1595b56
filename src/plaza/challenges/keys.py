"""Every key of challenges, with what is always true of it.

Everything here follows from the SQL tables and the day. A person's two keys and their turn share a slot on a cluster,
as do a category's posts and the day up to which its slots are clean, and the row counts and the job's place.
"""

from __future__ import annotations

from typing import Final

from plaza.core.keyspace import Catalogue, Formula, HashField, Key, KeyAccess
from plaza.core.tokens import USERNAME

# Owners of what stands beside a key that has no owner in its own name.
COUNTS: Final = "db_len"
POOL: Final = "recent_posts_for_category"

RS_PARAM = Key(
    "rs_param",
    "hash",
    "What recommendations go by.",
    fields=(
        HashField(
            "max_post_age", "days that a post stays in the pool", KeyAccess.PUBLIC, value_regex="<count>", required=True
        ),
        HashField(
            "distinct_category", "how many categories there are", KeyAccess.PUBLIC, value_regex="5", required=True
        ),
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
    "How many rows each SQL table had at the last roll.",
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
    "How far the daily job has come.",
    contains="table → last id taken in; `<table>:counted` → the last id that `db_len` counts; `<table>:taken` → how "
    "many rows an unfinished roll took in; `day` → the day rolled last; `model` → what the neighbours were learnt from",
    owner="counts",
    element_regex="(?:clg|mmbr|post|reaction|tracking)(?::counted|:taken)?|day|model",
    read=KeyAccess.ADMIN,
)
RECENT_POSTS = Key(
    "recent_posts_for_category<category>",
    "zset",
    "The pool: recent posts of a category's public challenges that go on, without breaks.",
    contains="post id",
    score="the post's own day modulo `max_post_age`",
    element_regex="<count>",
    invariants=(Formula("exactly the posts that the SQL tables and the day give"),),
    read=KeyAccess.PUBLIC,
    document="recent_posts_for_category1",
)
POOL_DAY = Key(
    "<pool>:day",
    "string",
    "The latest day whose slot in a category's pool has been emptied of older posts.",
    contains="UTC day number",
    owner="pool",
    element_regex="<count>",
    read=KeyAccess.ADMIN,
)
ON_CLG_INFO = Key(
    "on_clg_info",
    "hash",
    "The challenges that go on.",
    contains="challenge id → category, public 1 or 0, days, ISO date it ends, separated by commas",
    element_regex="<count>",
    value_regex=r"[1-5],[01],<count>,\d{4}-\d\d-\d\d",
    invariants=(Formula("exactly the challenges that have not ended"),),
    read=KeyAccess.ADMIN,  # private challenges are in it too
    document="on_clg_info",
)
USER_CONTRIBUTION = Key(
    "user_contribution",
    "hash",
    "How many days each person has tracked in each category.",
    contains="username → five numbers, separated by commas",
    element_regex="<username>",
    value_regex="<count>,<count>,<count>,<count>,<count>",
    invariants=(Formula("the counts of the person's rows in `tracking`, by category"),),
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
    "The posts in the pool that a person has reacted to.",
    contains="post id",
    owner="username",
    element_regex="<count>",
    invariants=(Formula("the person's rows in `reaction` whose posts are in the pool"),),
    read=KeyAccess.SELF,
    document="{user_id}_liked_posts",
)
CLGS_PREFERENCE = Key(
    "<username>_clgs_preference",
    "zset",
    "How often a person has reacted in each challenge that goes on.",
    contains="challenge id",
    score="the number of standing reactions",
    owner="username",
    element_regex="<count>",
    invariants=(Formula("the counts of the person's rows in `reaction`, by challenge that goes on"),),
    read=KeyAccess.SELF,
    document="{user_id}_clgs_preference",
)
CLG_TURN = Key(
    "challenges:turn:<username>",
    "hash",
    "Who writes a person's keys last: whoever read SQL last.",
    owner="username",
    fields=(
        HashField("next", "the last ticket given out", KeyAccess.ADMIN, value_regex="<count>"),
        HashField("done", "the last ticket that has written", KeyAccess.ADMIN, value_regex="<count>"),
    ),
    lifetime="an hour after the last reaction",
    ttl_seconds=3_600,
    read=KeyAccess.ADMIN,
)
CLG_SHOWN = Key(
    "challenges:shown:<username>",
    "hash",
    "Which posts were recommended to a person, so that none is for ever.",
    contains="post id → on how many days, and the last of them, separated by a comma",
    owner="username",
    element_regex="<count>",
    value_regex="<count>,<count>",
    lifetime="`max_post_age` days after the last one",
    ttl_seconds=3_650 * 86_400,
    read=KeyAccess.SELF,
)

CLG_NEIGHBOURS = Key(
    "challenges:neighbours:<challenge>",
    "string",
    "Which challenges go with one, as the daily job has learnt it from who takes part in what.",
    contains="challenge id and weight in turn, separated by spaces, from the strongest weight; below 0: they repel",
    element_regex=r"\d+ -?\d\S*(?: \d+ -?\d\S*)*",
    owner="challenge",
    lifetime="a week after the last fit",
    ttl_seconds=7 * 86_400,
    read=KeyAccess.PUBLIC,
)
CLG_POPULAR = Key(
    "challenges:popular",
    "zset",
    "The posts of the pool with most reactions, as the daily job found them: for who is new here.",
    contains="post id",
    element_regex="<count>",
    score="reactions when the job ran",
    lifetime="a week after the last fit",
    ttl_seconds=7 * 86_400,
    read=KeyAccess.PUBLIC,
)

CATALOGUE = Catalogue.from_module(
    "challenges",
    globals(),
    {"username": USERNAME, "category": "[1-5]", "challenge": "[0-9]+", "counts": COUNTS, "pool": f"{POOL}[1-5]"},
)


def of_person(username: str) -> list[str]:
    """What the verbs of a person's reactions take: turn, liked posts, preference."""
    return [CLG_TURN(username), LIKED_POSTS(username), CLGS_PREFERENCE(username)]


def of_pool(category: int) -> list[str]:
    """What the verb of a category's pool takes: posts, day."""
    return [RECENT_POSTS(category), POOL_DAY(f"{POOL}{category}")]
