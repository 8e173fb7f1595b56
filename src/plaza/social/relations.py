"""Follows, blocks and mutes between users."""

from __future__ import annotations

import asyncio

from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from plaza.core.paging import Page, PageResult
from plaza.social.keys import (
    TMP_HOME_STATE,
    USER,
    USER_BLOCKED,
    USER_BLOCKED_BY,
    USER_FOLLOWERS,
    USER_FOLLOWERS_RECENT,
    USER_FOLLOWING,
    USER_FOLLOWING_RECENT,
    USER_MUTED,
)
from plaza.social.model import Relation, RelationFlags, SelfRelation, User
from plaza.social.read_view import hiding_keys
from plaza.social.users import Users


def follow_keys(name: str) -> list[str]:
    """Return the follower's keys in the order that `social_follow` takes them."""
    keys = (USER, USER_FOLLOWING, USER_FOLLOWING_RECENT, USER_BLOCKED, USER_BLOCKED_BY, TMP_HOME_STATE)
    return [key(name) for key in keys]


class Relations:
    def __init__(self, functions: Functions, users: Users, clock: Clock) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.users = users
        self.clock = clock

    async def follow(self, actor: Actor, target: str) -> Relation:
        """Follow a user; following twice changes nothing. One round trip."""
        me = _require_other(actor, target)
        keys = [*follow_keys(me), *await self._target_key(target)]
        changed = await self.functions.run("social_follow", keys, me, target, self.clock.now_ms())
        return Relation(target, target, "follow", True, bool(changed))

    async def unfollow(self, actor: Actor, target: str) -> Relation:
        """Stop following a user. One round trip."""
        me = _require_other(actor, target)
        keys = [USER(me), USER_FOLLOWING(me), USER_FOLLOWING_RECENT(me)]
        changed = await self.functions.run("social_unfollow", keys, me, target)
        return Relation(target, target, "follow", False, bool(changed))

    async def block(self, actor: Actor, target: str) -> Relation:
        """Block a user: follows end both ways, and each is hidden from the other. One round trip."""
        me = _require_other(actor, target)
        keys = [USER_BLOCKED(me), USER(me), USER_FOLLOWING(me), USER_FOLLOWING_RECENT(me)]
        keys += await self._target_key(target)
        changed = await self.functions.run("social_block", keys, me, target, self.clock.now_ms())
        return Relation(target, target, "block", True, bool(changed))

    async def unblock(self, actor: Actor, target: str) -> Relation:
        """Unblock a user. One round trip."""
        me = _require_other(actor, target)
        changed = await self.functions.run("social_unblock", [USER_BLOCKED(me)], me, target)
        return Relation(target, target, "block", False, bool(changed))

    async def mute(self, actor: Actor, target: str) -> Relation:
        """Hide a user's posts from the caller's feeds, without telling the user. One round trip."""
        me = _require_other(actor, target)
        keys = [USER_MUTED(me), USER_BLOCKED(me), USER_BLOCKED_BY(me), *await self._target_key(target)]
        changed = await self.functions.run("social_mute", keys, me, target, self.clock.now_ms())
        return Relation(target, target, "mute", True, bool(changed))

    async def unmute(self, actor: Actor, target: str) -> Relation:
        """Unmute a user. One round trip."""
        me = _require_other(actor, target)
        changed = await self.functions.run("social_unmute", [USER_MUTED(me)], me, target)
        return Relation(target, target, "mute", False, bool(changed))

    async def flags(self, viewer: Actor, name: str) -> RelationFlags:
        """Return whether the viewer follows, mutes or blocks a user. One round trip."""
        me = viewer.name
        follows, mutes, blocks = await self.valkey.batch(
            [
                ("SISMEMBER", USER_FOLLOWING(me), name),
                ("ZSCORE", USER_MUTED(me), name),
                ("ZSCORE", USER_BLOCKED(me), name),
            ]
        )
        return RelationFlags(bool(follows), mutes is not None, blocks is not None)

    async def followers(self, viewer: Actor | None, name: str, page: Page) -> PageResult[User]:
        """List a user's followers, latest first. Three round trips."""
        keys = [USER_FOLLOWERS(name), USER_FOLLOWERS_RECENT(name)]
        completed = self.functions.run("social_complete_followers", keys, name, self.clock.now_ms())
        await asyncio.gather(self.users.get(viewer, name), completed)
        return await self.users.page_of(viewer, USER_FOLLOWERS_RECENT(name), page)

    async def following(self, viewer: Actor | None, name: str, page: Page) -> PageResult[User]:
        """List the users that a user follows, latest first. Three round trips."""
        keys = [USER_FOLLOWING(name), USER_FOLLOWING_RECENT(name), TMP_HOME_STATE(name)]
        completed = self.functions.run("social_complete_following", keys, name, self.clock.now_ms())
        await asyncio.gather(self.users.get(viewer, name), completed)
        return await self.users.page_of(viewer, USER_FOLLOWING_RECENT(name), page)

    async def blocked(self, actor: Actor, page: Page) -> PageResult[User]:
        """List the users that the caller blocks. Two round trips."""
        # Read without a viewer: blocked users are hidden from the caller everywhere else, but here they are unblocked.
        return await self.users.page_of(None, USER_BLOCKED(actor.name), page)

    async def muted(self, actor: Actor, page: Page) -> PageResult[User]:
        """List the users that the caller mutes. Two round trips."""
        return await self.users.page_of(actor, USER_MUTED(actor.name), page)

    def block_list_keys(self, viewer: Actor) -> tuple[str, str]:
        """Return the sorted sets of users hidden from a viewer, for other domains to read."""
        return hiding_keys(viewer)

    async def _target_key(self, target: str) -> list[str]:
        """Return the target's key, by which a command checks that it exists. On a cluster, check it here instead."""
        if not self.valkey.clustered:
            return [USER(target)]
        if not await self.valkey.call("EXISTS", USER(target)):
            raise NotFound("No user has this name.", username=target)
        return []


def _require_other(actor: Actor, target: str) -> str:
    """Return the caller's name; refuse the caller as target."""
    if actor.name == target:
        raise SelfRelation("You cannot follow, block or mute yourself.", field="username")
    return actor.name
