"""Reads all of social's keys as a plain Redis client would, and says what does not fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from plaza.core import keys
from plaza.core.keyspace import Key, KeyMatch, join_catalogues
from plaza.social import model
from plaza.social.keys import CATALOGUE

Facts = dict[str, dict[tuple[str, ...], Any]]


class Known(Protocol):
    """Who can say which family a name belongs to."""

    def __iter__(self) -> Iterator[tuple[str, Key]]: ...

    def match(self, name: str) -> KeyMatch | None: ...


ALL = join_catalogues([keys.CATALOGUE, CATALOGUE])


async def read_all(redis_client: Any, known: Known = ALL) -> Facts:
    """Everything, by the name its family has in the catalogue and the ids in its name."""
    names = {key: name for name, key in known}
    facts: Facts = {name: {} for name in names.values()}
    for key in await _keys(redis_client):
        match = known.match(key)
        assert match is not None, f"no catalogue declares {key}"
        facts[names[match.key]][match.parts] = await _value(redis_client, key, match.key.type)
    return facts


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


def faults(facts: Facts, now_ms: int) -> list[str]:
    """What is not as the document says; nothing if all is well."""
    found: list[str] = []
    users = {parts[0]: fields for parts, fields in facts["user"].items()}
    posts = {parts[0]: fields for parts, fields in facts["post"].items()}

    def check(says: str, seen: Any, wanted: Any) -> None:
        if seen != wanted:
            found.append(f"{says}: {seen!r}, not {wanted!r}")

    def of(family: str, *parts: str) -> Any:
        return facts[family].get(parts, ())

    for name, user in users.items():
        check(f"{name} postCount", user["postCount"], str(len(of("user_posts", name))))
        check(f"{name} followerCount", user["followerCount"], str(len(of("user_followers", name))))
        check(f"{name} followingCount", user["followingCount"], str(len(of("user_following", name))))
    for id, post in posts.items():
        check(f"{id} likesCount", post["likesCount"], str(len(of("post_likes", id))))
        check(f"{id} bookmarksCount", post["bookmarksCount"], str(len(of("post_bookmarks", id))))
        check(f"{id} commentsCount", post["commentsCount"], str(len(of("post_comments", id))))
    _check_sides(facts, check)
    _check_owners(facts, users, posts, check)
    _check_feeds(facts, users, posts, now_ms, check)
    return found


def _pairs(facts: Facts, family: str) -> set[tuple[str, str]]:
    return {(parts[0], str(member)) for parts, members in facts[family].items() for member in members}


def _turned(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(b, a) for a, b in pairs}


def _check_sides(facts: Facts, check: Any) -> None:
    for one, other in (
        ("user_following", "user_followers"),
        ("user_blocked", "user_blocked_by"),
        ("user_muted", "user_muted_by"),
        ("user_bookmarked", "post_bookmarks"),
        ("user_liked", "post_likes"),
    ):
        check(f"{one} and {other}", _pairs(facts, one), _turned(_pairs(facts, other)))
    for family in ("user_following", "user_followers", "post_likes", "post_comments"):
        check(f"{family} and its order", _pairs(facts, f"{family}_recent"), _pairs(facts, family))
    comments = {parts[0]: fields for parts, fields in facts["comment"].items()}
    on_posts = {(fields["post_id"], id) for id, fields in comments.items()}
    by_users = {(fields["username"], id) for id, fields in comments.items()}
    check("comments of posts", _pairs(facts, "post_comments"), on_posts)
    check("comments of users", _pairs(facts, "user_comments"), by_users)


def _check_owners(facts: Facts, users: Mapping[str, Any], posts: Mapping[str, Any], check: Any) -> None:
    authored = {(post["user_id"], id) for id, post in posts.items()}
    check("posts of users", _pairs(facts, "user_posts"), authored)
    check("authors", {name for name, _ in authored} - users.keys(), set())
    for family in ("user_following", "user_followers"):
        check(f"{family} of no user", {n for pair in _pairs(facts, family) for n in pair} - users.keys(), set())
    for family in ("post_likes", "post_bookmarks", "post_comments", "post_edits"):
        check(f"{family} of no post", {parts[0] for parts in facts[family]} - posts.keys(), set())
    registry = {"users_regular": "user", "users_models": "model"}
    for family, role in registry.items():
        wanted = {name: float(user["created_at"]) for name, user in users.items() if user["role"] == role}
        check(family, facts[family].get((), {}), wanted)


def _check_feeds(facts: Facts, users: Mapping[str, Any], posts: Mapping[str, Any], now_ms: int, check: Any) -> None:
    shown = {id: post for id, post in posts.items() if "banned" not in post}
    check("explore", facts["explore_feed"].get((), {}), {id: float(p["created_at"]) for id, p in shown.items()})
    tagged: dict[str, dict[str, float]] = {}
    for id, post in shown.items():
        for tag in filter(None, post["hashtags"].split(",")):
            tagged.setdefault(tag, {})[id] = float(post["created_at"])
    check("hashtags", {parts[0]: members for parts, members in facts["hashtag_posts"].items()}, tagged)
    ranked = {parts[0]: members for parts, members in facts["hashtag_ranked"].items()}
    young = {
        tag: {id for id, created in members.items() if now_ms - created <= model.RANKED_MS}
        for tag, members in tagged.items()
    }
    check("ranked", {tag: set(members) for tag, members in ranked.items()}, {t: m for t, m in young.items() if m})
    for tag, members in ranked.items():
        for id, stored in members.items():
            wanted = _score(shown[id], now_ms) if id in shown else 0.0
            if abs(stored - wanted) > 0.02 * wanted + 1e-9:
                check(f"score of {id} in {tag}", stored, wanted)
    totals = dict.fromkeys((name for name, user in users.items() if user["role"] == "model"), 0)
    for post in shown.values():
        if post["user_id"] in totals:
            totals[post["user_id"]] += _points(post)
    check("leaderboard", facts["models_top_engagement"].get((), {}), {n: float(t) for n, t in totals.items()})
    points = {(post["user_id"], id): str(_points(post)) for id, post in shown.items() if _points(post)}
    kept = {(p[0], id): n for p, members in facts["user_points"].items() for id, n in members.items() if id != "total"}
    check("points of posts", kept, points)


def _points(post: Mapping[str, str]) -> int:
    return model.points(int(post["likesCount"]), int(post["commentsCount"]), int(post["bookmarksCount"]))


def _score(post: Mapping[str, str], now_ms: int) -> float:
    return model.score(_points(post), int(post["created_at"]), now_ms)
