"""User profiles: read, change, role, suspension. How users relate to each other is in `relations.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from msgspec import UNSET

from plaza.core.auth import Actor, Auth
from plaza.core.clock import Clock
from plaza.core.errors import Forbidden, Invalid
from plaza.core.functions import Functions
from plaza.core.number_parsing import parse_int
from plaza.core.paging import Page, PageResult, ids_in_sorted_set, page_by_position
from plaza.core.pictures import AVATAR, Pictures, PictureUse, picture_in_address
from plaza.core.roles import Role
from plaza.core.security_log import AccountLog
from plaza.core.sequences import pairs_to_dict
from plaza.core.valkey import Valkey
from plaza.social.keys import (
    AUTH_USER,
    POST,
    USER,
    USER_BLOCKED,
    USER_BLOCKED_BY,
    USER_POSTS,
    USER_VERSION,
    USERS_MODELS,
    USERS_REGULAR,
    USERS_RENAMED,
)
from plaza.social.model import COPIED_FIELDS, PUBLIC_FIELDS, NoProfile, Profile, User, public_user, user_from_hash
from plaza.social.post_reader import PostReader
from plaza.social.private_fields import PrivateFields
from plaza.social.profile_reader import ProfileReader
from plaza.social.read_view import hiding_keys

# Posts that get a changed profile within the request.
POSTS_UPDATED_AT_ONCE = 50


async def announce_profile_changes(functions: Functions, names: Sequence[str]) -> None:
    """Emit the events of profiles that were written through the proxy. One round trip on one server."""
    await functions.run_each("social_announce_profile", [([USER(name)], [name]) for name in names])


class Users:
    def __init__(
        self,
        reader: PostReader,
        auth: Auth,
        clock: Clock,
        private: PrivateFields,
        pictures: Pictures | None = None,
        log: AccountLog | None = None,
    ) -> None:
        self.functions = reader.functions
        self._profiles = ProfileReader(reader)
        self._private = private
        self._pictures = pictures
        self._log = log or AccountLog(None)
        self.valkey = reader.valkey
        self.auth = auth
        self.clock = clock

    async def get(self, viewer: Actor | None, name: str) -> User:
        """Return a profile, with private fields only for the user themself. One round trip."""
        if viewer is not None and viewer.name == name:
            fields = await self.valkey.call("HGETALL", USER(name))
            if not fields:
                raise _no_user(name)
            return self._private.own_profile(fields, name)
        if self.valkey.clustered:
            (user,) = await self.public_profiles(viewer, [name])
        else:
            user = await self._profiles.one(viewer, name)
        if user is None:
            raise _no_user(name)
        return user

    async def public_profiles(self, viewer: Actor | None, names: Sequence[str]) -> list[User | None]:
        """Return public profiles, None for a user who does not exist or is hidden from the viewer. One round trip."""
        commands: list[tuple[str | int, ...]] = [("HMGET", USER(name), *PUBLIC_FIELDS) for name in names]
        if viewer is not None and names:
            commands += [("ZMSCORE", key, *names) for key in hiding_keys(viewer)]
        replies = await self.valkey.batch(commands)
        hidden = [False] * len(names)
        if viewer is not None and names:
            hidden = [a is not None or b is not None for a, b in zip(replies[-2], replies[-1], strict=True)]
        profiles = replies[: len(names)]
        rows = zip(names, profiles, hidden, strict=True)
        return [None if hides else public_user(values, name) for name, values, hides in rows]

    async def visible(self, viewer: Actor | None, names: Sequence[str]) -> list[bool]:
        """Return which users the viewer may see. Two round trips; much cheaper than `public_profiles`."""
        found = await self.valkey.batch([("EXISTS", USER(name)) for name in names])
        hidden = await self.hidden_from(viewer, names) if viewer else set()
        return [bool(exists) and name not in hidden for name, exists in zip(names, found, strict=True)]

    async def hidden_from(self, viewer: Actor, others: Sequence[str]) -> set[str]:
        """Return which of the others are hidden from a viewer by a block. One round trip."""
        return await self._members(hiding_keys(viewer), others)

    async def blocked_either_way(self, username: str, others: Sequence[str]) -> set[str]:
        """Return which of the others block the user or are blocked by them. One round trip."""
        return await self._members((USER_BLOCKED(username), USER_BLOCKED_BY(username)), others)

    async def _members(self, keys: Sequence[str], names: Sequence[str]) -> set[str]:
        if not names:
            return set()
        scores = await self.valkey.batch([("ZMSCORE", key, *names) for key in keys])
        return {name for row in scores for name, score in zip(names, row, strict=True) if score is not None}

    async def current_names(self, names: Sequence[str]) -> dict[str, str]:
        """Return the current username for each name that a user has or had. One round trip."""
        exists = [("EXISTS", USER(name)) for name in names]
        *found, renamed = await self.valkey.batch([*exists, ("HMGET", USERS_RENAMED(), *names)])
        rows = zip(names, found, renamed, strict=True)
        return {name: name if known else new for name, known, new in rows if known or new}

    async def update_profile(self, actor: Actor, name: str, profile: Profile, address: str | None = None) -> User:
        """Change the caller's profile and the copies in their posts. One round trip; three if posts copy the field.

        A changed e-mail address is recorded, and its user told: it takes a round trip more.
        """
        if actor.name != name:
            raise Forbidden("You can only change your own profile.")
        email = await self.valkey.call("HGET", USER(name), "email") if profile.email is not UNSET else None
        changes = self._private.stored(name, profile.changes())
        await _keep_picture(self._pictures, actor, picture_in_address(changes.get("avatar")))
        values = [part for field, value in changes.items() if value is not None for part in (field, value)]
        removed = [field for field, value in changes.items() if value is None]
        reply = await self.functions.run(
            "social_change_profile", [USER(name)], name, len(values) // 2, *values, *removed
        )
        if not changes.keys().isdisjoint(COPIED_FIELDS):
            await self._update_newest_posts(name)
        if profile.email is not UNSET and profile.email != email:
            await self._log.record(name, "email_changed", address)
        return self._private.own_profile(pairs_to_dict(reply), name)

    async def _update_newest_posts(self, name: str) -> None:
        """Copy a changed profile to the user's newest posts, which they look at next. Two round trips.

        A worker updates the others.
        """
        newest = self.valkey.call("ZRANGE", USER_POSTS(name), 0, POSTS_UPDATED_AT_ONCE - 1, "REV")
        ids, copied = await asyncio.gather(newest, read_copied_profile(self.valkey, name))
        if copied is not None:
            await asyncio.gather(*(self.functions.run("social_restyle_post", [POST(id)], id, *copied) for id in ids))

    async def set_role(self, actor: Actor, name: str, role: Role) -> User:
        """Set a user's role, and revoke the access tokens that carry the old one. Three round trips.

        The actor's stored role counts, not the token's claim: the claim may be older than a demotion.
        """
        await self._require_stored_admin(actor)
        at = self.auth.revocation_time_ms(name)
        by_self = int(actor.name == name)
        changed, profile = await self.functions.run("social_change_role", [USER(name)], name, role, at, by_self)
        if changed:
            await self.auth.revoke_access_tokens(name, at)
            await self._update_newest_posts(name)
        return user_from_hash(pairs_to_dict(profile), name)

    async def _require_stored_admin(self, actor: Actor) -> None:
        """Raise `Forbidden` if the actor's profile has another role or is suspended. One round trip.

        Without a profile the token counts: another issuer's admins need no account here.
        """
        if actor.via_key:
            return
        role, suspended, *_ = await self.functions.query("social_actor", [USER(actor.name), AUTH_USER(actor.name)])
        if suspended is not None or role not in (None, "admin"):
            raise Forbidden("This needs the role admin; yours was changed. Sign in again.")

    async def suspend(self, actor: Actor, name: str, *, on: bool) -> User:
        """Suspend an account, which revokes its tokens, or end a suspension. Three round trips.

        The actor's stored role counts, as for `set_role`.
        """
        await self._require_stored_admin(actor)
        by, at = actor.name if on else "", self.auth.revocation_time_ms(name)
        reply = await self.functions.run("social_suspend", [USER(name), AUTH_USER(name)], name, by, at)
        if on:
            await self.auth.revoke_tokens(name)
        profile, since = reply
        user = user_from_hash(pairs_to_dict(profile), name)
        user.suspended_at = parse_int(since, None)
        return user

    async def newest(self, viewer: Actor, role: Role, page: Page) -> PageResult[User]:
        """List users or models, newest first. Two round trips."""
        return await self.page_of(viewer, USERS_MODELS() if role == "model" else USERS_REGULAR(), page)

    async def page_of(self, viewer: Actor | None, key: str, page: Page) -> PageResult[User]:
        """Return a page of the users in a sorted set, highest score first, that the viewer may see. Two round trips."""
        load, visible = partial(self.public_profiles, viewer), partial(self.visible, viewer)
        return await page_by_position(key, page, ids_in_sorted_set(self.functions, key), load, visible)


async def _keep_picture(pictures: Pictures | None, actor: Actor, picture: str | None) -> None:
    """Keep a picture of the caller that is now their avatar. That of another user is an address like any other."""
    if picture is not None and pictures is not None:
        with suppress(Invalid):
            await pictures.claim(actor, [picture], PictureUse(AVATAR, actor.name))


async def read_copied_profile(valkey: Valkey, name: str) -> list[str] | None:
    """Return what posts copy of a profile: version, avatar, display name, role. None if there is no profile."""
    fields = ("avatar", "display_name", "role", "username", "created_at", "version")
    profile, stored = await valkey.batch([("HMGET", USER(name), *fields), ("GET", USER_VERSION(name))])
    avatar, display_name, role, username, created, earlier = profile
    if role is None and username is None and created is None:
        return None
    return [str(parse_int(stored or earlier)), avatar or "", display_name or "", role or "user"]


def _no_user(name: str) -> NoProfile:
    return NoProfile("No user has this name.", username=name)
