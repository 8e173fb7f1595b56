"""Invariants of social's keys beyond those in `keys.py`: which list has which post or user, with which score.

All lists of posts send the same command for a post, so the audit sends it once for a whole page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaza.core.comment_tree_invariants import TreeFamilies
from plaza.core.invariants import REPORT_ONLY, Command, Entry, Invariant, Invariants
from plaza.core.keyspace import Key
from plaza.core.number_parsing import parse_int
from plaza.core.passwords import is_supported_hash
from plaza.core.roles import ROLES
from plaza.social import keys as k
from plaza.social.hashtags import MAX_TAGS, tags_in
from plaza.social.model import RANKED_MS, points, score

# A stored score may be off by 2%. The rest allows for clock differences and the time between read and check.
SCORE_TOLERANCE = 0.0205

REPAIR_OWNERS = {
    "user": k.USER,
    "user_counts": k.USER,
    "gone": k.USER,
    "leaving": k.USER_LEAVING,
    "auth": k.AUTH_USER,
    "version": k.USER_VERSION,
    "follow": k.USER,
    "block": k.USER_BLOCKED,
    "mute": k.USER_MUTED,
    "bookmark": k.USER_BOOKMARKED,
    "points": k.USER_POINTS,
    "style": k.USER,
    "post": k.POST,
    "post_counts": k.POST,
    "authored": k.POST,
    "pointed": k.POST,
    "tagged": k.POST,
    "like": k.POST,
    "comment": k.POST,
    "commented": k.COMMENT,
    "thread": k.POST,
    "comment_edits": k.COMMENT_EDITS,
    "renamed": k.USERS_RENAMED,
}

_POST_FIELDS = (
    "user_id",
    "created_at",
    "content",
    "hashtags",
    "banned",
    "banned_at",
    "likesCount",
    "commentsCount",
    "bookmarksCount",
)


class PostState:
    """The fields of a post that the invariants compare."""

    __slots__ = ("author", "banned_at", "created", "exists", "has_tags_field", "points", "shown", "tags")

    def __init__(self, values: Sequence[str | None]) -> None:
        author, created, content, tags, banned, banned_at, *counts = values
        self.exists = any(value is not None for value in values)
        self.author = author  # None also if another service left it out, which is a finding of the post itself
        self.created = parse_int(created, None)  # None if another service left it out
        # A post that another service wrote has no `hashtags`: its tags are those of the text and the hashtag keys.
        self.has_tags_field = tags is not None
        self.tags = tags_in(content or "")[:MAX_TAGS] if tags is None else [tag for tag in tags.split(",") if tag]
        self.shown = banned is None
        self.banned_at = parse_int(banned_at)
        likes, comments, bookmarks = map(parse_int, counts)
        self.points = points(likes, comments, bookmarks)

    @staticmethod
    def command(post: str) -> Command:
        return ("HMGET", k.POST(post), *_POST_FIELDS)

    @classmethod
    def from_hash(cls, fields: dict[str, str]) -> PostState:
        return cls([fields.get(name) for name in _POST_FIELDS])

    def is_ranked(self, now: int) -> bool:
        return self.shown and bool(self.tags) and now - (self.created or 0) <= RANKED_MS


def _listed(name: str, key: Key, wrong: Any, repair: str = "") -> Invariant:
    """Return an invariant for a list of posts: `wrong(entry, post)` returns what is wrong, or None."""

    def reads(entry: Entry) -> Sequence[Command]:
        return (PostState.command(entry.ids[0]),)

    def check(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        post = PostState(replies[0])
        if not post.exists:
            return f"has {entry.member}, which does not exist"
        finding: str | None = wrong(entry, post) if post.author is not None else None
        return finding

    return Invariant(name, key, reads, check, repair)


def _at_creation(entry: Entry, post: PostState) -> str | None:
    if post.created is not None and entry.value != post.created:
        return f"has {entry.member} at {entry.value:.0f}, but was created at {post.created}"
    return None


def _check_explored(entry: Entry, post: PostState) -> str | None:
    return f"has {entry.member}, which is banned" if not post.shown else _at_creation(entry, post)


def _check_banned(entry: Entry, post: PostState) -> str | None:
    if post.shown:
        return f"has {entry.member}, which is not banned"
    if entry.value != post.banned_at:
        return f"has {entry.member} at {entry.value:.0f}, but it was banned at {post.banned_at}"
    return None


def _check_tagged(entry: Entry, post: PostState) -> str | None:
    if post.has_tags_field and entry.parts[0] not in post.tags:
        return f"has {entry.member}, which does not have the hashtag"
    return _check_explored(entry, post)


def _check_written(entry: Entry, post: PostState) -> str | None:
    if post.author != entry.parts[0]:
        return f"has {entry.member}, a post of {post.author}"
    return _at_creation(entry, post)


def _check_ranking_record(entry: Entry, post: PostState) -> str | None:
    created, _, rest = entry.value.partition("|")
    expected = str(post.created or 0), ",".join(post.tags)
    if not post.shown or (created, rest.partition("|")[2]) != expected:
        return f"has {entry.value!r} for {entry.member}, expected {'|0|'.join(expected)!r}"
    return None


def _reads_ranked(entry: Entry) -> Sequence[Command]:
    return (PostState.command(entry.ids[0]), ("ZSCORE", k.RANKING_DUE(), entry.ids[0]))


def _check_ranked(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    post, due = PostState(replies[0]), replies[1]
    if not post.exists:
        return f"has {entry.member}, which does not exist"
    if post.author is None:
        return None
    if not post.shown or (post.has_tags_field and entry.parts[0] not in post.tags):
        return f"has {entry.member}, which is banned or does not have the hashtag"
    if due is not None and due <= now:
        return None  # due: a worker will rescore it
    if not post.is_ranked(now) and entry.value:
        return f"has {entry.member}, which is older than 14 days"
    expected = score(post.points, post.created or 0, now)
    if abs(entry.value - expected) > SCORE_TOLERANCE * expected + 1e-9:
        return f"has {entry.member} at {entry.value:.4g}, expected {expected:.4g}"
    return None


def _reads_standing(entry: Entry) -> Sequence[Command]:
    post, author = entry.parts[0], entry.value.get("user_id", "")
    return (
        ("ZSCORE", k.EXPLORE_FEED(), post),
        ("HGET", k.USER_POINTS(author), post),
        ("ZSCORE", k.RANKING_DUE(), post),
        ("HGET", k.RANKING_POSTS(), post),
        *([("ZSCORE", k.POSTS_BANNED(), post)] if author and "banned" in entry.value else []),
    )


def _check_standing(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    post = PostState.from_hash(entry.value)
    explored, counted, due, noted, *banned = replies
    if banned == [None]:
        return "is banned but missing in `posts:banned`"
    if (explored is not None) != post.shown:
        return "is not banned but missing in `explore:feed`" if post.shown else "is banned but in `explore:feed`"
    expected = str(post.points) if post.shown and post.points else None
    if counted != expected:
        return f"counts {counted or 0} points for its author, expected {expected or 0}"
    if post.is_ranked(now) and (due is None or noted is None):
        return "is not queued for rescoring"
    return None


def _reads_authored(entry: Entry) -> Sequence[Command]:
    return (("ZSCORE", k.USER_POSTS(entry.value.get("user_id", "")), entry.parts[0]),)


def _check_authored(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    fields = entry.value
    if fields.get("id") != entry.parts[0] or fields.get("username") != fields.get("user_id"):
        return "has a wrong id or username"
    return None if replies[0] is not None else "is missing in its author's posts"


def _reads_tags(entry: Entry) -> Sequence[Command]:
    post, tags = entry.parts[0], PostState.from_hash(entry.value).tags
    return [("ZSCORE", key(tag), post) for tag in tags for key in (k.HASHTAG_POSTS, k.HASHTAG_RANKED)]


def _check_tags(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    post = PostState.from_hash(entry.value)
    if not post.shown:
        return None  # the lists themselves are checked for banned posts
    for i, tag in enumerate(post.tags):
        posted, ranked = replies[2 * i : 2 * i + 2]
        if posted is None:
            return f"is not in `{k.HASHTAG_POSTS(tag)}`"
        if ranked is None and post.is_ranked(now):
            return f"is not in `{k.HASHTAG_RANKED(tag)}`"
    return None


_COPIED = {"avatar": "avatar", "display_name": "display_name", "user_role": "role", "user_version": "version"}


def _reads_copy(entry: Entry) -> Sequence[Command]:
    author = entry.value.get("user_id", "")
    return (("HMGET", k.USER(author), *_COPIED.values()), ("GET", k.USER_VERSION(author)))


def _check_copy(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if all(value is None for value in replies[0]):
        return None  # no author: the reference is checked elsewhere
    for (mine, theirs), value in zip(_COPIED.items(), replies[0], strict=True):
        copied = entry.value.get(mine)
        if mine == "user_version":
            differs = parse_int(copied) != parse_int(replies[1] or value)
        elif mine == "user_role":
            differs = _role(copied) != _role(value)
        else:
            differs = (copied or "") != (value or "")
        if differs:
            return f"has {mine} {copied!r}, but its author has {theirs} {value!r}"
    return None


def _restyling(entry: Entry) -> Sequence[Command]:
    return (("HEXISTS", k.USERS_RESTYLE(), entry.value.get("user_id", "")),)


def _reads_registry(entry: Entry) -> Sequence[Command]:
    name = entry.parts[0]
    registries = (k.USERS_REGULAR(), k.USERS_MODELS(), k.MODELS_TOP_ENGAGEMENT())
    return (*(("ZSCORE", registry, name) for registry in registries), ("HGET", k.USER_POINTS(name), "total"))


def _check_registry(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    role, created = _role(entry.value.get("role")), entry.value.get("created_at")
    regular, model, leader, total = replies
    if not _is_registered(regular, created, listed=role == "user"):
        return f"has role {role}, but `{k.USERS_REGULAR()}` has {regular}"
    if not _is_registered(model, created, listed=role == "model"):
        return f"has role {role}, but `{k.USERS_MODELS()}` has {model}"
    if leader != (float(parse_int(total)) if role == "model" else None):
        return f"has role {role} and {total or 0} points, but the leaderboard has {leader}"
    if entry.value.get("username", entry.parts[0]) != entry.parts[0]:
        return f"has username {entry.value.get('username')}"
    return None


def _role(stored: str | None) -> str:
    """Return the role that Plaza takes a user to have: another service may have left it out."""
    return stored if stored in ROLES else "user"


def _is_registered(score: float | None, created_at: str | None, *, listed: bool) -> bool:
    """Return whether a registry has a user as it should. Without a valid `created_at`, any score is right."""
    if not listed or score is None:
        return score is None and not listed
    created = parse_int(created_at, None)
    return created is None or score == created


def _check_no_password(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    found = [name for name in ("password", "password_hash") if name in entry.value]
    return f"holds a {found[0]}; remove it when no other service needs it" if found else None


def _reads_credentials(entry: Entry) -> Sequence[Command]:
    return (("HGET", k.AUTH_USER(entry.parts[0]), "password_hash"),)


def _check_credentials(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    auth = k.AUTH_USER(entry.parts[0])
    if replies[0] is None and is_supported_hash(entry.value.get("password_hash", "")):
        return f"holds a password_hash that `{auth}` lacks"
    found = [name for name in ("suspended_at", "suspended_by") if name in entry.value]
    return f"holds {found[0]}, which belongs to `{auth}`" if found else None


def _no_reads(entry: Entry) -> Sequence[Command]:
    return ()


def _reads_role(entry: Entry) -> Sequence[Command]:
    return (("HMGET", k.USER(entry.ids[0]), "role", "created_at", "username"),)


def _check_in_registry(role: str) -> Any:
    def check(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        has, created, username = replies[0]
        if (has is None and username is None and created is None) or _role(has) != role:
            return f"has {entry.member}, whose role is {has or 'missing'}"
        if parse_int(created, None) not in (None, entry.value):
            return f"has {entry.member} at {entry.value:.0f}, but the account was created at {created}"
        return None

    return check


def _check_leader(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    (role, _, _), total = replies
    if role != "model":
        return f"has {entry.member}, whose role is {role or 'missing'}"
    expected = parse_int(total)
    return None if expected == entry.value else f"has {entry.member} at {entry.value:.0f}, expected {expected}"


def _reads_leader(entry: Entry) -> Sequence[Command]:
    return (*_reads_role(entry), ("HGET", k.USER_POINTS(entry.ids[0]), "total"))


def _reads_points(entry: Entry) -> Sequence[Command]:
    return () if entry.member == "total" else (PostState.command(entry.member),)


def _check_points(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if entry.member == "total":
        return None
    post = PostState(replies[0])
    expected = post.points if post.author == entry.parts[0] and post.shown else 0
    return None if str(expected) == entry.value else f"has {entry.value} for {entry.member}, expected {expected}"


def _reads_sum(entry: Entry) -> Sequence[Command]:
    return (("HVALS", entry.name), ("HGET", entry.name, "total"))


def _check_sum(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    total = parse_int(replies[1])
    expected = sum(map(parse_int, replies[0])) - total
    return None if total == expected else f"total is {total}, expected {expected}"


def _reads_comment(entry: Entry) -> Sequence[Command]:
    fields, id = entry.value, entry.parts[0]
    return (
        ("ZSCORE", k.POST_COMMENTS_RECENT(fields.get("post_id", "")), id),
        ("ZSCORE", k.USER_COMMENTS(fields.get("username", "")), id),
        ("HGET", k.POST_COMMENT_PARENTS(fields.get("post_id", "")), id),
    )


def _check_comment(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if replies[0] is None:
        return "is missing in its post's comments"
    if replies[1] is None:
        return "is missing in its author's comments"
    if replies[2] != entry.value.get("reply_to"):
        return f"replies to {entry.value.get('reply_to')}, but its post says {replies[2]}"
    return None


def _reads_commented(entry: Entry) -> Sequence[Command]:
    return (("HGET", k.COMMENT(entry.ids[0]), "username"),)


def _check_commented(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    wrong = replies[0] is not None and replies[0] != entry.parts[0]
    return f"has {entry.member}, a comment of {replies[0]}" if wrong else None


def _reads_leaving(entry: Entry) -> Sequence[Command]:
    return (("ZSCORE", k.USERS_LEAVING(), entry.parts[0]),)


def _reads_mark(entry: Entry) -> Sequence[Command]:
    return (("EXISTS", k.USER_LEAVING(entry.ids[0])),)


THREADS = TreeFamilies(
    all=k.POST_COMMENTS_RECENT,
    parents=k.POST_COMMENT_PARENTS,
    replies=k.POST_COMMENT_REPLIES,
    stubs=k.POST_COMMENT_STUBS,
    top=k.POST_COMMENTS_TOP,
)

INVARIANTS = Invariants(
    [
        *THREADS.invariants("thread <post> <comment> <comment>"),
        _listed("listed", k.EXPLORE_FEED, _check_explored),
        _listed("listed", k.POSTS_BANNED, _check_banned),
        _listed("listed", k.HASHTAG_POSTS, _check_tagged),
        _listed("listed", k.USER_POSTS, _check_written),
        _listed("record", k.RANKING_POSTS, _check_ranking_record),
        Invariant("score", k.HASHTAG_RANKED, _reads_ranked, _check_ranked),
        Invariant("standing", k.POST, _reads_standing, _check_standing, per_key=True),
        Invariant("author", k.POST, _reads_authored, _check_authored, per_key=True),
        Invariant("tags", k.POST, _reads_tags, _check_tags, per_key=True),
        Invariant("copy", k.POST, _reads_copy, _check_copy, "style <username> <post>", per_key=True, unless=_restyling),
        Invariant("registry", k.USER, _reads_registry, _check_registry, per_key=True),
        Invariant("secret", k.USER, _no_reads, _check_no_password, REPORT_ONLY, per_key=True),
        Invariant("credentials", k.USER, _reads_credentials, _check_credentials, per_key=True),
        Invariant("listed", k.USERS_REGULAR, _reads_role, _check_in_registry("user")),
        Invariant("listed", k.USERS_MODELS, _reads_role, _check_in_registry("model")),
        Invariant("sum", k.MODELS_TOP_ENGAGEMENT, _reads_leader, _check_leader),
        Invariant("points", k.USER_POINTS, _reads_points, _check_points, "pointed <post> <username>"),
        Invariant("sum", k.USER_POINTS, _reads_sum, _check_sum, per_key=True),
        Invariant("comment", k.COMMENT, _reads_comment, _check_comment, per_key=True),
        Invariant("comment", k.USER_COMMENTS, _reads_commented, _check_commented),
        Invariant(
            "renamed",
            k.USERS_RENAMED,
            lambda entry: (("EXISTS", k.USER(entry.value)),),
            lambda entry, replies, now: None if replies[0] else f"leads to {entry.value}, who does not exist",
        ),
        Invariant(
            "leaving",
            k.USER_LEAVING,
            _reads_leaving,
            lambda entry, replies, now: None if replies[0] is not None else "is missing in `users:leaving`",
            per_key=True,
        ),
        Invariant(
            "leaving",
            k.USERS_LEAVING,
            _reads_mark,
            lambda entry, replies, now: None if replies[0] else f"has {entry.member}, who is not being deleted",
        ),
    ],
    REPAIR_OWNERS,
)
