"""The keys of articles and their invariants.

An article owns its hash, its two vote sets and the names of its groups: on a cluster they share a slot, so a vote is
one atomic step. The rankings of all articles (`score:`, `time:`, …) have no owner and are projections. A group owns its
members and its rankings.

Members are the document's `article:<id>` and `user:<username>` in both layouts; braces appear only in key names.
"""

from __future__ import annotations

from typing import Final

from plaza.core.comment_tree import MAX_EDITS
from plaza.core.keyspace import Catalogue, Formula, HashField, Key, KeyAccess, MirrorOf, Reference, RequiresKey
from plaza.core.tokens import USERNAME

# The owner of the links: on a cluster `{article:}link:…` shares a slot with the counter `article:`, so that finding a
# duplicate, taking the next id and claiming the link are one atomic step.
COUNTER: Final = "article:"

# How long a group's ranking lives: a vote shows in it after a minute at the latest.
GROUP_SECONDS: Final = 60
# How long the same link cannot be posted again.
LINK_SECONDS: Final = 86_400
# Every step of a build renews its lease. After this time without a step another process may build.
BUILDER_MS: Final = 5_000

# A comment's part of its id.
NOTE: Final = "[0-9a-f]{32}"

# Other services name groups as they like; Plaza itself creates fewer. Braces would change a key's slot on a cluster.
ANY_GROUP: Final = r"[^\x00-\x1f\x7f{}]{1,200}"

_MEMBER = "`article:<id>`"
_HOLDS = "article:<article>"
_EXISTS = Reference("article:<article>")
_REPAIR = "article <article>"

ARTICLES_LAST = Key(
    "article:",
    "string",
    "The last id that was assigned. It never decreases.",
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
        HashField("votes", "upvotes minus downvotes", value_regex="-?<count>", required=True),
    ),
    invariants=(
        Formula("`votes` is the size of `upvoted:<article>` minus that of `downvoted:<article>`"),
        Formula("it is in every ranking with its score, and in its author's index"),
    ),
    repair=_REPAIR,
    read=KeyAccess.PUBLIC,
    document="article:92617",
)
ARTICLE_UP = Key(
    "upvoted:<article>",
    "set",
    "The users who voted an article up. A user found in both sets is an upvoter.",
    contains="`user:<username>`",
    owner="article",
    element_regex="user:<username>",
    invariants=(
        RequiresKey("article:<article>", repair=_REPAIR),
        Formula("in the voter's `articles:<username>:voted` with 1"),
    ),
    repair="vote <article> <username>",
    read=KeyAccess.MEMBERSHIP,
    document="upvoted:123123",
)
ARTICLE_DOWN = Key(
    "downvoted:<article>",
    "set",
    "The users who voted an article down.",
    contains="`user:<username>`",
    owner="article",
    element_regex="user:<username>",
    invariants=(
        RequiresKey("article:<article>", repair=_REPAIR),
        Formula("in the voter's `articles:<username>:voted` with -1"),
    ),
    repair="vote <article> <username>",
    read=KeyAccess.MEMBERSHIP,
    document="downvoted:123123",
)
ARTICLE_GROUPS = Key(
    "article:<article>:groups",
    "set",
    "The groups an article is in, an index of `group:<group>`.",
    contains="group name",
    owner="article",
    element_regex="<group>",
    invariants=(RequiresKey("article:<article>", repair=_REPAIR), MirrorOf("group:<group>")),
    repair="group <group> <article>",
    read=KeyAccess.PUBLIC,
)
_BESIDE_ARTICLE = RequiresKey("article:<article>", repair=_REPAIR)
_MS = "creation time, Unix milliseconds"
ARTICLE_COMMENTS = Key(
    "article:<article>:comments",
    "zset",
    "The comments on an article. Source data of which comments exist.",
    contains="comment id without the article's",
    score=_MS,
    owner="article",
    element_regex="<note>",
    invariants=(Reference("article:<article>:comment:<note>", repair="note <article> <note>"), _BESIDE_ARTICLE),
    repair="note <article> <note>",
    read=KeyAccess.PUBLIC,
)
ARTICLE_COMMENT = Key(
    "article:<article>:comment:<note>",
    "hash",
    "A comment on an article. Its id in the API is `<article>-<note>`.",
    owner="article",
    fields=(
        HashField("username", "username of the author", value_regex="<username>", required=True),
        HashField("content", "the text", required=True),
        HashField("edited_at", "when its text was changed last, Unix milliseconds", value_regex="<ms>"),
    ),
    invariants=(
        Formula("it is in `article:<article>:comments` and its author's `articles:<username>:comments`"),
        _BESIDE_ARTICLE,
    ),
    repair="note <article> <note>",
    read=KeyAccess.PUBLIC,
)
ARTICLE_COMMENT_EDITS = Key(
    "article:<article>:comment:<note>:edits",
    "list",
    f"The texts of a comment on an article before each edit, oldest first; the last {MAX_EDITS}.",
    contains="JSON `{content, until}`, `until` in Unix milliseconds",
    owner="article",
    element_regex=r"\{.*\}",
    invariants=(RequiresKey("article:<article>:comment:<note>"),),
    repair="note_edits <article> <note>",
    read=KeyAccess.ADMIN,
)
ARTICLE_COMMENT_PARENTS = Key(
    "article:<article>:comments:parents",
    "hash",
    "Which comments on an article reply to which. Source data of a reply.",
    contains="comment → the comment that it replies to",
    owner="article",
    element_regex="<note>",
    value_regex="<note>",
    invariants=(Formula("each is a comment or stub of the article, and in the replies of the other"), _BESIDE_ARTICLE),
    repair="thread <article> <note> <note>",
    read=KeyAccess.PUBLIC,
)
ARTICLE_COMMENT_REPLIES = Key(
    "article:<article>:comments:replies:<note>",
    "zset",
    "The replies to a comment by time, for paging.",
    contains="comment",
    score=_MS,
    owner="article",
    element_regex="<note>",
    invariants=(Formula("each replies to this comment, by `article:<article>:comments:parents`"), _BESIDE_ARTICLE),
    repair="thread <article> <other> <note>",
    read=KeyAccess.PUBLIC,
)
ARTICLE_COMMENT_STUBS = Key(
    "article:<article>:comments:stubs",
    "zset",
    "Deleted comments that have replies. Nothing of them is left but the id and the time.",
    contains="comment",
    score=_MS,
    owner="article",
    element_regex="<note>",
    invariants=(Formula("each has replies and is not among the comments"), _BESIDE_ARTICLE),
    repair="thread <article> <note> <note>",
    lifetime="until its last reply is deleted",
    read=KeyAccess.PUBLIC,
)
ARTICLE_COMMENTS_TOP = Key(
    "article:<article>:comments:top",
    "zset",
    "The comments and stubs that reply to no other, by time, for paging. Absent if there are no replies.",
    contains="comment",
    score=_MS,
    owner="article",
    element_regex="<note>",
    invariants=(Formula("each is a comment or stub that replies to none"), _BESIDE_ARTICLE),
    repair="thread <article> <note> <note>",
    read=KeyAccess.PUBLIC,
)
ARTICLE_LINK = Key(
    "<counter>link:<digest>",
    "string",
    "A link posted within the last day, by the SHA-1 of its normal form. `<counter>` is always `article:`.",
    contains="`<id> <time, Unix seconds> <operation>`",
    owner="counter",
    element_regex=r"<article> <seconds> \S*",
    lifetime="a day",
    ttl_seconds=LINK_SECONDS,
    read=KeyAccess.ADMIN,
)


def _ranking(name: str, score: str, document: str = "", contents: str = "All articles") -> Key:
    return Key(
        f"{name}:",
        "zset",
        f"{contents} in the order `{name}`.",
        contains=_MEMBER,
        score=score,
        element_regex=_HOLDS,
        invariants=(_EXISTS, Formula(f"score is {score}")),
        repair=_REPAIR,
        read=KeyAccess.PUBLIC,
        document=document,
    )


def _group_ranking(name: str, document: str = "") -> Key:
    return Key(
        f"{name}:<group>",
        "zset",
        f"A group's articles in the order `{name}`: `group:<group>` with the scores of `{name}:`, built on demand.",
        contains=_MEMBER,
        score=f"as in `{name}:` when it was built",
        owner="group",
        element_regex=_HOLDS,
        lifetime=f"{GROUP_SECONDS} seconds",
        ttl_seconds=GROUP_SECONDS,
        read=KeyAccess.PUBLIC,
        document=document,
    )


ARTICLES_BY_TIME = _ranking("time", "`time` of the article", "time:")
ARTICLES_BY_SCORE = _ranking("score", "`time + 432 × votes`", "score:")
ARTICLES_BY_HOT = _ranking("hot", "`sign(votes) × log10(max(|votes|, 1)) + (time − 1134028003) / 45000`")
ARTICLES_BY_BEST = _ranking("best", "the lower bound of the Wilson interval for the share of upvotes, at 80%")
ARTICLES_BY_TOP = _ranking("top", "`votes`")
ARTICLES_BY_CONTROVERSIAL = _ranking(
    "controversial",
    "`(up + down) ^ (min(up, down) / max(up, down))`",
    contents="The articles that have upvotes and downvotes,",
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
    repair="group <group> <article>",
    read=KeyAccess.PUBLIC,
    document="group:{group_name}",
)
GROUP_BY_SCORE = _group_ranking("score", "score:{group_name}")
GROUP_BY_TIME = _group_ranking("time")
GROUP_BY_HOT = _group_ranking("hot")
GROUP_BY_BEST = _group_ranking("best")
GROUP_BY_TOP = _group_ranking("top")
GROUP_BY_CONTROVERSIAL = _group_ranking("controversial")
GROUP_BUILDING = Key(
    "building:<order>:<group>",
    "zset",
    "A group's ranking while it is built; it is renamed when finished.",
    contains=_MEMBER,
    score="as in the finished ranking",
    owner="group",
    element_regex=_HOLDS,
    lifetime="60 seconds after the last step, if the builder stopped",
    ttl_seconds=GROUP_SECONDS,
    read=KeyAccess.ADMIN,
)
GROUP_BUILDER = Key(
    "builder:<order>:<group>",
    "string",
    "The lease of the process that builds a group's ranking.",
    contains="a random token, or `-` if no article of the group has a score",
    owner="group",
    lifetime=f"5 seconds after the last step, if the builder stopped; {GROUP_SECONDS} seconds for `-`",
    ttl_seconds=GROUP_SECONDS,
    read=KeyAccess.ADMIN,
)
GROUPS = Key(
    "groups:",
    "zset",
    "All groups that have articles.",
    contains="group name",
    score="its number of articles",
    element_regex="<group>",
    invariants=(Reference("group:<group>"),),
    repair="group_size <group>",
    read=KeyAccess.PUBLIC,
)

ARTICLES_BEING_DELETED = Key(
    "articles:leaving",
    "set",
    "Deleted articles whose votes and comments are not all deleted yet.",
    contains="article id",
    element_regex="<article>",
    marks_deletion_of="article",
    lifetime="until they are deleted",
    read=KeyAccess.ADMIN,
)

USER_ARTICLES = Key(
    "articles:<username>:posted",
    "zset",
    "A user's articles, for export and deletion.",
    contains=_MEMBER,
    score="`time` of the article",
    owner="username",
    element_regex=_HOLDS,
    invariants=(_EXISTS, Formula("the author is this user")),
    repair="author_index <article> <username>",
    read=KeyAccess.SELF,
)
USER_VOTES = Key(
    "articles:<username>:voted",
    "zset",
    "A user's votes, for export and deletion.",
    contains=_MEMBER,
    score="1 for up, -1 for down",
    owner="username",
    element_regex=_HOLDS,
    invariants=(_EXISTS, Formula("the user is in that vote set")),
    repair="vote <article> <username>",
    read=KeyAccess.SELF,
)
USER_ARTICLE_COMMENTS = Key(
    "articles:<username>:comments",
    "zset",
    "A user's comments on articles, for export and deletion.",
    contains="`<article>-<note>`, the id of a comment",
    score=_MS,
    owner="username",
    element_regex="<article>-<note>",
    invariants=(Formula("each is a comment of this user"),),
    repair="note <article> <note> <username>",
    read=KeyAccess.SELF,
)

# By the order's name in the API.
RANKINGS: Final = {
    "score": ARTICLES_BY_SCORE,
    "time": ARTICLES_BY_TIME,
    "hot": ARTICLES_BY_HOT,
    "best": ARTICLES_BY_BEST,
    "top": ARTICLES_BY_TOP,
    "controversial": ARTICLES_BY_CONTROVERSIAL,
}
# The orders that the document does not have. Each vote changes them, and `score`.
ADDITIONAL_ORDERS: Final = tuple(order for order in RANKINGS if order not in ("score", "time"))
GROUP_RANKINGS: Final = {
    "score": GROUP_BY_SCORE,
    "time": GROUP_BY_TIME,
    "hot": GROUP_BY_HOT,
    "best": GROUP_BY_BEST,
    "top": GROUP_BY_TOP,
    "controversial": GROUP_BY_CONTROVERSIAL,
}

CATALOGUE = Catalogue.from_module(
    "articles",
    globals(),
    {
        "article": "[1-9][0-9]{0,15}",
        "group": ANY_GROUP,
        "order": "score|time|hot|best|top|controversial",
        "digest": "[0-9a-f]{40}",
        "counter": COUNTER,
        "note": NOTE,
        "username": USERNAME,
    },
)
