"""Every key of articles, with what is always true of it.

An article owns its hash, its two vote sets and the names of its groups: on a cluster they share a slot, and a vote is
one atomic step there. What ranks articles among each other (`score:`, `time:`, …) has no owner and follows from those
facts. A group owns its members and the lists that are cut for it.

Members are the document's `article:<id>` and `user:<username>` in both layouts: braces are how a cluster writes the
name of a key, not what a key holds.
"""

from __future__ import annotations

from typing import Final

from plaza.core.keyspace import Catalogue, Formula, HashField, Key, KeyAccess, MirrorOf, Reference, RequiresKey
from plaza.core.tokens import USERNAME

# The owner of the links: on a cluster `{article:}link:…` stands beside the counter `article:`, so that looking for a
# duplicate, taking the next id and claiming the link are one step.
COUNTER: Final = "article:"

GROUP_SECONDS: Final = 60
LINK_SECONDS: Final = 86_400
# A build that goes on renews its lease with every step; one that stopped is forgotten after this.
BUILDER_MS: Final = 5_000

_MEMBER = "`article:<id>`"
_HOLDS = "article:<article>"
_EXISTS = Reference("article:<article>")
_MEND = "article <article>"

ARTICLES_LAST = Key(
    "article:",
    "string",
    "The last id given. It never falls.",
    contains="a whole number",
    element_regex="<count>",
    invariants=(Formula("no article has a higher id"),),
    read=KeyAccess.PUBLIC,
    document="article:",
)
ARTICLE = Key(
    "article:<article>",
    "hash",
    "An article.",
    owner="article",
    fields=(
        HashField("title", "1 to 300 characters", required=True),
        HashField("link", "an http or https address", required=True),
        HashField("author", "`user:<username>`", value_regex="user:<username>", required=True),
        HashField("time", "when it was posted, Unix seconds with fraction", value_regex="<seconds>", required=True),
        HashField("votes", "votes up minus votes down", value_regex="-?<count>", required=True),
    ),
    invariants=(
        Formula("`votes` is the size of `upvoted:<article>` minus that of `downvoted:<article>`"),
        Formula("it stands in every ranking by its score there, and among what its author posted"),
    ),
    repair=_MEND,
    read=KeyAccess.PUBLIC,
    document="article:92617",
)
ARTICLE_UP = Key(
    "upvoted:<article>",
    "set",
    "Who voted an article up. Who is found in both sets is an upvoter.",
    contains="`user:<username>`",
    owner="article",
    element_regex="user:<username>",
    invariants=(
        RequiresKey("article:<article>", repair=_MEND),
        Formula("in the voter's `articles:<username>:voted` with 1"),
    ),
    repair="vote <article> <username>",
    read=KeyAccess.PUBLIC,
    document="upvoted:123123",
)
ARTICLE_DOWN = Key(
    "downvoted:<article>",
    "set",
    "Who voted an article down.",
    contains="`user:<username>`",
    owner="article",
    element_regex="user:<username>",
    invariants=(
        RequiresKey("article:<article>", repair=_MEND),
        Formula("in the voter's `articles:<username>:voted` with -1"),
    ),
    repair="vote <article> <username>",
    read=KeyAccess.PUBLIC,
    document="downvoted:123123",
)
ARTICLE_GROUPS = Key(
    "article:<article>:groups",
    "set",
    "The groups an article is in: the fact that `group:<group>` follows.",
    contains="group name",
    owner="article",
    element_regex="<group>",
    invariants=(RequiresKey("article:<article>", repair=_MEND), MirrorOf("group:<group>")),
    repair="group <article> <group>",
    read=KeyAccess.PUBLIC,
)
ARTICLE_LINK = Key(
    "<counter>link:<digest>",
    "string",
    "A link that was posted within a day, by the SHA-1 of its normal form. `<counter>` is always `article:`.",
    contains="`<id> <when, Unix seconds> <operation>`",
    owner="counter",
    element_regex=r"<article> <seconds> \S*",
    lifetime="a day",
    ttl_seconds=LINK_SECONDS,
    read=KeyAccess.ADMIN,
)


def _ranking(name: str, score: str, document: str = "") -> Key:
    return Key(
        f"{name}:",
        "zset",
        f"Every article by {name}.",
        contains=_MEMBER,
        score=score,
        element_regex=_HOLDS,
        invariants=(_EXISTS, Formula(f"score is {score}")),
        repair=_MEND,
        read=KeyAccess.PUBLIC,
        document=document,
    )


def _cut(name: str, document: str = "") -> Key:
    return Key(
        f"{name}:<group>",
        "zset",
        f"The articles of a group by {name}: `{name}:` cut to `group:<group>`, built when someone reads it.",
        contains=_MEMBER,
        score=f"as in `{name}:` when it was built",
        owner="group",
        element_regex=_HOLDS,
        invariants=(Formula("nothing that is not in `group:<group>`"),),
        repair="group <article> <group>",
        lifetime=f"{GROUP_SECONDS} seconds",
        ttl_seconds=GROUP_SECONDS,
        read=KeyAccess.PUBLIC,
        document=document,
    )


ARTICLES_BY_TIME = _ranking("time", "`time` of the article", "time:")
ARTICLES_BY_SCORE = _ranking("score", "`time + 432 × votes`", "score:")
ARTICLES_BY_HOT = _ranking("hot", "`sign(votes) × log10(max(|votes|, 1)) + (time − 1134028003) / 45000`")
ARTICLES_BY_BEST = _ranking("best", "the lower bound of Wilson's interval for the share of votes up, at 80%")
ARTICLES_BY_CONTROVERSIAL = _ranking(
    "controversial", "`(up + down) ^ (min(up, down) / max(up, down))`, 0 if either is 0"
)

GROUP = Key(
    "group:<group>",
    "set",
    "The articles of a group.",
    contains=_MEMBER,
    owner="group",
    element_regex=_HOLDS,
    invariants=(
        _EXISTS,
        MirrorOf("article:<article>:groups"),
        Formula("its size is the score of `<group>` in `groups:`"),
    ),
    repair="group <article> <group>",
    read=KeyAccess.PUBLIC,
    document="group:{group_name}",
)
GROUP_BY_SCORE = _cut("score", "score:{group_name}")
GROUP_BY_TIME = _cut("time")
GROUP_BY_HOT = _cut("hot")
GROUP_BY_BEST = _cut("best")
GROUP_BY_CONTROVERSIAL = _cut("controversial")
GROUP_BUILDING = Key(
    "building:<order>:<group>",
    "zset",
    "A group's list while it is being built; then it is renamed.",
    contains=_MEMBER,
    score="as in the list it becomes",
    owner="group",
    element_regex=_HOLDS,
    lifetime="a minute after the last step, if its builder stopped",
    ttl_seconds=GROUP_SECONDS,
    read=KeyAccess.ADMIN,
)
GROUP_BUILDER = Key(
    "builder:<order>:<group>",
    "string",
    "Who builds a group's list: one at a time, of all processes.",
    contains="a random token",
    owner="group",
    lifetime="5 seconds after the last step, if the builder stopped",
    ttl_seconds=BUILDER_MS // 1000,
    read=KeyAccess.ADMIN,
)
GROUPS = Key(
    "groups:",
    "zset",
    "Every group that has articles.",
    contains="group name",
    score="how many articles it has",
    element_regex="<group>",
    invariants=(Reference("group:<group>"),),
    repair="sized <group>",
    read=KeyAccess.PUBLIC,
)

ARTICLES_LEAVING = Key(
    "articles:leaving",
    "set",
    "Deleted articles that had so many votes that the last are still being removed.",
    contains="article id",
    element_regex="<article>",
    marks_deletion_of="article",
    lifetime="until they are",
    read=KeyAccess.ADMIN,
)

PERSON_ARTICLES = Key(
    "articles:<username>:posted",
    "zset",
    "What a person has posted, for export and removal.",
    contains=_MEMBER,
    score="`time` of the article",
    owner="username",
    element_regex=_HOLDS,
    invariants=(_EXISTS, Formula("the author is this person")),
    repair="posted <article> <username>",
    read=KeyAccess.SELF,
)
PERSON_VOTES = Key(
    "articles:<username>:voted",
    "zset",
    "What a person has voted on, for export and removal.",
    contains=_MEMBER,
    score="1 for up, -1 for down",
    owner="username",
    element_regex=_HOLDS,
    invariants=(_EXISTS, Formula("the person is in that vote set")),
    repair="vote <article> <username>",
    read=KeyAccess.SELF,
)

# By the names that the API has for them.
RANKINGS: Final = {
    "score": ARTICLES_BY_SCORE,
    "time": ARTICLES_BY_TIME,
    "hot": ARTICLES_BY_HOT,
    "best": ARTICLES_BY_BEST,
    "controversial": ARTICLES_BY_CONTROVERSIAL,
}
CUTS: Final = {
    "score": GROUP_BY_SCORE,
    "time": GROUP_BY_TIME,
    "hot": GROUP_BY_HOT,
    "best": GROUP_BY_BEST,
    "controversial": GROUP_BY_CONTROVERSIAL,
}

CATALOGUE = Catalogue.from_module(
    "articles",
    globals(),
    {
        "article": "[1-9][0-9]{0,15}",
        "group": "[a-z0-9][a-z0-9_-]{0,49}",
        "order": "score|time|hot|best|controversial",
        "digest": "[0-9a-f]{40}",
        "counter": COUNTER,
        "username": USERNAME,
    },
)
