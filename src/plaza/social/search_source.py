"""Social's part of the search: users and posts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from plaza.core.auth import Actor
from plaza.core.number_parsing import parse_int
from plaza.core.root_path import with_root
from plaza.core.search_source import (
    MAX_FOLLOWED,
    MAX_TAG_POSTS,
    SCAN_BATCH,
    SearchDocument,
    SearchHit,
    count_in_sorted_set,
    keys_in_sorted_set,
)
from plaza.core.valkey import scan_pages
from plaza.social.keys import (
    AUTH_USER,
    CATALOGUE,
    EXPLORE_FEED,
    HASHTAG_POSTS,
    POST,
    USER,
    USER_FOLLOWING,
    USERS_MODELS,
    USERS_REGULAR,
)
from plaza.social.model import FeedItem, User, points
from plaza.social.post_reader import PostReader
from plaza.social.read_view import ReadView, hiding_keys
from plaza.social.users import Users

_COUNTERS: Final = ("likesCount", "commentsCount", "bookmarksCount")
_REGISTRIES: Final = (USERS_REGULAR(), USERS_MODELS())


class UserSearch:
    """Users, by username, display name and bio.

    Suspended users and what they wrote stay in the index and are left out when results are read, so the end of a
    suspension changes nothing in the index.
    """

    kind: Final = "users"
    weight_events: Final = frozenset({"user.followed", "user.unfollowed"})

    def __init__(self, users: Users) -> None:
        self._users = users
        self._valkey = users.valkey

    async def documents(self, keys: Sequence[str]) -> dict[str, SearchDocument]:
        """Return the public profiles. One round trip."""
        found = await self._users.public_profiles(None, keys)
        return {user.username: _user_document(user) for user in found if user is not None}

    async def all_keys(self, after: str) -> AsyncIterator[Sequence[str]]:
        """Yield all usernames: those of the registries, oldest first, then the others, such as admins, in no order."""
        for registry in await self._registries(after):
            async for names in keys_in_sorted_set(self._valkey, registry, after):
                yield _usernames(map(USER, names))
        for node in self._valkey.primaries():
            async for keys in scan_pages(node, "SCAN", match=USER("*"), count=SCAN_BATCH, type="hash"):
                if names := _usernames(keys):
                    scores = [await self._valkey.call("ZMSCORE", key, *names) for key in _REGISTRIES]
                    yield [name for name, *found in zip(names, *scores, strict=True) if set(found) == {None}]

    async def count(self, after: str) -> int:
        """Return how many users the registries have. There are few others."""
        return sum([await count_in_sorted_set(self._valkey, key, after) for key in await self._registries(after)])

    async def _registries(self, after: str) -> tuple[str, ...]:
        """Return the registries that have users after `after`: none if that user is in neither."""
        for start, key in enumerate(_REGISTRIES):
            if not after or await self._valkey.call("ZSCORE", key, after) is not None:
                return _REGISTRIES[start:]
        return () if await self._valkey.call("EXISTS", USER(after)) else _REGISTRIES

    async def load(self, viewer: Actor | None, keys: Sequence[str]) -> list[SearchHit | None]:
        """Return users that the viewer may see. One round trip."""
        users, hidden = await asyncio.gather(
            self._users.public_profiles(viewer, keys), self.hidden_authors(viewer, keys)
        )
        return [None if user is None or user.username in hidden else _user_hit(user) for user in users]

    async def preferred(self, viewer: Actor, keys: Sequence[str]) -> set[str]:
        """Return the users that the viewer follows. One round trip."""
        flags = await self._valkey.call("SMISMEMBER", USER_FOLLOWING(viewer.name), *keys)
        return {name for name, follows in zip(keys, flags, strict=True) if follows}

    async def weights(self, keys: Sequence[str]) -> dict[str, float]:
        """Return how many followers users have. One round trip."""
        counts = await self._valkey.batch([("HGET", USER(name), "followerCount") for name in keys])
        return {name: parse_int(count) for name, count in zip(keys, counts, strict=True)}

    def changed_keys(self, event_type: str, subject: str, data: Mapping[str, Any]) -> Iterable[str]:
        if event_type in self.weight_events:
            return (data["followed"],) if "followed" in data else ()
        names = (data.get(field) for field in ("username", "old", "new", "follower", "followed"))
        return [name for name in names if name] if event_type.startswith("user.") else ()

    async def hidden_authors(self, viewer: Actor | None, usernames: Collection[str]) -> set[str]:
        """Return which users are suspended, or hidden from the viewer by a block. One round trip."""
        if not usernames:
            return set()
        names = sorted(usernames)
        blocks = [] if viewer is None else dict.fromkeys(hiding_keys(viewer))
        suspended, *scores = await asyncio.gather(
            self._valkey.batch([("HEXISTS", AUTH_USER(name), "suspended_at") for name in names]),
            *(self._valkey.call("ZMSCORE", key, *names) for key in blocks),
        )
        blocked = {name for found in scores for name, score in zip(names, found, strict=True) if score is not None}
        return blocked | {name for name, flag in zip(names, suspended, strict=True) if flag}

    async def followed_users(self, viewer: Actor) -> list[str]:
        """Return users that the viewer follows: any of them if there are more than `MAX_FOLLOWED`. One round trip."""
        return list(await self._valkey.call("SRANDMEMBER", USER_FOLLOWING(viewer.name), MAX_FOLLOWED))


class PostSearch:
    """Posts, by their text and tags."""

    kind: Final = "posts"
    weight_events: Final = frozenset({"post.liked", "post.unliked", "comment.created", "comment.deleted"})

    def __init__(self, reader: PostReader, users: UserSearch) -> None:
        self._reader = reader
        self._valkey = reader.valkey
        self._users = users

    async def documents(self, keys: Sequence[str]) -> dict[str, SearchDocument]:
        """Return posts that are not banned. Up to two round trips."""
        items = await self._reader.items(ReadView(None, users=False), keys, listed=False)
        return {item.post.id: _post_document(item) for item in items if item is not None}

    def all_keys(self, after: str) -> AsyncIterator[Sequence[str]]:
        """Return the ids of all posts that are not banned, oldest first."""
        return keys_in_sorted_set(self._valkey, EXPLORE_FEED(), after)

    async def count(self, after: str) -> int:
        return await count_in_sorted_set(self._valkey, EXPLORE_FEED(), after)

    async def load(self, viewer: Actor | None, keys: Sequence[str]) -> list[SearchHit | None]:
        """Return posts that the viewer may see. Up to two round trips."""
        items = await self._reader.items(ReadView(viewer, feed=False), keys, listed=False)
        return [None if item is None else _post_hit(item) for item in items]

    async def preferred(self, viewer: Actor, keys: Sequence[str]) -> set[str]:
        """No post comes first: whose it is counts less than what it says."""
        return set()

    async def weights(self, keys: Sequence[str]) -> dict[str, float]:
        """Return the points of posts. One round trip."""
        rows = await self._valkey.batch([("HMGET", POST(id), *_COUNTERS) for id in keys])
        return {id: points(*map(parse_int, row)) for id, row in zip(keys, rows, strict=True)}

    def changed_keys(self, event_type: str, subject: str, data: Mapping[str, Any]) -> Iterable[str]:
        return (data["post"],) if event_type.startswith(("post.", "comment.")) and "post" in data else ()

    async def visible_tags(self, viewer: Actor | None, tags: Sequence[str]) -> dict[str, int]:
        """Return the tags of which the viewer can see one of the newest posts, with their number. Four round trips."""
        newest = [("ZRANGE", HASHTAG_POSTS(tag), 0, MAX_TAG_POSTS - 1, "REV") for tag in tags]
        ids_of_each = await self._valkey.batch(newest)
        ids = sorted({id for found in ids_of_each for id in found})
        items = await self._reader.items(ReadView(viewer, feed=False), ids, listed=False)
        authors = {item.post.id: item.post.user_id for item in items if item is not None}
        hidden = await self._users.hidden_authors(viewer, set(authors.values()))
        visible = {id for id, author in authors.items() if author not in hidden}
        counts = {tag: len(visible.intersection(found)) for tag, found in zip(tags, ids_of_each, strict=True)}
        return {tag: count for tag, count in counts.items() if count}


def _usernames(keys: Iterable[str]) -> list[str]:
    """Return the usernames of profiles, without other keys."""
    matches = [CATALOGUE.match(key) for key in keys]
    return [match.parts[0] for match in matches if match is not None and match.key is USER]


def _user_document(user: User) -> SearchDocument:
    return SearchDocument(
        texts=[user.username, user.display_name, user.bio],
        author=user.username,
        names=[user.username, user.display_name, *user.display_name.split()],
        created_ms=user.created_at,
        weight=user.followerCount,
    )


def _user_hit(user: User) -> SearchHit:
    return SearchHit(
        id=user.username,
        title=user.display_name or user.username,
        text=user.bio,
        url=with_root(f"/app/people/{user.username}"),
        image=user.avatar or None,
        created_at=user.created_at,
        figures={"followers": user.followerCount, "posts": user.postCount},
    )


def _post_document(item: FeedItem) -> SearchDocument:
    post = item.post
    return SearchDocument(
        texts=[post.content],
        author=post.user_id,
        tags=post.hashtags,
        created_ms=post.created_at,
        weight=points(post.likesCount, post.commentsCount, post.bookmarksCount),
    )


def _post_hit(item: FeedItem) -> SearchHit:
    post = item.post
    return SearchHit(
        id=post.id,
        title=post.display_name or post.username,
        text=post.content,
        url=with_root(f"/app/posts/{post.id}"),
        author=post.user_id,
        image=post.avatar or None,
        created_at=post.created_at,
        figures={"likes": post.likesCount, "comments": post.commentsCount},
    )
