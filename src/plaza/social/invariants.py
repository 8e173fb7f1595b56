"""What is always true of social's keys beyond the lines in `keys.py`: who stands where, and at which score.

Lists of posts all ask the same of a post, in the same words, so that the audit asks it once for a whole page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaza.core.invariants import Command, Entry, Invariant, Invariants
from plaza.core.keyspace import Key
from plaza.social import keys as k
from plaza.social.model import RANKED_MS, points, score

# A stored score may be off by 2%; the rest is for clocks and for the moment between reading and judging.
SCORE_TOLERANCE = 0.0205

REPAIR_OWNERS = {
    "user": k.USER,
    "gone": k.USER,
    "leaving": k.USER_LEAVING,
    "auth": k.AUTH_USER,
    "follow": k.USER,
    "block": k.USER_BLOCKED,
    "mute": k.USER_MUTED,
    "bookmark": k.USER_BOOKMARKED,
    "points": k.USER_POINTS,
    "style": k.USER,
    "post": k.POST,
    "authored": k.POST,
    "pointed": k.POST,
    "tagged": k.POST,
    "like": k.POST,
    "comment": k.POST,
    "commented": k.COMMENT,
}

_FACTS = ("user_id", "created_at", "hashtags", "banned", "likesCount", "commentsCount", "bookmarksCount")


class PostState:
    """What a post says of itself, as the lists ask for it."""

    __slots__ = ("author", "created", "points", "shown", "tags")

    def __init__(self, told: Sequence[str | None]) -> None:
        author, created, tags, banned, *counts = told
        self.author = author
        self.created = _whole(created)
        self.tags = [tag for tag in (tags or "").split(",") if tag]
        self.shown = banned is None
        likes, comments, bookmarks = map(_whole, counts)
        self.points = points(likes, comments, bookmarks)

    @staticmethod
    def asked(post: str) -> Command:
        return ("HMGET", k.POST(post), *_FACTS)

    @classmethod
    def of(cls, fields: dict[str, str]) -> PostState:
        return cls([fields.get(name) for name in _FACTS])

    def is_ranked(self, now: int) -> bool:
        return self.shown and bool(self.tags) and now - self.created <= RANKED_MS


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _listed(name: str, key: Key, wrong: Any, repair: str = "") -> Invariant:
    """A rule for a list of posts: `wrong(entry, facts)` says what does not fit."""

    def asks(entry: Entry) -> Sequence[Command]:
        return (PostState.asked(entry.ids[0]),)

    def judge(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        facts = PostState(replies[0])
        if facts.author is None:
            return f"has {entry.member}, which does not exist"
        says: str | None = wrong(entry, facts)
        return says

    return Invariant(name, key, asks, judge, repair)


def _at_creation(entry: Entry, facts: PostState) -> str | None:
    if entry.value != facts.created:
        return f"has {entry.member} at {entry.value:.0f}, and it was made at {facts.created}"
    return None


def _explored(entry: Entry, facts: PostState) -> str | None:
    return f"has {entry.member}, which is banned" if not facts.shown else _at_creation(entry, facts)


def _tagged(entry: Entry, facts: PostState) -> str | None:
    if entry.parts[0] not in facts.tags:
        return f"has {entry.member}, which has not the tag"
    return _explored(entry, facts)


def _written(entry: Entry, facts: PostState) -> str | None:
    if facts.author != entry.parts[0]:
        return f"has {entry.member}, which is {facts.author}'s"
    return _at_creation(entry, facts)


def _noted_for_ranking(entry: Entry, facts: PostState) -> str | None:
    ought = f"{facts.created}|{facts.points}|{','.join(facts.tags)}"
    if not facts.shown or entry.value != ought:
        return f"has {entry.value!r} for {entry.member}, and the post says {ought!r}"
    return None


def _asks_ranked(entry: Entry) -> Sequence[Command]:
    return (PostState.asked(entry.ids[0]), ("ZSCORE", k.RANKING_DUE(), entry.ids[0]))


def _ranked(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    facts, due = PostState(replies[0]), replies[1]
    if facts.author is None:
        return f"has {entry.member}, which does not exist"
    if not facts.shown or entry.parts[0] not in facts.tags:
        return f"has {entry.member}, which is banned or has not the tag"
    if due is not None and float(due) <= now:
        return None  # a worker is about to score it again, whatever it has now
    if not facts.is_ranked(now):
        return f"has {entry.member}, which is older than 14 days"
    ought = score(facts.points, facts.created, now)
    if abs(float(entry.value) - ought) > SCORE_TOLERANCE * ought + 1e-9:
        return f"has {entry.member} at {entry.value:.4g}, and the formula gives {ought:.4g}"
    return None


def _asks_standing(entry: Entry) -> Sequence[Command]:
    post, author = entry.parts[0], entry.value.get("user_id", "")
    return (
        ("ZSCORE", k.EXPLORE_FEED(), post),
        ("HGET", k.USER_POINTS(author), post),
        ("ZSCORE", k.RANKING_DUE(), post),
        ("HGET", k.RANKING_POSTS(), post),
    )


def _standing(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    facts = PostState.of(entry.value)
    explored, counted, due, noted = replies
    if (explored is not None) != facts.shown:
        return "is shown and not in `explore:feed`" if facts.shown else "is banned and in `explore:feed`"
    ought = str(facts.points) if facts.shown and facts.points else None
    if counted != ought:
        return f"counts {counted or 0} points for its author, and has {ought or 0}"
    if facts.is_ranked(now) and (due is None or noted is None):
        return "is in no queue to be scored again"
    return None


def _asks_authored(entry: Entry) -> Sequence[Command]:
    return (("ZSCORE", k.USER_POSTS(entry.value.get("user_id", "")), entry.parts[0]),)


def _authored(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    fields = entry.value
    if fields.get("id") != entry.parts[0] or fields.get("username") != fields.get("user_id"):
        return "does not agree with itself on its id or its author"
    return None if replies[0] is not None else "is not among its author's posts"


def _asks_tags(entry: Entry) -> Sequence[Command]:
    post, tags = entry.parts[0], PostState.of(entry.value).tags
    return [("ZSCORE", key(tag), post) for tag in tags for key in (k.HASHTAG_POSTS, k.HASHTAG_RANKED)]


def _tags(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    facts = PostState.of(entry.value)
    if not facts.shown:
        return None  # that it is nowhere is for those lists to say
    for i, tag in enumerate(facts.tags):
        posted, ranked = replies[2 * i : 2 * i + 2]
        if posted is None:
            return f"is not in `{k.HASHTAG_POSTS(tag)}`"
        if ranked is None and facts.is_ranked(now):
            return f"is not in `{k.HASHTAG_RANKED(tag)}`"
    return None


_COPIED = {"avatar": "avatar", "display_name": "display_name", "user_role": "role", "user_version": "version"}


def _asks_style(entry: Entry) -> Sequence[Command]:
    return (("HMGET", k.USER(entry.value.get("user_id", "")), *_COPIED.values()),)


def _style(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if replies[0][2] is None:
        return None  # no author: the reference says so
    for (mine, theirs), value in zip(_COPIED.items(), replies[0], strict=True):
        if entry.value.get(mine, "") != (value or ("0" if mine == "user_version" else "")):
            return f"shows {mine} {entry.value.get(mine)!r}, and its author has {theirs} {value!r}"
    return None


def _restyling(entry: Entry) -> Sequence[Command]:
    return (("HEXISTS", k.USERS_RESTYLE(), entry.value.get("user_id", "")),)


def _asks_registry(entry: Entry) -> Sequence[Command]:
    name = entry.parts[0]
    registries = (k.USERS_REGULAR(), k.USERS_MODELS(), k.MODELS_TOP_ENGAGEMENT())
    return (*(("ZSCORE", registry, name) for registry in registries), ("HGET", k.USER_POINTS(name), "total"))


def _registry(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    role, created = entry.value.get("role"), float(_whole(entry.value.get("created_at")))
    regular, model, leader, total = replies
    if regular != (created if role == "user" else None):
        return f"is {role}, and `{k.USERS_REGULAR()}` has it at {regular}"
    if model != (created if role == "model" else None):
        return f"is {role}, and `{k.USERS_MODELS()}` has it at {model}"
    if leader != (float(_whole(total)) if role == "model" else None):
        return f"is {role} with {total or 0} points, and the leaderboard has it at {leader}"
    if entry.value.get("username") != entry.parts[0]:
        return f"says that its name is {entry.value.get('username')}"
    return None


def _no_password(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    found = [name for name in ("password", "password_hash") if name in entry.value]
    return f"holds a {found[0]}" if found else None


def _nothing(entry: Entry) -> Sequence[Command]:
    return ()


def _asks_role(entry: Entry) -> Sequence[Command]:
    return (("HMGET", k.USER(entry.ids[0]), "role", "created_at"),)


def _in_registry(role: str) -> Any:
    def judge(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        has, created = replies[0]
        if has != role:
            return f"has {entry.member}, who is {has or 'nobody'}"
        if float(_whole(created)) != entry.value:
            return f"has {entry.member} at {entry.value:.0f}, and the account was made at {created}"
        return None

    return judge


def _leader(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    (role, _), total = replies
    if role != "model":
        return f"has {entry.member}, who is {role or 'nobody'}"
    ought = _whole(total)
    return None if ought == entry.value else f"has {entry.member} at {entry.value:.0f}, and the points are {ought}"


def _asks_leader(entry: Entry) -> Sequence[Command]:
    return (*_asks_role(entry), ("HGET", k.USER_POINTS(entry.ids[0]), "total"))


def _asks_points(entry: Entry) -> Sequence[Command]:
    return () if entry.member == "total" else (PostState.asked(entry.member),)


def _points(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if entry.member == "total":
        return None
    facts = PostState(replies[0])
    ought = facts.points if facts.author == entry.parts[0] and facts.shown else 0
    return None if str(ought) == entry.value else f"has {entry.value} for {entry.member}, which has {ought}"


def _asks_sum(entry: Entry) -> Sequence[Command]:
    return (("HVALS", entry.name), ("HGET", entry.name, "total"))


def _sum(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    total = _whole(replies[1])
    ought = sum(map(_whole, replies[0])) - total
    return None if total == ought else f"total is {total}, and the posts have {ought}"


def _asks_comment(entry: Entry) -> Sequence[Command]:
    fields, id = entry.value, entry.parts[0]
    return (
        ("ZSCORE", k.POST_COMMENTS_RECENT(fields.get("post_id", "")), id),
        ("ZSCORE", k.USER_COMMENTS(fields.get("username", "")), id),
    )


def _comment(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if replies[0] is None:
        return "is not among its post's comments"
    return "is not among its author's comments" if replies[1] is None else None


def _asks_commented(entry: Entry) -> Sequence[Command]:
    return (("HGET", k.COMMENT(entry.ids[0]), "username"),)


def _commented(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    wrong = replies[0] is not None and replies[0] != entry.parts[0]
    return f"has {entry.member}, which is {replies[0]}'s" if wrong else None


def _asks_leaving(entry: Entry) -> Sequence[Command]:
    return (("ZSCORE", k.USERS_LEAVING(), entry.parts[0]),)


def _asks_mark(entry: Entry) -> Sequence[Command]:
    return (("EXISTS", k.USER_LEAVING(entry.ids[0])),)


INVARIANTS = Invariants(
    [
        _listed("listed", k.EXPLORE_FEED, _explored),
        _listed("listed", k.HASHTAG_POSTS, _tagged),
        _listed("listed", k.USER_POSTS, _written),
        _listed("record", k.RANKING_POSTS, _noted_for_ranking),
        Invariant("score", k.HASHTAG_RANKED, _asks_ranked, _ranked),
        Invariant("standing", k.POST, _asks_standing, _standing, per_key=True),
        Invariant("author", k.POST, _asks_authored, _authored, per_key=True),
        Invariant("tags", k.POST, _asks_tags, _tags, per_key=True),
        Invariant("copy", k.POST, _asks_style, _style, "style <username> <post>", per_key=True, unless=_restyling),
        Invariant("registry", k.USER, _asks_registry, _registry, per_key=True),
        Invariant("secret", k.USER, _nothing, _no_password, per_key=True),
        Invariant("listed", k.USERS_REGULAR, _asks_role, _in_registry("user")),
        Invariant("listed", k.USERS_MODELS, _asks_role, _in_registry("model")),
        Invariant("sum", k.MODELS_TOP_ENGAGEMENT, _asks_leader, _leader),
        Invariant("points", k.USER_POINTS, _asks_points, _points, "pointed <post> <username>"),
        Invariant("sum", k.USER_POINTS, _asks_sum, _sum, per_key=True),
        Invariant("comment", k.COMMENT, _asks_comment, _comment, per_key=True),
        Invariant("comment", k.USER_COMMENTS, _asks_commented, _commented),
        Invariant(
            "leaving",
            k.USER_LEAVING,
            _asks_leaving,
            lambda entry, replies, now: None if replies[0] is not None else "is in no list of deletions under way",
            per_key=True,
        ),
        Invariant(
            "leaving",
            k.USERS_LEAVING,
            _asks_mark,
            lambda entry, replies, now: None if replies[0] else f"has {entry.member}, who is not being deleted",
        ),
    ],
    REPAIR_OWNERS,
)
