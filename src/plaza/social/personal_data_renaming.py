"""Moves what social stores about a user to a new username, entry by entry."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from plaza.core.clock import Clock
from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from plaza.core.keyspace import Key
from plaza.core.number_parsing import parse_int
from plaza.social import keys as k

# Entries moved at once.
BATCH_SIZE = 100

Move = Callable[[str, int], Awaitable[Any]]


class RelationKind(Struct, frozen=True):
    """The commands that begin and end a relation between two users, and the first user's keys that they take."""

    begin: str
    keys: tuple[Key, ...]
    end: str
    end_keys: tuple[Key, ...]


_FOLLOWING = (k.USER, k.USER_FOLLOWING, k.USER_FOLLOWING_RECENT)
_BLOCKS = (k.USER_BLOCKED, k.USER_BLOCKED_BY)
FOLLOW = RelationKind("social_follow", (*_FOLLOWING, *_BLOCKS, k.TMP_HOME_STATE), "social_unfollow", _FOLLOWING)
MUTE = RelationKind("social_mute", (k.USER_MUTED, *_BLOCKS), "social_unmute", (k.USER_MUTED,))
BLOCK = RelationKind("social_block", (k.USER_BLOCKED, *_FOLLOWING), "social_unblock", (k.USER_BLOCKED,))

# In the order in which they are moved: followers before posts, so that a home feed built meanwhile has the posts;
# mutes before blocks, because a blocked user cannot be muted.
MOVED_LISTS = (
    k.USER_FOLLOWERS_RECENT,
    k.USER_POSTS,
    k.USER_COMMENTS,
    k.USER_LIKED,
    k.USER_BOOKMARKED,
    k.USER_FOLLOWING_RECENT,
    k.USER_MUTED,
    k.USER_MUTED_BY,
    k.USER_BLOCKED,
    k.USER_BLOCKED_BY,
)


class SocialDataRenaming:
    """Moves the entries of a user's lists, with the time of each."""

    def __init__(self, functions: Functions, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._clock = clock

    async def move_all(self, old: str, new: str) -> int:
        """Move every entry that names the old username; return how many there were."""
        moves = self._moves(old, new)
        return sum([await self._move_list(key(old), move) for key, move in zip(MOVED_LISTS, moves, strict=True)])

    def _moves(self, old: str, new: str) -> list[Move]:
        """Return, for each list of `MOVED_LISTS`, the function that moves an entry, given its time."""
        return [
            lambda other, at: self._move_relation(FOLLOW, (other, old), (other, new), at),
            lambda id, at: self._functions.run("social_rename_post", [k.POST(id)], id, old, new),
            lambda id, at: self._functions.run("social_rename_comment", [k.COMMENT(id)], id, old, new),
            lambda id, at: self._move_like(old, new, id),
            lambda id, at: self._move_bookmark(old, new, id, at),
            lambda other, at: self._move_relation(FOLLOW, (old, other), (new, other), at),
            lambda other, at: self._move_relation(MUTE, (old, other), (new, other), at),
            lambda other, at: self._move_relation(MUTE, (other, old), (other, new), at),
            lambda other, at: self._move_relation(BLOCK, (old, other), (new, other), at),
            lambda other, at: self._move_relation(BLOCK, (other, old), (other, new), at),
        ]

    async def _move_list(self, key: str, move: Move) -> int:
        moved = 0
        while rows := await self._valkey.call("ZRANGE", key, 0, BATCH_SIZE - 1, "WITHSCORES"):
            await asyncio.gather(*(move(member, parse_int(at)) for member, at in rows))
            # Entries whose other side does not exist are still there: nothing moves them.
            await self._valkey.call("ZREM", key, *(member for member, _ in rows))
            moved += len(rows)
        return moved

    async def _move_relation(
        self, kind: RelationKind, before: tuple[str, str], after: tuple[str, str], at: int
    ) -> None:
        """Begin the relation with the new username, at its old time, then end the one with the old username."""
        if after[0] != after[1]:
            with contextlib.suppress(NotFound):  # the other user is being deleted
                await self._functions.run(kind.begin, [key(after[0]) for key in kind.keys], *after, at, "rename")
        await self._functions.run(kind.end, [key(before[0]) for key in kind.end_keys], *before, at, "rename")

    async def _move_like(self, old: str, new: str, id: str) -> None:
        keys = [k.POST(id), k.POST_LIKES(id), k.POST_LIKES_RECENT(id)]
        await self._functions.run("social_rename_like", keys, id, old, new, self._clock.now_ms())

    async def _move_bookmark(self, old: str, new: str, id: str, at: int) -> None:
        now = self._clock.now_ms()
        await self._functions.run("social_rename_bookmark", [k.USER_BOOKMARKED(new)], new, id, now, at)
        await self._functions.run("social_unbookmark", [k.USER_BOOKMARKED(old)], old, id, now)
