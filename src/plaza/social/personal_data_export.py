"""Exports what social stores about a user."""

from __future__ import annotations

from typing import Any

from plaza.core.number_parsing import parse_int
from plaza.core.sequences import chunks
from plaza.core.valkey import Valkey
from plaza.social import keys as k
from plaza.social.model import comment_from_hash, post_from_hash, user_from_hash

# Entries read in one round trip.
PAGE_SIZE = 500

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

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey

    async def export(self, username: str) -> dict[str, Any]:
        """Return what social stores about a user. Users who block or mute them are not included: that is theirs."""
        profile = await self._valkey.call("HGETALL", k.USER(username))
        auth_fields = await self._valkey.call("HKEYS", k.AUTH_USER(username))
        exported: dict[str, Any] = {
            "profile": user_from_hash(profile, username, private=True) if profile else None,
            "custom": {name: value for name, value in profile.items() if name not in DECLARED_FIELDS},
            "sessions": sum(field.startswith("family:") for field in auth_fields),
            "posts": await self._export_posts(username),
            "comments": await self._export_comments(username),
            "comment_edits": await self._export_comment_edits(username),
        }
        for name, key in EXPORTED_LISTS.items():
            exported[name] = [{"id": id, "at": parse_int(at)} for id, at in await self._read_all(key(username))]
        return exported

    async def _export_posts(self, username: str) -> list[dict[str, Any]]:
        exported: list[dict[str, Any]] = []
        rows = await self._read_all(k.USER_POSTS(username))
        for ids in chunks((id for id, _ in rows), PAGE_SIZE):
            posts = await self._valkey.batch([("HGETALL", k.POST(id)) for id in ids])
            edits = await self._valkey.batch([("LRANGE", k.POST_EDITS(id), 0, -1) for id in ids])
            exported += [
                {"post": post_from_hash(post, id, liked=False, bookmarked=False), "edits": old_texts}
                for id, post, old_texts in zip(ids, posts, edits, strict=True)
                if "user_id" in post
            ]
        return exported

    async def _export_comments(self, username: str) -> list[Any]:
        exported: list[Any] = []
        rows = await self._read_all(k.USER_COMMENTS(username))
        for ids in chunks((id for id, _ in rows), PAGE_SIZE):
            comments = await self._valkey.batch([("HGETALL", k.COMMENT(id)) for id in ids])
            exported += [comment_from_hash(fields, id) for id, fields in zip(ids, comments, strict=True) if fields]
        return exported

    async def _export_comment_edits(self, username: str) -> list[dict[str, Any]]:
        """Return the old texts of the comments that were edited."""
        exported: list[dict[str, Any]] = []
        rows = await self._read_all(k.USER_COMMENTS(username))
        for ids in chunks((id for id, _ in rows), PAGE_SIZE):
            edits = await self._valkey.batch([("LRANGE", k.COMMENT_EDITS(id), 0, -1) for id in ids])
            exported += [{"id": id, "edits": old_texts} for id, old_texts in zip(ids, edits, strict=True) if old_texts]
        return exported

    async def _read_all(self, key: str) -> list[tuple[str, float]]:
        rows: list[tuple[str, float]] = []
        while True:
            more = await self._valkey.call("ZRANGE", key, len(rows), len(rows) + PAGE_SIZE - 1, "WITHSCORES")
            rows += [(id, score) for id, score in more]
            if len(more) < PAGE_SIZE:
                return rows
