"""Leaving: a person's account and every trace of it go, in batches that can be taken up again.

The profile and the credentials go first, in one step, and the name is marked as leaving: from then on nobody can sign
in or register under it, and tokens are void. Then everything the person did is undone by the same verbs that would undo
it at any time, so the other sides and the counters stay true all the way. When nothing is left the mark goes too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from plaza.core.auth import Actor, Auth
from plaza.core.clock import Clock
from plaza.core.domain import PersonalData
from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from plaza.social import keys as k
from plaza.social.home_fanout import Fanout
from plaza.social.model import NoProfile
from plaza.social.posts import Posts

# Up to so many posts the request waits until all is done.
MOST_POSTS_WAITED_FOR = 1_000

BATCH = 100

End = Callable[[str], Awaitable[Any]]


class Leaving:
    def __init__(
        self,
        functions: Functions,
        posts: Posts,
        fanout: Fanout,
        auth: Auth,
        clock: Clock,
        personal_data: Mapping[str, PersonalData],
    ) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.posts = posts
        self.fanout = fanout
        self.auth = auth
        self.clock = clock
        self._personal_data = personal_data  # of the other domains, by name

    async def leave(self, actor: Actor, name: str) -> bool:
        """Delete an account. True when nothing is left of it; False if that goes on in the background."""
        actor.require_self_or_admin(name)
        try:
            posts = await self._begin(name)
        except NoProfile:
            # A token of another issuer is enough to like, vote or buy: whoever did can leave too.
            if not await self._is_known(name):
                raise
            posts = await self._begin(name, known=1)
        await self.auth.cut_off(name)
        if posts > MOST_POSTS_WAITED_FOR:
            return False
        await self.sweep(name)
        return True

    async def _begin(self, name: str, *, known: int = 0) -> int:
        mine = [k.USER(name), k.AUTH_USER(name), k.USER_LEAVING(name), k.TMP_HOME(name), k.TMP_HOME_STATE(name)]
        keys = [*mine, k.USER_POSTS(name), k.USER_RENAMING(name)]
        posts: int = await self.functions.run("social_leave", keys, name, self.auth.stamp(name), known)
        return posts

    async def _is_known(self, name: str) -> bool:
        """Whether anything is held about someone who has no profile, in any domain."""
        here = [k.USER_LIKED, k.USER_BOOKMARKED, k.USER_BLOCKED, k.USER_MUTED]
        if any(await self.valkey.batch([("EXISTS", key(name)) for key in here])):
            return True
        held = [await holder.export(name) for holder in self._personal_data.values()]
        return any(any(parts.values()) for parts in held)

    async def sweep(self, name: str) -> None:
        """Undo everything a person did, until nothing is left. A few round trips for each hundred.

        Several may sweep the same name at once. Once one of them has freed it, what is there is another person's: the
        others see that the mark is gone, or not theirs, and end.
        """
        since = await self.valkey.call("GET", k.USER_LEAVING(name))
        for holder in self._personal_data.values():
            await holder.delete(name)
        lists = self._lists(name)
        while since is not None:
            await self._delete_posts(name, since)  # before the followers go, in whose feeds they are
            for key, end in lists.items():
                await self._empty(name, since, key, end)
            if await self._left(name, since, [k.USER_POSTS(name), *lists]):
                return

    def _lists(self, name: str) -> dict[str, End]:
        """What names what a person did, and how one of it is undone."""
        return {
            k.USER_COMMENTS(name): lambda id: self._uncomment(name, id),
            k.USER_LIKED(name): lambda id: self._unlike(name, id),
            k.USER_BOOKMARKED(name): lambda id: self._end("unbookmark", [k.USER_BOOKMARKED(name)], name, id),
            k.USER_FOLLOWING_RECENT(name): lambda other: self._unfollow(name, other),
            k.USER_FOLLOWERS_RECENT(name): lambda other: self._unfollow(other, name),
            # Those two have all that these have, unless something was broken.
            k.USER_FOLLOWING(name): lambda other: self._unfollow(name, other),
            k.USER_FOLLOWERS(name): lambda other: self._unfollow(other, name),
            k.USER_BLOCKED(name): lambda other: self._end("unblock", [k.USER_BLOCKED(name)], name, other),
            k.USER_BLOCKED_BY(name): lambda other: self._end("unblock", [k.USER_BLOCKED(other)], other, name),
            k.USER_MUTED(name): lambda other: self._end("unmute", [k.USER_MUTED(name)], name, other),
            k.USER_MUTED_BY(name): lambda other: self._end("unmute", [k.USER_MUTED(other)], other, name),
        }

    async def _left(self, name: str, since: str, keys: Sequence[str]) -> bool:
        mine = [k.USER_LEAVING(name), k.TMP_HOME(name), k.TMP_HOME_STATE(name)]
        return bool(await self.functions.run("social_left", [*mine, *keys, k.USER_POINTS(name)], name, since))

    async def _some(self, name: str, since: str, key: str) -> list[str]:
        """Some of what a list still names; nothing once the name is free."""
        sets = (k.USER_FOLLOWING(name), k.USER_FOLLOWERS(name))
        some = ("SRANDMEMBER", key, BATCH) if key in sets else ("ZRANGE", key, 0, BATCH - 1)
        mark, members = await self.valkey.batch([("GET", k.USER_LEAVING(name)), some])
        return members if mark == since else []

    async def _drop(self, name: str, since: str, key: str, members: Sequence[str]) -> None:
        """Take out what could not be undone because its other side is long gone."""
        await self.functions.run("social_drop_left", [k.USER_LEAVING(name), key], since, *members)

    async def _empty(self, name: str, since: str, key: str, end: End) -> None:
        while members := await self._some(name, since, key):
            await asyncio.gather(*map(end, members))
            await self._drop(name, since, key, members)

    async def _delete_posts(self, name: str, since: str) -> None:
        while ids := await self._some(name, since, k.USER_POSTS(name)):
            await asyncio.gather(*map(self.posts.remove, ids))
            await self.fanout.take_out(name, ids)
            await self._drop(name, since, k.USER_POSTS(name), ids)

    async def _unlike(self, name: str, id: str) -> None:
        keys = [k.POST(id), k.POST_LIKES(id), k.POST_LIKES_RECENT(id)]
        try:
            await self.functions.run("social_unlike", keys, id, name, self.clock.now_ms())
        except NotFound:
            return  # the post is being deleted too

    async def _uncomment(self, name: str, comment: str) -> None:
        post = await self.valkey.call("HGET", k.COMMENT(comment), "post_id")
        if post is not None:
            await self.posts.drop_comment(comment, post, name)

    async def _unfollow(self, name: str, other: str) -> None:
        await self._end("unfollow", [k.USER(name), k.USER_FOLLOWING(name), k.USER_FOLLOWING_RECENT(name)], name, other)

    async def _end(self, verb: str, keys: Sequence[str], name: str, other: str) -> None:
        await self.functions.run(f"social_{verb}", keys, name, other, self.clock.now_ms())
