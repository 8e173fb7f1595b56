"""Invariants of articles that `keys.py` cannot declare: votes, scores and indexes.

The scores are computed here a second time, in Python, so that the audit does not depend on the Lua code it checks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from plaza.articles import keys as k
from plaza.articles.model import BEST_Z, HOT_EPOCH_SECONDS, HOT_SECONDS, parse_seconds, score
from plaza.core.comment_tree_invariants import TreeFamilies
from plaza.core.invariants import Command, Entry, Invariant, Invariants
from plaza.core.number_parsing import parse_float, parse_int

REPAIRS = {
    "article": k.ARTICLE,
    "vote": k.ARTICLE,
    "votes": k.ARTICLE,
    "group": k.GROUP,
    "author_index": k.ARTICLE,
    "group_size": k.GROUP,
    "note": k.ARTICLE,
    "note_edits": k.ARTICLE,
    "thread": k.ARTICLE,
}

DISCUSSIONS = TreeFamilies(
    all=k.ARTICLE_COMMENTS,
    parents=k.ARTICLE_COMMENT_PARENTS,
    replies=k.ARTICLE_COMMENT_REPLIES,
    stubs=k.ARTICLE_COMMENT_STUBS,
    top=k.ARTICLE_COMMENTS_TOP,
)


def _hot(time: float, votes: int) -> float:
    return math.copysign(math.log10(max(abs(votes), 1)), votes) + (time - HOT_EPOCH_SECONDS) / HOT_SECONDS


def _best(ups: int, downs: int) -> float:
    n = ups + downs
    if n == 0:
        return 0.0
    share, zz = ups / n, BEST_Z * BEST_Z
    return (share + zz / (2 * n) - BEST_Z * math.sqrt((share * (1 - share) + zz / (4 * n)) / n)) / (1 + zz / n)


def _controversial(ups: int, downs: int) -> float | None:
    return (ups + downs) ** (min(ups, downs) / max(ups, downs)) if ups and downs else None


def _votes_commands(entry: Entry) -> Sequence[Command]:
    id = entry.parts[0]
    return (("SCARD", k.ARTICLE_UP(id)), ("SCARD", k.ARTICLE_DOWN(id)))


def _check_votes(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    ups, downs = replies
    votes = entry.value["votes"]
    return None if votes == str(ups - downs) else f"`votes` is {votes}, but the sets have {ups} up and {downs} down"


def _ranking_commands(entry: Entry) -> Sequence[Command]:
    id = entry.parts[0]
    scores = (("ZSCORE", key(), f"article:{id}") for key in k.RANKINGS.values())
    return (*_votes_commands(entry), *scores, ("GET", k.ARTICLES_LAST()))


def _check_ranking(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    ups, downs, *scores, last = replies
    time, votes = parse_float(entry.value["time"]), parse_int(entry.value["votes"])
    expected = {
        "score": score(time, votes),
        "time": time,
        "hot": _hot(time, votes),
        "best": _best(ups, downs),
        "top": votes,
        "controversial": _controversial(ups, downs),
    }
    for order, found in zip(k.RANKINGS, scores, strict=True):
        if not _is_close(found, expected[order]):
            return f"its score in `{k.RANKINGS[order]()}` is {found}, but the formula gives {expected[order]}"
    if parse_int(last) < parse_int(entry.parts[0]):
        return f"its id is higher than `{k.ARTICLES_LAST()}`, which is {last}"
    return None


def _is_close(found: float | None, expected: float | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)


def _author_index_commands(entry: Entry) -> Sequence[Command]:
    username = entry.value["author"].removeprefix("user:")
    return (("ZSCORE", k.USER_ARTICLES(username), f"article:{entry.parts[0]}"),)


def _check_author_index(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if replies[0] == parse_float(entry.value["time"], None):
        return None
    return "is missing in its author's index, or has another time there"


def _other_vote_commands(entry: Entry) -> Sequence[Command]:
    return (("SISMEMBER", k.ARTICLE_DOWN(entry.parts[0]), entry.member),)


def _check_other_vote(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return f"has {entry.member}, which is also in the other vote set" if replies[0] else None


def _voter_commands(entry: Entry) -> Sequence[Command]:
    id, member = entry.parts[0], entry.member
    return (
        ("SISMEMBER", k.ARTICLE_UP(id), member),
        ("ZSCORE", k.USER_VOTES(entry.ids[0]), f"article:{id}"),
    )


def _check_voter(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    """A user in both sets is an upvoter."""
    is_upvoter, indexed = replies
    if indexed == (1 if is_upvoter else -1):
        return None
    return f"has {entry.member}, but the user's index has {indexed}"


def _vote_set_commands(entry: Entry) -> Sequence[Command]:
    key = k.ARTICLE_UP if entry.value > 0 else k.ARTICLE_DOWN
    return (("SISMEMBER", key(entry.ids[0]), f"user:{entry.parts[0]}"),)


def _check_vote_set(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    valid = replies[0] and entry.value in (1, -1)
    return None if valid else f"has {entry.value:.0f} for {entry.member}, which has no such vote"


def _author_commands(entry: Entry) -> Sequence[Command]:
    return (("HMGET", k.ARTICLE(entry.ids[0]), "author", "time"),)


def _check_author(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    author, time = replies[0]
    valid = author is None or (author == f"user:{entry.parts[0]}" and parse_seconds(time) == entry.value)
    return None if valid else f"has {entry.member} at {entry.value}, but its author is {author} and its time {time}"


def _size_commands(entry: Entry) -> Sequence[Command]:
    return (("SCARD", entry.name), ("ZSCORE", k.GROUPS(), entry.parts[0]))


def _check_size(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    size, listed = replies
    return None if listed == size else f"has {size} articles, but `{k.GROUPS()}` has {listed}"


def _comment_commands(entry: Entry) -> Sequence[Command]:
    id, note = entry.parts
    author = entry.value.get("username", "")
    return (
        ("ZSCORE", k.ARTICLE_COMMENTS(id), note),
        ("ZSCORE", k.USER_ARTICLE_COMMENTS(author), f"{id}-{note}"),
    )


def _check_comment(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    created, indexed = replies
    if created is None:
        return "is missing in its article's comments"
    return None if indexed == created else "is missing in its author's comments, or has another time there"


def _comment_index_commands(entry: Entry) -> Sequence[Command]:
    return (("HGET", k.ARTICLE_COMMENT(*entry.ids), "username"),)


def _check_comment_index(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return None if replies[0] == entry.parts[0] else f"has {entry.member}, a comment of {replies[0]}"


INVARIANTS = Invariants(
    [
        *DISCUSSIONS.invariants("thread <article> <note> <note>"),
        Invariant("comment", k.ARTICLE_COMMENT, _comment_commands, _check_comment, per_key=True),
        Invariant("comment", k.USER_ARTICLE_COMMENTS, _comment_index_commands, _check_comment_index),
        Invariant("votes", k.ARTICLE, _votes_commands, _check_votes, "votes <article>", per_key=True),
        Invariant("ranking", k.ARTICLE, _ranking_commands, _check_ranking, per_key=True),
        Invariant("author", k.ARTICLE, _author_index_commands, _check_author_index, per_key=True),
        Invariant("votes", k.ARTICLE_UP, _other_vote_commands, _check_other_vote, "votes <article>"),
        Invariant("votes", k.ARTICLE_UP, _voter_commands, _check_voter),
        Invariant("votes", k.ARTICLE_DOWN, _voter_commands, _check_voter),
        Invariant("votes", k.USER_VOTES, _vote_set_commands, _check_vote_set),
        Invariant("author", k.USER_ARTICLES, _author_commands, _check_author),
        Invariant("size", k.GROUP, _size_commands, _check_size, "group_size <group>", per_key=True),
    ],
    REPAIRS,
)
