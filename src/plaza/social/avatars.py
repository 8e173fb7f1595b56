"""Avatars from uploaded pictures. The documented field `avatar` has the address, so that other services can show it."""

from __future__ import annotations

from collections.abc import Sequence

from plaza.core.auth import Actor
from plaza.core.errors import NotFound
from plaza.core.pictures import AVATAR, Pictures, PictureUse, UseState, picture_in_address
from plaza.social.keys import USER
from plaza.social.model import Profile, User
from plaza.social.users import Users


class Avatars:
    """Sets avatars, and says which pictures are avatars (`PictureHost`)."""

    def __init__(self, users: Users, pictures: Pictures | None) -> None:
        self._users = users
        self._pictures = pictures

    async def set(self, actor: Actor, picture: str) -> User:
        """Make a picture of the caller their avatar, also in their posts. One transaction and three round trips."""
        if self._pictures is None:
            raise NotFound("Pictures are not enabled here.")
        await self._pictures.claim(actor, [picture], PictureUse(AVATAR, actor.name))
        address = self._pictures.address(picture, "small")
        return await self._users.update_profile(actor, actor.name, Profile(avatar=address))

    async def delete(self, actor: Actor) -> User:
        """Remove the caller's avatar. Three round trips."""
        return await self._users.update_profile(actor, actor.name, Profile(avatar=None))

    async def states(self, uses: Sequence[tuple[str, str]]) -> list[UseState]:
        """Return whether each picture is the user's avatar. One round trip."""
        addresses = await self._users.valkey.batch([("HGET", USER(name), "avatar") for name, _ in uses])
        return [
            "visible" if picture_in_address(address) == picture else "gone"
            for (_, picture), address in zip(uses, addresses, strict=True)
        ]

    async def remove(self, id: str, picture: str) -> None:
        """Remove an avatar whose picture is deleted."""
        if await self.states([(id, picture)]) == ["visible"]:
            await self.delete(Actor(id, "user"))
