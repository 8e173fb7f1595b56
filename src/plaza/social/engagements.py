"""Likes and bookmarks."""

from __future__ import annotations

import asyncio
from typing import Any

from plaza.core.auth import Actor
from plaza.core.functions import Functions
from plaza.core.paging import Page, PageResult
from plaza.social.keys import (
    POST,
    POST_LIKES,
    POST_LIKES_RECENT,
    USER_BLOCKED,
    USER_BLOCKED_BY,
    USER_BOOKMARKED,
)
from plaza.social.model import Engagement, User
from plaza.social.posts import Posts


class Engagements:
    def __init__(self, functions: Functions, posts: Posts) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.posts = posts
        self.clock = posts.clock

    async def like(self, actor: Actor, id: str) -> Engagement:
        """Like a post; liking it twice changes nothing. One round trip."""
        keys = [POST(id), POST_LIKES(id), POST_LIKES_RECENT(id), *await self.posts.block_keys(actor.name, id)]
        now = self.clock.now_ms()
        changed, likes = await self.functions.run("social_like", keys, id, actor.name, now, now)
        return Engagement(id, bool(changed), isLiked=True, likesCount=likes)

    async def unlike(self, actor: Actor, id: str) -> Engagement:
        """Remove a like, also from a post that is hidden now. One round trip; more if there was no like."""
        keys = [POST(id), POST_LIKES(id), POST_LIKES_RECENT(id)]
        changed, likes = await self.functions.run("social_unlike", keys, id, actor.name, self.clock.now_ms())
        if not changed:
            await self.posts.get(actor, id)  # the number of likes of a hidden post is hidden too
        return Engagement(id, bool(changed), isLiked=False, likesCount=likes)

    async def likes(self, viewer: Actor | None, id: str, page: Page) -> PageResult[User]:
        """List the users who like a post, latest first. Three round trips; four on a cluster."""
        keys = [POST(id), POST_LIKES(id), POST_LIKES_RECENT(id)]
        completed = self.functions.run("social_complete_likes", keys, id, self.clock.now_ms())
        await asyncio.gather(self.posts.get(viewer, id), completed)
        return await self.posts.users.page_of(viewer, POST_LIKES_RECENT(id), page)

    async def bookmark(self, actor: Actor, id: str) -> Engagement:
        """Bookmark a post. One round trip; five in sequence on a cluster."""
        name, now = actor.name, self.clock.now_ms()
        if self.valkey.clustered:
            changed = await self._bookmark_on_cluster(name, id, now)
        else:
            keys = [USER_BOOKMARKED(name), POST(id), USER_BLOCKED(name), USER_BLOCKED_BY(name)]
            changed = await self.functions.run("social_bookmark", keys, name, id, now, now)
        return Engagement(id, bool(changed), isBookmarked=True)

    async def _bookmark_on_cluster(self, name: str, id: str, now: int) -> int:
        """Bookmark a post on a cluster. Five round trips in sequence.

        A bookmark updates the post, its author and the leaderboard, one after the other: the longest chain there is.
        So the check of the post runs beside the first step, and a bookmark that the check refuses is removed again.
        """
        keys = [USER_BOOKMARKED(name)]
        bookmarking = self.functions.run("social_bookmark", keys, name, id, now, now)
        results: tuple[Any, Any] = await asyncio.gather(
            self.posts.block_keys(name, id), bookmarking, return_exceptions=True
        )
        refused, changed = results
        if isinstance(changed, BaseException):
            raise changed
        if isinstance(refused, BaseException):
            if changed:
                await self.functions.run("social_unbookmark", keys, name, id, self.clock.now_ms())
            raise refused
        return int(changed)

    async def unbookmark(self, actor: Actor, id: str) -> Engagement:
        """Remove a bookmark, also from a post that is hidden now. One round trip; more if there was none."""
        keys = [USER_BOOKMARKED(actor.name)]
        changed = await self.functions.run("social_unbookmark", keys, actor.name, id, self.clock.now_ms())
        if not changed:
            await self.posts.get(actor, id)
        return Engagement(id, bool(changed), isBookmarked=False)
