"""Deletes what social stores about a user: the ordinary commands in reverse (unlike, unfollow, …)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from plaza.social import keys as k
from plaza.social.comments import Comments
from plaza.social.former_names import forget_former_names
from plaza.social.home_feed_updates import HomeFeedUpdates

# Entries deleted at once.
BATCH_SIZE = 100

Undo = Callable[[str], Awaitable[Any]]


class SocialDataDeletion:
    """Undoes everything a user did, then frees the username."""

    def __init__(self, functions: Functions, comments: Comments, fanout: HomeFeedUpdates) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._comments = comments
        self._posts = comments.posts
        self._fanout = fanout
        self._clock = comments.clock

    async def delete(self, username: str) -> None:
        """Undo everything a user did, in batches, then free the username. A few round trips for each hundred entries.

        The account must be marked as being deleted. Several processes may run this for one username: the mark's time
        tells them apart from a later account of the same name, so each stops when the mark is gone or another one.
        """
        since = await self._valkey.call("GET", k.USER_LEAVING(username))
        undos = self._undos(username)
        if since is not None:
            await forget_former_names(self._valkey, username)
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
        return bool(await self._functions.run("social_end_deletion", [*own, *keys, k.USER_POINTS(name)], name, since))

    async def _next_batch(self, name: str, since: str, key: str) -> list[str]:
        """Return some entries of a list; none if the username is free by now."""
        sets = (k.USER_FOLLOWING(name), k.USER_FOLLOWERS(name))
        read = ("SRANDMEMBER", key, BATCH_SIZE) if key in sets else ("ZRANGE", key, 0, BATCH_SIZE - 1)
        mark, members = await self._valkey.batch([("GET", k.USER_LEAVING(name)), read])
        return members if mark == since else []

    async def _drop_entries(self, name: str, since: str, key: str, members: Sequence[str]) -> None:
        """Remove entries that could not be undone because their other side does not exist."""
        await self._functions.run("social_drop_deleted_entries", [k.USER_LEAVING(name), key], since, *members)

    async def _undo_all(self, name: str, since: str, key: str, undo: Undo) -> None:
        while members := await self._next_batch(name, since, key):
            await asyncio.gather(*map(undo, members))
            await self._drop_entries(name, since, key, members)

    async def _delete_posts(self, name: str, since: str) -> None:
        while ids := await self._next_batch(name, since, k.USER_POSTS(name)):
            await asyncio.gather(*map(self._posts.delete_completely, ids))
            await self._fanout.remove_posts(name, ids)
            await self._drop_entries(name, since, k.USER_POSTS(name), ids)

    async def _unlike(self, name: str, id: str) -> None:
        keys = [k.POST(id), k.POST_LIKES(id), k.POST_LIKES_RECENT(id)]
        with contextlib.suppress(NotFound):  # the post is being deleted too
            await self._functions.run("social_unlike", keys, id, name, self._clock.now_ms())

    async def _delete_comment(self, name: str, id: str) -> None:
        post = await self._valkey.call("HGET", k.COMMENT(id), "post_id")
        if post is not None:
            await self._comments.remove(id, post, name)

    async def _unfollow(self, name: str, other: str) -> None:
        await self._end("unfollow", [k.USER(name), k.USER_FOLLOWING(name), k.USER_FOLLOWING_RECENT(name)], name, other)

    async def _end(self, command: str, keys: Sequence[str], name: str, other: str) -> None:
        await self._functions.run(f"social_{command}", keys, name, other, self._clock.now_ms())
