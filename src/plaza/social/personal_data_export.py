"""Exports what social stores about a user."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from plaza.core.number_parsing import parse_int
from plaza.core.valkey import Valkey
from plaza.social import keys as k
from plaza.social.former_names import former_names
from plaza.social.model import comment_from_hash, post_from_hash
from plaza.social.private_fields import PrivateFields

# Entries read in one round trip. A post may have many old texts.
PAGE_SIZE = 500
POSTS_PER_PAGE = 20

DECLARED_FIELDS = frozenset(field.name for field in k.USER.fields)
EXPORTED_LISTS = {
    "liked": k.USER_LIKED,
    "bookmarked": k.USER_BOOKMARKED,
    "following": k.USER_FOLLOWING_RECENT,
    "followers": k.USER_FOLLOWERS_RECENT,
    "blocked": k.USER_BLOCKED,
    "muted": k.USER_MUTED,
}


class SocialDataExport:
    """Reads a user's profile, posts, comments and lists."""

    def __init__(self, valkey: Valkey, private: PrivateFields) -> None:
        self._valkey = valkey
        self._private = private

    async def export(self, username: str) -> dict[str, Any]:
        """Return what social stores about a user, lists as async iterators.

        Users who block or mute them are not included: that is theirs.
        """
        profile = await self._valkey.call("HGETALL", k.USER(username))
        auth_fields = await self._valkey.call("HKEYS", k.AUTH_USER(username))
        return {
            "profile": self._private.own_profile(profile, username) if profile else None,
            "custom": {name: value for name, value in profile.items() if name not in DECLARED_FIELDS},
            "former_names": await former_names(self._valkey, username),
            "sessions": sum(field.startswith("family:") for field in auth_fields),
            "posts": self._export_posts(username),
            "comments": self._export_comments(username),
            "comment_edits": self._export_comment_edits(username),
            **{name: self._export_list(key(username)) for name, key in EXPORTED_LISTS.items()},
        }

    async def _export_posts(self, username: str) -> AsyncIterator[dict[str, Any]]:
        async for rows in self._pages(k.USER_POSTS(username), POSTS_PER_PAGE):
            ids = [id for id, _ in rows]
            posts = await self._valkey.batch([("HGETALL", k.POST(id)) for id in ids])
            edits = await self._valkey.batch([("LRANGE", k.POST_EDITS(id), 0, -1) for id in ids])
            for id, post, old_texts in zip(ids, posts, edits, strict=True):
                if "user_id" in post:
                    yield {"post": post_from_hash(post, id, liked=False, bookmarked=False), "edits": old_texts}

    async def _export_comments(self, username: str) -> AsyncIterator[Any]:
        async for rows in self._pages(k.USER_COMMENTS(username), PAGE_SIZE):
            comments = await self._valkey.batch([("HGETALL", k.COMMENT(id)) for id, _ in rows])
            for (id, _), fields in zip(rows, comments, strict=True):
                if fields:
                    yield comment_from_hash(fields, id)

    async def _export_comment_edits(self, username: str) -> AsyncIterator[dict[str, Any]]:
        """Return the old texts of the comments that were edited."""
        async for rows in self._pages(k.USER_COMMENTS(username), POSTS_PER_PAGE):
            edits = await self._valkey.batch([("LRANGE", k.COMMENT_EDITS(id), 0, -1) for id, _ in rows])
            for (id, _), old_texts in zip(rows, edits, strict=True):
                if old_texts:
                    yield {"id": id, "edits": old_texts}

    async def _export_list(self, key: str) -> AsyncIterator[dict[str, Any]]:
        async for rows in self._pages(key, PAGE_SIZE):
            for id, at in rows:
                yield {"id": id, "at": parse_int(at)}

    async def _pages(self, key: str, size: int) -> AsyncIterator[list[tuple[str, float]]]:
        """Read a sorted set in pages. Entries that are added or removed meanwhile may be missing or come twice."""
        first = 0
        while rows := await self._valkey.call("ZRANGE", key, first, first + size - 1, "WITHSCORES"):
            yield [(id, score) for id, score in rows]
            first += len(rows)
