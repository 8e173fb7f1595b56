"""Profiles, and how people stand to each other: follow, block, mute.

On one server each write is one round trip, and whether the other person exists is looked at in the same atomic step. On
a cluster the other person is elsewhere: the look comes before, and if they leave in between, their side withdraws the
fact again (`lua/users.lua`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from plaza.core.auth import Actor, Auth
from plaza.core.clock import Clock
from plaza.core.errors import Forbidden, NotFound
from plaza.core.functions import Functions
from plaza.core.paging import Page, PageResult, ids_in_sorted_set, page_by_position
from plaza.core.tokens import Role
from plaza.social.keys import (
    AUTH_USER,
    TMP_HOME_STATE,
    USER,
    USER_BLOCKED,
    USER_BLOCKED_BY,
    USER_FOLLOWERS_RECENT,
    USER_FOLLOWING,
    USER_FOLLOWING_RECENT,
    USER_MUTED,
    USERS_MODELS,
    USERS_REGULAR,
)
from plaza.social.lua_replies import as_dict
from plaza.social.model import PUBLIC_FIELDS, NoProfile, NotYourself, Profile, Relation, Ties, User, card_of, user_of


def following_keys(name: str) -> list[str]:
    """The keys by which someone follows others, in the order `follow` takes them."""
    keys = (USER, USER_FOLLOWING, USER_FOLLOWING_RECENT, USER_BLOCKED, USER_BLOCKED_BY, TMP_HOME_STATE)
    return [key(name) for key in keys]


class People:
    """Verbs about users."""

    def __init__(self, functions: Functions, auth: Auth, clock: Clock) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.auth = auth
        self.clock = clock

    async def get(self, viewer: Actor | None, name: str) -> User:
        """A profile; private fields only to its own person. One round trip."""
        if viewer is not None and viewer.name == name:
            fields = await self.valkey.call("HGETALL", USER(name))
            if not fields:
                raise _nobody(name)
            return user_of(fields, private=True)
        (user,) = await self.cards(viewer, [name])
        if user is None:
            raise _nobody(name)
        return user

    async def cards(self, viewer: Actor | None, names: Sequence[str]) -> list[User | None]:
        """Public profiles, None for who is not there or hidden from the viewer. One round trip."""
        commands: list[tuple[str | int, ...]] = [("HMGET", USER(name), *PUBLIC_FIELDS) for name in names]
        if viewer is not None and names:
            commands.append(("ZMSCORE", USER_BLOCKED(viewer.name), *names))
            commands.append(("ZMSCORE", USER_BLOCKED_BY(viewer.name), *names))
        replies = await self.valkey.batch(commands)
        hidden = [False] * len(names)
        if viewer is not None and names:
            hidden = [a is not None or b is not None for a, b in zip(replies[-2], replies[-1], strict=True)]
        return [None if away else card_of(values) for values, away in zip(replies[: len(names)], hidden, strict=True)]

    async def seen(self, viewer: Actor | None, names: Sequence[str]) -> list[bool]:
        """Which of some people the viewer would see. Two round trips, and far less than `cards` for each."""
        there = await self.valkey.batch([("EXISTS", USER(name)) for name in names])
        hidden = await self.hidden(viewer.name, names) if viewer else set()
        return [bool(exists) and name not in hidden for name, exists in zip(names, there, strict=True)]

    async def hidden(self, username: str, others: Sequence[str]) -> set[str]:
        """Which of some people block someone, or are blocked by them. One round trip."""
        if not others:
            return set()
        keys = USER_BLOCKED(username), USER_BLOCKED_BY(username)
        scores = await self.valkey.batch([("ZMSCORE", key, *others) for key in keys])
        return {other for row in scores for other, score in zip(others, row, strict=True) if score is not None}

    async def change(self, actor: Actor, name: str, profile: Profile) -> User:
        """Change a profile. Posts that show something else follow by themselves. One round trip."""
        if actor.name != name:
            raise Forbidden("Only its own person may change a profile.")
        given = profile.given()
        kept = [part for field, value in given.items() if value is not None for part in (field, value)]
        gone = [field for field, value in given.items() if value is None]
        reply = await self.functions.run("social_change_profile", [USER(name)], name, len(kept) // 2, *kept, *gone)
        return user_of(as_dict(reply), private=True)

    async def give_role(self, actor: Actor, name: str, role: Role) -> User:
        """Give a role, which the next tokens carry. One round trip."""
        return user_of(as_dict(await self.functions.run("social_change_role", [USER(name)], name, role)))

    async def suspend(self, actor: Actor, name: str, *, on: bool) -> User:
        """Suspend an account, or lift it. Its tokens are void from now on. Two round trips."""
        by, at = actor.name if on else "", self.auth.stamp(name)
        reply = as_dict(await self.functions.run("social_suspend", [USER(name), AUTH_USER(name)], name, by, at))
        if on:
            await self.auth.cut_off(name)
        user = user_of(reply)
        user.suspended_at = int(reply["suspended_at"]) if "suspended_at" in reply else None
        return user

    async def follow(self, actor: Actor, target: str) -> Relation:
        """Follow someone. A second time changes nothing. One round trip."""
        me = self._toward(actor, target)
        changed = await self.functions.run(
            "social_follow", [*following_keys(me), *await self._seen(target)], me, target, self.clock.now_ms()
        )
        return Relation(target, target, "follow", True, bool(changed))

    async def unfollow(self, actor: Actor, target: str) -> Relation:
        """Follow someone no longer. One round trip."""
        me = self._toward(actor, target)
        keys = [USER(me), USER_FOLLOWING(me), USER_FOLLOWING_RECENT(me)]
        changed = await self.functions.run("social_unfollow", keys, me, target)
        return Relation(target, target, "follow", False, bool(changed))

    async def ties(self, viewer: Actor, name: str) -> Ties:
        """How someone stands to another. One round trip."""
        me = viewer.name
        follows, mutes, blocks = await self.valkey.batch(
            [
                ("SISMEMBER", USER_FOLLOWING(me), name),
                ("ZSCORE", USER_MUTED(me), name),
                ("ZSCORE", USER_BLOCKED(me), name),
            ]
        )
        return Ties(bool(follows), mutes is not None, blocks is not None)

    async def block(self, actor: Actor, target: str) -> Relation:
        """Block someone: follows end both ways, and each is hidden from the other. One round trip."""
        me = self._toward(actor, target)
        keys = [USER_BLOCKED(me), USER(me), USER_FOLLOWING(me), USER_FOLLOWING_RECENT(me)]
        changed = await self.functions.run(
            "social_block", [*keys, *await self._seen(target)], me, target, self.clock.now_ms()
        )
        return Relation(target, target, "block", True, bool(changed))

    async def unblock(self, actor: Actor, target: str) -> Relation:
        me = self._toward(actor, target)
        changed = await self.functions.run("social_unblock", [USER_BLOCKED(me)], me, target)
        return Relation(target, target, "block", False, bool(changed))

    async def mute(self, actor: Actor, target: str) -> Relation:
        """Keep someone's posts out of one's feeds; they do not learn of it. One round trip."""
        me = self._toward(actor, target)
        keys = [USER_MUTED(me), USER_BLOCKED(me), USER_BLOCKED_BY(me)]
        changed = await self.functions.run(
            "social_mute", [*keys, *await self._seen(target)], me, target, self.clock.now_ms()
        )
        return Relation(target, target, "mute", True, bool(changed))

    async def unmute(self, actor: Actor, target: str) -> Relation:
        me = self._toward(actor, target)
        changed = await self.functions.run("social_unmute", [USER_MUTED(me)], me, target)
        return Relation(target, target, "mute", False, bool(changed))

    async def followers(self, viewer: Actor | None, name: str, page: Page) -> PageResult[User]:
        """Who follows someone, latest first. Three round trips."""
        await self.get(viewer, name)
        return await self._people(viewer, USER_FOLLOWERS_RECENT(name), page)

    async def following(self, viewer: Actor | None, name: str, page: Page) -> PageResult[User]:
        """Whom someone follows, latest first. Three round trips."""
        await self.get(viewer, name)
        return await self._people(viewer, USER_FOLLOWING_RECENT(name), page)

    async def blocked(self, actor: Actor, page: Page) -> PageResult[User]:
        """Whom the caller blocks. Two round trips."""
        # They are hidden from the caller everywhere else; here is where the block can be lifted.
        return await self._people(None, USER_BLOCKED(actor.name), page)

    def hiding(self, username: str) -> tuple[str, str]:
        """The keys that name whom someone blocks and who blocks them, for other domains to read along."""
        return USER_BLOCKED(username), USER_BLOCKED_BY(username)

    async def muted(self, actor: Actor, page: Page) -> PageResult[User]:
        """Whom the caller has muted. Two round trips."""
        return await self._people(actor, USER_MUTED(actor.name), page)

    async def newest(self, viewer: Actor, role: Role, page: Page) -> PageResult[User]:
        """The newest users or models. Two round trips."""
        return await self._people(viewer, USERS_MODELS() if role == "model" else USERS_REGULAR(), page)

    async def _people(self, viewer: Actor | None, key: str, page: Page) -> PageResult[User]:
        load, seen = partial(self.cards, viewer), partial(self.seen, viewer)
        return await page_by_position(key, page, ids_in_sorted_set(self.functions, key), load, seen)

    def _toward(self, actor: Actor, target: str) -> str:
        if actor.name == target:
            raise NotYourself("This is done with others, not with oneself.", field="username")
        return actor.name

    async def _seen(self, target: str) -> list[str]:
        """On one server, the key by which a verb sees that someone exists; on a cluster that is seen to before."""
        if not self.valkey.clustered:
            return [USER(target)]
        if not await self.valkey.call("EXISTS", USER(target)):
            raise NotFound("There is nobody of that name.", username=target)
        return []


def _nobody(name: str) -> NoProfile:
    return NoProfile("There is nobody of that name.", username=name)
