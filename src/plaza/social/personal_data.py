"""What social stores about a user: export it, delete it, move it to a new username.

`AccountDeletion` and `AccountRenaming` call this after the account is closed for other writers, together with the
personal data of the other domains.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from plaza.core.keyspace import Key
from plaza.core.number_parsing import parse_int
from plaza.core.sequences import chunks
from plaza.social import keys as k
from plaza.social.comments import Comments
from plaza.social.home_feed_updates import HomeFanout
from plaza.social.model import comment_from_hash, post_from_hash, user_from_hash

# Entries exported in one round trip.
PAGE_SIZE = 500
# Entries deleted or moved at once.
BATCH_SIZE = 100

DECLARED_FIELDS = frozenset(field.name for field in k.USER.fields)
EXPORTED_LISTS = {
    "liked": k.USER_LIKED,
    "bookmarked": k.USER_BOOKMARKED,
    "following": k.USER_FOLLOWING_RECENT,
    "followers": k.USER_FOLLOWERS_RECENT,
    "blocked": k.USER_BLOCKED,
    "muted": k.USER_MUTED,
}

Undo = Callable[[str], Awaitable[Any]]
Move = Callable[[str, int], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class RelationKind:
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


class SocialPersonalData:
    def __init__(self, functions: Functions, comments: Comments, fanout: HomeFanout) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.comments = comments
        self.posts = comments.posts
        self.fanout = fanout
        self.clock = comments.clock

    async def export(self, username: str) -> dict[str, Any]:
        """Return what social stores about a user. Users who block or mute them are not included: that is theirs."""
        profile = await self.valkey.call("HGETALL", k.USER(username))
        auth_fields = await self.valkey.call("HKEYS", k.AUTH_USER(username))
        exported: dict[str, Any] = {
            "profile": user_from_hash(profile, username, private=True) if profile else None,
            "custom": {name: value for name, value in profile.items() if name not in DECLARED_FIELDS},
            "sessions": sum(field.startswith("family:") for field in auth_fields),
            "posts": await self._export_posts(username),
            "comments": await self._export_comments(username),
        }
        for name, key in EXPORTED_LISTS.items():
            exported[name] = [{"id": id, "at": parse_int(at)} for id, at in await self._read_all(key(username))]
        return exported

    async def _export_posts(self, username: str) -> list[dict[str, Any]]:
        exported: list[dict[str, Any]] = []
        rows = await self._read_all(k.USER_POSTS(username))
        for ids in chunks((id for id, _ in rows), PAGE_SIZE):
            posts = await self.valkey.batch([("HGETALL", k.POST(id)) for id in ids])
            edits = await self.valkey.batch([("LRANGE", k.POST_EDITS(id), 0, -1) for id in ids])
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
            comments = await self.valkey.batch([("HGETALL", k.COMMENT(id)) for id in ids])
            exported += [comment_from_hash(fields, id) for id, fields in zip(ids, comments, strict=True) if fields]
        return exported

    async def _read_all(self, key: str) -> list[tuple[str, float]]:
        rows: list[tuple[str, float]] = []
        while True:
            more = await self.valkey.call("ZRANGE", key, len(rows), len(rows) + PAGE_SIZE - 1, "WITHSCORES")
            rows += [(id, score) for id, score in more]
            if len(more) < PAGE_SIZE:
                return rows

    async def delete(self, username: str) -> None:
        """Undo everything a user did, in batches, then free the username. A few round trips for each hundred entries.

        The account must be marked as being deleted. Several processes may run this for one username: the mark's time
        tells them apart from a later account of the same name, so each stops when the mark is gone or another one.
        """
        since = await self.valkey.call("GET", k.USER_LEAVING(username))
        undos = self._undos(username)
        while since is not None:
            await self._delete_posts(username, since)  # while the followers are known, whose home feeds have the posts
            for key, undo in undos.items():
                await self._undo_all(username, since, key, undo)
            if await self._free_username(username, since, [k.USER_POSTS(username), *undos]):
                return

    def _undos(self, name: str) -> dict[str, Undo]:
        """Return the user's lists, each with the function that undoes one entry."""
        return {
            k.USER_COMMENTS(name): lambda id: self._delete_comment(name, id),
            k.USER_LIKED(name): lambda id: self._unlike(name, id),
            k.USER_BOOKMARKED(name): lambda id: self._end("unbookmark", [k.USER_BOOKMARKED(name)], name, id),
            k.USER_FOLLOWING_RECENT(name): lambda other: self._unfollow(name, other),
            k.USER_FOLLOWERS_RECENT(name): lambda other: self._unfollow(other, name),
            # These sets hold more than the sorted sets above only if another service wrote to them.
            k.USER_FOLLOWING(name): lambda other: self._unfollow(name, other),
            k.USER_FOLLOWERS(name): lambda other: self._unfollow(other, name),
            k.USER_BLOCKED(name): lambda other: self._end("unblock", [k.USER_BLOCKED(name)], name, other),
            k.USER_BLOCKED_BY(name): lambda other: self._end("unblock", [k.USER_BLOCKED(other)], other, name),
            k.USER_MUTED(name): lambda other: self._end("unmute", [k.USER_MUTED(name)], name, other),
            k.USER_MUTED_BY(name): lambda other: self._end("unmute", [k.USER_MUTED(other)], other, name),
        }

    async def _free_username(self, name: str, since: str, keys: Sequence[str]) -> bool:
        own = [k.USER_LEAVING(name), k.TMP_HOME(name), k.TMP_HOME_STATE(name)]
        return bool(await self.functions.run("social_end_deletion", [*own, *keys, k.USER_POINTS(name)], name, since))

    async def _next_batch(self, name: str, since: str, key: str) -> list[str]:
        """Return some entries of a list; none if the username is free by now."""
        sets = (k.USER_FOLLOWING(name), k.USER_FOLLOWERS(name))
        read = ("SRANDMEMBER", key, BATCH_SIZE) if key in sets else ("ZRANGE", key, 0, BATCH_SIZE - 1)
        mark, members = await self.valkey.batch([("GET", k.USER_LEAVING(name)), read])
        return members if mark == since else []

    async def _drop_entries(self, name: str, since: str, key: str, members: Sequence[str]) -> None:
        """Remove entries that could not be undone because their other side does not exist."""
        await self.functions.run("social_drop_deleted_entries", [k.USER_LEAVING(name), key], since, *members)

    async def _undo_all(self, name: str, since: str, key: str, undo: Undo) -> None:
        while members := await self._next_batch(name, since, key):
            await asyncio.gather(*map(undo, members))
            await self._drop_entries(name, since, key, members)

    async def _delete_posts(self, name: str, since: str) -> None:
        while ids := await self._next_batch(name, since, k.USER_POSTS(name)):
            await asyncio.gather(*map(self.posts.delete_completely, ids))
            await self.fanout.remove_posts(name, ids)
            await self._drop_entries(name, since, k.USER_POSTS(name), ids)

    async def _unlike(self, name: str, id: str) -> None:
        keys = [k.POST(id), k.POST_LIKES(id), k.POST_LIKES_RECENT(id)]
        with contextlib.suppress(NotFound):  # the post is being deleted too
            await self.functions.run("social_unlike", keys, id, name, self.clock.now_ms())

    async def _delete_comment(self, name: str, id: str) -> None:
        post = await self.valkey.call("HGET", k.COMMENT(id), "post_id")
        if post is not None:
            await self.comments.remove(id, post, name)

    async def _unfollow(self, name: str, other: str) -> None:
        await self._end("unfollow", [key(name) for key in _FOLLOWING], name, other)

    async def _end(self, command: str, keys: Sequence[str], name: str, other: str) -> None:
        await self.functions.run(f"social_{command}", keys, name, other, self.clock.now_ms())

    async def rename(self, old: str, new: str) -> None:
        """Move every entry that names the old username. Entries written meanwhile need another call."""
        await self.move_all(old, new)

    async def move_all(self, old: str, new: str) -> int:
        """Move every entry that names the old username; return how many there were."""
        moves = self._moves(old, new)
        return sum([await self._move_list(key(old), move) for key, move in zip(MOVED_LISTS, moves, strict=True)])

    def _moves(self, old: str, new: str) -> list[Move]:
        """Return, for each list of `MOVED_LISTS`, the function that moves an entry, given its time."""
        return [
            lambda other, at: self._move_relation(FOLLOW, (other, old), (other, new), at),
            lambda id, at: self.functions.run("social_rename_post", [k.POST(id)], id, old, new),
            lambda id, at: self.functions.run("social_rename_comment", [k.COMMENT(id)], id, old, new),
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
        while rows := await self.valkey.call("ZRANGE", key, 0, BATCH_SIZE - 1, "WITHSCORES"):
            await asyncio.gather(*(move(member, parse_int(at)) for member, at in rows))
            # Entries whose other side does not exist are still there: nothing moves them.
            await self.valkey.call("ZREM", key, *(member for member, _ in rows))
            moved += len(rows)
        return moved

    async def _move_relation(
        self, kind: RelationKind, before: tuple[str, str], after: tuple[str, str], at: int
    ) -> None:
        """Begin the relation with the new username, at its old time, then end the one with the old username."""
        if after[0] != after[1]:
            with contextlib.suppress(NotFound):  # the other user is being deleted
                await self.functions.run(kind.begin, [key(after[0]) for key in kind.keys], *after, at)
        await self.functions.run(kind.end, [key(before[0]) for key in kind.end_keys], *before)

    async def _move_like(self, old: str, new: str, id: str) -> None:
        keys = [k.POST(id), k.POST_LIKES(id), k.POST_LIKES_RECENT(id)]
        await self.functions.run("social_rename_like", keys, id, old, new, self.clock.now_ms())

    async def _move_bookmark(self, old: str, new: str, id: str, at: int) -> None:
        now = self.clock.now_ms()
        await self.functions.run("social_rename_bookmark", [k.USER_BOOKMARKED(new)], new, id, now, at)
        await self.functions.run("social_unbookmark", [k.USER_BOOKMARKED(old)], old, id, now)
