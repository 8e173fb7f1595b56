"""Everything Plaza holds about a person, for that person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plaza.core.auth import Actor
from plaza.core.domain import PersonalData
from plaza.core.functions import Functions
from plaza.social import keys as k
from plaza.social.model import comment_of, post_of, user_of

CHUNK = 500

# All other fields of a profile are what its person added to it.
DECLARED = frozenset(field.name for field in k.USER.fields)
# What is told as a list of ids with times.
RELATIONS = {
    "liked": k.USER_LIKED,
    "bookmarked": k.USER_BOOKMARKED,
    "following": k.USER_FOLLOWING_RECENT,
    "followers": k.USER_FOLLOWERS_RECENT,
    "blocked": k.USER_BLOCKED,
    "muted": k.USER_MUTED,
}


class Export:
    def __init__(self, functions: Functions, personal_data: Mapping[str, PersonalData]) -> None:
        self.valkey = functions.valkey
        self._personal_data = personal_data  # of the other domains, by name

    async def everything(self, actor: Actor) -> dict[str, Any]:
        """All five domains' parts, by name. A few round trips for each 500 things."""
        parts = {"social": await self.export(actor.name)}
        for name, holder in self._personal_data.items():
            parts[name] = await holder.export(actor.name)
        return {"id": actor.name, "username": actor.name, **parts}

    async def export(self, username: str) -> dict[str, Any]:
        """What social holds. Who blocks or mutes someone is theirs, and not told."""
        profile = await self.valkey.call("HGETALL", k.USER(username))
        sessions = await self.valkey.call("HKEYS", k.AUTH_USER(username))
        told: dict[str, Any] = {
            "profile": user_of(profile, private=True) if profile else None,
            "custom": {name: value for name, value in profile.items() if name not in DECLARED},
            "sessions": sum(field.startswith("family:") for field in sessions),
            "posts": await self._posts(username),
            "comments": await self._comments(username),
        }
        for name, key in RELATIONS.items():
            told[name] = [{"id": id, "at": int(at)} for id, at in await self._all(key(username))]
        return told

    async def _posts(self, username: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        ids = [id for id, _ in await self._all(k.USER_POSTS(username))]
        for first in range(0, len(ids), CHUNK):
            some = ids[first : first + CHUNK]
            posts = await self.valkey.batch([("HGETALL", k.POST(id)) for id in some])
            edits = await self.valkey.batch([("LRANGE", k.POST_EDITS(id), 0, -1) for id in some])
            found += [
                {"post": post_of(post, liked=False, bookmarked=False), "edits": before}
                for post, before in zip(posts, edits, strict=True)
                if post
            ]
        return found

    async def _comments(self, username: str) -> list[Any]:
        found: list[Any] = []
        ids = [id for id, _ in await self._all(k.USER_COMMENTS(username))]
        for first in range(0, len(ids), CHUNK):
            some = ids[first : first + CHUNK]
            comments = await self.valkey.batch([("HGETALL", k.COMMENT(id)) for id in some])
            found += [comment_of(fields) for fields in comments if fields]
        return found

    async def _all(self, key: str) -> list[tuple[str, float]]:
        rows: list[tuple[str, float]] = []
        while True:
            more = await self.valkey.call("ZRANGE", key, len(rows), len(rows) + CHUNK - 1, "WITHSCORES")
            rows += [(id, score) for id, score in more]
            if len(more) < CHUNK:
                return rows
