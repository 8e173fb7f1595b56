"""Reads all of social's keys with a plain Redis client and lists violated invariants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from plaza.core import keys
from plaza.core.keyspace import Key, KeyMatch, join_catalogues
from plaza.social import model
from plaza.social.keys import CATALOGUE

Keyspace = dict[str, dict[tuple[str, ...], Any]]


class FamilyFinder(Protocol):
    """Finds the family that a key name belongs to."""

    def __iter__(self) -> Iterator[tuple[str, Key]]: ...

    def match(self, name: str) -> KeyMatch | None: ...


ALL = join_catalogues([keys.CATALOGUE, CATALOGUE])

# What happened stays in the streams, whatever happens later.
HISTORY = (keys.EVENTS, keys.EVENTS_SHARD, keys.PUBLISHED)


async def read_all(redis_client: Any, families: FamilyFinder = ALL) -> Keyspace:
    """Read all keys but events. Returns values by family name, then by the ids in the key name."""
    names = {key: name for name, key in families}
    keyspace: Keyspace = {name: {} for name in names.values()}
    for key in await _keys(redis_client):
        match = families.match(key)
        assert match is not None, f"no catalogue declares {key}"
        if match.key in HISTORY:
            continue
        keyspace[names[match.key]][match.parts] = await _value(redis_client, key, match.key.type)
    return keyspace


async def _keys(redis_client: Any) -> list[str]:
    if hasattr(redis_client, "get_primaries"):
        return list(await redis_client.keys("*", target_nodes="primaries"))
    return list(await redis_client.keys("*"))


async def _value(redis_client: Any, key: str, kind: str) -> Any:
    if kind == "hash":
        return await redis_client.hgetall(key)
    if kind == "set":
        return await redis_client.smembers(key)
    if kind == "zset":
        return dict(await redis_client.zrange(key, 0, -1, withscores=True))
    if kind == "list":
        return await redis_client.lrange(key, 0, -1)
    return await redis_client.get(key) if kind == "string" else None


def violations(keyspace: Keyspace, now_ms: int) -> list[str]:
    """Return a message for each violated invariant."""
    messages: list[str] = []
    users = {parts[0]: fields for parts, fields in keyspace["user"].items()}
    posts = {parts[0]: fields for parts, fields in keyspace["post"].items()}

    def check(label: str, actual: Any, expected: Any) -> None:
        if actual != expected:
            messages.append(f"{label}: {actual!r}, not {expected!r}")

    def members(family: str, *parts: str) -> Any:
        return keyspace[family].get(parts, ())

    for name, user in users.items():
        check(f"{name} postCount", user["postCount"], str(len(members("user_posts", name))))
        check(f"{name} followerCount", user["followerCount"], str(len(members("user_followers", name))))
        check(f"{name} followingCount", user["followingCount"], str(len(members("user_following", name))))
    for id, post in posts.items():
        check(f"{id} likesCount", post["likesCount"], str(len(members("post_likes", id))))
        check(f"{id} bookmarksCount", post["bookmarksCount"], str(len(members("post_bookmarks", id))))
        check(f"{id} commentsCount", post["commentsCount"], str(len(members("post_comments", id))))
    _check_both_sides(keyspace, check)
    _check_owners(keyspace, users, posts, check)
    _check_feeds(keyspace, users, posts, now_ms, check)
    return messages


def _pairs(keyspace: Keyspace, family: str) -> set[tuple[str, str]]:
    return {(parts[0], str(member)) for parts, members in keyspace[family].items() for member in members}


def _swapped(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(b, a) for a, b in pairs}


def _check_both_sides(keyspace: Keyspace, check: Any) -> None:
    for one, other in (
        ("user_following", "user_followers"),
        ("user_blocked", "user_blocked_by"),
        ("user_muted", "user_muted_by"),
        ("user_bookmarked", "post_bookmarks"),
        ("user_liked", "post_likes"),
    ):
        check(f"{one} and {other}", _pairs(keyspace, one), _swapped(_pairs(keyspace, other)))
    for family in ("user_following", "user_followers", "post_likes", "post_comments"):
        check(f"{family} and its order", _pairs(keyspace, f"{family}_recent"), _pairs(keyspace, family))
    comments = {parts[0]: fields for parts, fields in keyspace["comment"].items()}
    on_posts = {(fields["post_id"], id) for id, fields in comments.items()}
    by_users = {(fields["username"], id) for id, fields in comments.items()}
    check("comments of posts", _pairs(keyspace, "post_comments"), on_posts)
    check("comments of users", _pairs(keyspace, "user_comments"), by_users)
    _check_threads(keyspace, comments, check)


def _check_threads(keyspace: Keyspace, comments: Mapping[str, Any], check: Any) -> None:
    parents = {id: to for fields in keyspace["post_comment_parents"].values() for id, to in fields.items()}
    stubs = {id for _, id in _pairs(keyspace, "post_comment_stubs")}
    replies = {(id, to) for (_, to), members in keyspace["post_comment_replies"].items() for id in members}
    top = {id for _, id in _pairs(keyspace, "post_comments_top")}
    in_threads = {id for id, fields in comments.items() if (fields["post_id"],) in keyspace["post_comment_parents"]}
    check("replies and their parents", replies, set(parents.items()))
    check("reply_to", {id: f["reply_to"] for id, f in comments.items() if "reply_to" in f}, _without(parents, stubs))
    check("stubs have replies", stubs - set(parents.values()), set())
    check("what replies to none", top, (in_threads | stubs) - parents.keys())
    check("replies of no comment", set(parents.values()) - comments.keys() - stubs, set())
    check("comment edits", {parts[0] for parts in keyspace["comment_edits"]} - comments.keys(), set())


def _without(values: Mapping[str, str], ids: set[str]) -> dict[str, str]:
    return {id: value for id, value in values.items() if id not in ids}


def _check_owners(keyspace: Keyspace, users: Mapping[str, Any], posts: Mapping[str, Any], check: Any) -> None:
    authored = {(post["user_id"], id) for id, post in posts.items()}
    check("posts of users", _pairs(keyspace, "user_posts"), authored)
    check("authors", {name for name, _ in authored} - users.keys(), set())
    for family in ("user_following", "user_followers"):
        check(f"{family} of no user", {n for pair in _pairs(keyspace, family) for n in pair} - users.keys(), set())
    for family in ("post_likes", "post_bookmarks", "post_comments", "post_edits"):
        check(f"{family} of no post", {parts[0] for parts in keyspace[family]} - posts.keys(), set())
    registry = {"users_regular": "user", "users_models": "model"}
    for family, role in registry.items():
        expected = {name: float(user["created_at"]) for name, user in users.items() if user["role"] == role}
        check(family, keyspace[family].get((), {}), expected)


def _check_feeds(
    keyspace: Keyspace, users: Mapping[str, Any], posts: Mapping[str, Any], now_ms: int, check: Any
) -> None:
    visible = {id: post for id, post in posts.items() if "banned" not in post}
    check("explore", keyspace["explore_feed"].get((), {}), {id: float(p["created_at"]) for id, p in visible.items()})
    tagged: dict[str, dict[str, float]] = {}
    for id, post in visible.items():
        for tag in filter(None, post["hashtags"].split(",")):
            tagged.setdefault(tag, {})[id] = float(post["created_at"])
    check("hashtags", {parts[0]: members for parts, members in keyspace["hashtag_posts"].items()}, tagged)
    ranked = {parts[0]: members for parts, members in keyspace["hashtag_ranked"].items()}
    recent = {
        tag: {id for id, created in members.items() if now_ms - created <= model.RANKED_MS}
        for tag, members in tagged.items()
    }
    check("ranked", {tag: set(members) for tag, members in ranked.items()}, {t: m for t, m in recent.items() if m})
    for tag, members in ranked.items():
        for id, stored in members.items():
            expected = _score(visible[id], now_ms) if id in visible else 0.0
            if abs(stored - expected) > 0.02 * expected + 1e-9:
                check(f"score of {id} in {tag}", stored, expected)
    totals = dict.fromkeys((name for name, user in users.items() if user["role"] == "model"), 0)
    for post in visible.values():
        if post["user_id"] in totals:
            totals[post["user_id"]] += _points(post)
    check("leaderboard", keyspace["models_top_engagement"].get((), {}), {n: float(t) for n, t in totals.items()})
    points = {(post["user_id"], id): str(_points(post)) for id, post in visible.items() if _points(post)}
    stored_points = {
        (p[0], id): n for p, members in keyspace["user_points"].items() for id, n in members.items() if id != "total"
    }
    check("points of posts", stored_points, points)


def _points(post: Mapping[str, str]) -> int:
    return model.points(int(post["likesCount"]), int(post["commentsCount"]), int(post["bookmarksCount"]))


def _score(post: Mapping[str, str], now_ms: int) -> float:
    return model.score(_points(post), int(post["created_at"]), now_ms)
