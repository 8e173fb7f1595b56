"""What is always true of the keys of articles, beyond the lines in `keys.py`: votes, and the scores that follow.

The formulas are written here once more, in Python: whoever checks a sum does not copy it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from plaza.articles import keys as k
from plaza.articles.model import score
from plaza.core.invariants import Command, Entry, Invariant, Invariants
from plaza.core.keyspace import Key

MENDS = {
    "article": k.ARTICLE,
    "vote": k.ARTICLE,
    "group": k.ARTICLE,
    "posted": k.ARTICLE,
    "sized": k.GROUP,
}

_HOT_EPOCH, _HOT_SECONDS, _Z = 1134028003, 45_000, 1.281551565545


def _hot(time: float, votes: int) -> float:
    return math.copysign(math.log10(max(abs(votes), 1)), votes) + (time - _HOT_EPOCH) / _HOT_SECONDS


def _best(ups: int, downs: int) -> float:
    n = ups + downs
    if n == 0:
        return 0.0
    share, zz = ups / n, _Z * _Z
    return (share + zz / (2 * n) - _Z * math.sqrt((share * (1 - share) + zz / (4 * n)) / n)) / (1 + zz / n)


def _controversial(ups: int, downs: int) -> float:
    return (ups + downs) ** (min(ups, downs) / max(ups, downs)) if ups and downs else 0.0


def _asks_votes(entry: Entry) -> Sequence[Command]:
    id = entry.parts[0]
    return (("SCARD", k.ARTICLE_UP(id)), ("SCARD", k.ARTICLE_DOWN(id)))


def _votes(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    ups, downs = replies
    votes = entry.value["votes"]
    return None if votes == str(ups - downs) else f"votes is {votes}, with {ups} up and {downs} down"


def _asks_ranking(entry: Entry) -> Sequence[Command]:
    id = entry.parts[0]
    scores = (("ZSCORE", key(), f"article:{id}") for key in k.RANKINGS.values())
    return (*_asks_votes(entry), *scores, ("GET", k.ARTICLES_LAST()))


def _ranking(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    ups, downs, *scores, last = replies
    time, votes = float(entry.value["time"]), int(entry.value["votes"])
    ought = {
        "score": score(time, votes),
        "time": time,
        "hot": _hot(time, votes),
        "best": _best(ups, downs),
        "controversial": _controversial(ups, downs),
    }
    for order, has in zip(k.RANKINGS, scores, strict=True):
        if has is None or not math.isclose(has, ought[order], rel_tol=1e-9, abs_tol=1e-9):
            return f"is at {has} in `{k.RANKINGS[order]()}`, and the formula gives {ought[order]}"
    if int(last or 0) < int(entry.parts[0]):
        return f"has a higher id than `{k.ARTICLES_LAST()}`, which is {last}"
    return None


def _asks_posted(entry: Entry) -> Sequence[Command]:
    username = entry.value["author"].removeprefix("user:")
    return (("ZSCORE", k.PERSON_ARTICLES(username), f"article:{entry.parts[0]}"),)


def _posted(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if replies[0] == float(entry.value["time"]):
        return None
    return "is not among what its author posted, or at another time"


def _asks_cast(other: Key) -> Any:
    def asks(entry: Entry) -> Sequence[Command]:
        id = entry.parts[0]
        member = f"article:{id}"
        return (("SISMEMBER", other(id), entry.member), ("ZSCORE", k.PERSON_VOTES(entry.ids[0]), member))

    return asks


def _cast(sign: int) -> Any:
    def judge(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        both, said = replies
        if both:
            return f"has {entry.member}, who is in the other set too"
        return None if said == sign else f"has {entry.member}, whose own list says {said}"

    return judge


def _asks_voted(entry: Entry) -> Sequence[Command]:
    key = k.ARTICLE_UP if entry.value > 0 else k.ARTICLE_DOWN
    return (("SISMEMBER", key(entry.ids[0]), f"user:{entry.parts[0]}"),)


def _voted(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    fits = replies[0] and entry.value in (1, -1)
    return None if fits else f"has {entry.value:.0f} for {entry.member}, which knows of no such vote"


def _asks_author(entry: Entry) -> Sequence[Command]:
    return (("HMGET", k.ARTICLE(entry.ids[0]), "author", "time"),)


def _author(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    author, time = replies[0]
    fits = author is None or (author == f"user:{entry.parts[0]}" and float(time) == entry.value)
    return None if fits else f"has {entry.member} at {entry.value}, and it is by {author} at {time}"


def _asks_size(entry: Entry) -> Sequence[Command]:
    return (("SCARD", entry.name), ("ZSCORE", k.GROUPS(), entry.parts[0]))


def _size(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    size, said = replies
    return None if said == size else f"has {size} articles, and `{k.GROUPS()}` says {said}"


def _asks_member(entry: Entry) -> Sequence[Command]:
    return (("SISMEMBER", k.GROUP(entry.parts[0]), entry.member),)


def _member(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return None if replies[0] else f"has {entry.member}, which is not in the group"


INVARIANTS = Invariants(
    [
        Invariant("votes", k.ARTICLE, _asks_votes, _votes, per_key=True),
        Invariant("ranking", k.ARTICLE, _asks_ranking, _ranking, per_key=True),
        Invariant("author", k.ARTICLE, _asks_posted, _posted, per_key=True),
        Invariant("votes", k.ARTICLE_UP, _asks_cast(k.ARTICLE_DOWN), _cast(1)),
        Invariant("votes", k.ARTICLE_DOWN, _asks_cast(k.ARTICLE_UP), _cast(-1)),
        Invariant("votes", k.PERSON_VOTES, _asks_voted, _voted),
        Invariant("author", k.PERSON_ARTICLES, _asks_author, _author),
        Invariant("size", k.GROUP, _asks_size, _size, "sized <group>", per_key=True),
        *(Invariant("listed", key, _asks_member, _member) for key in k.CUTS.values()),
    ],
    MENDS,
)
