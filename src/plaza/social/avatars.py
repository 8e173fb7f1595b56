"""Avatars from uploaded pictures. The documented field `avatar` has the address, so that other services can show it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from plaza.core.auth import Actor
from plaza.core.errors import NotFound
from plaza.core.pictures import AVATAR, Pictures, PictureUse, UseState, picture_in_address
from plaza.core.tracking_cache import TrackingCache
from plaza.social.keys import USER
from plaza.social.model import Profile, User
from plaza.social.users import Users

# About 200 bytes each.
MAX_CACHED: Final = 16_384


class Avatars:
    """Sets avatars, and says which pictures are avatars (`PictureHost`)."""

    def __init__(self, users: Users, pictures: Pictures | None) -> None:
        self._users = users
        self._valkey = users.valkey
        self._pictures = pictures
        self._addresses: TrackingCache[str] = TrackingCache(users.valkey, MAX_CACHED)

    async def addresses(self, names: Iterable[str]) -> dict[str, str]:
        """Return the addresses of users' avatars, empty for those without one. No round trip if cached, else one."""
        found = {name: self._addresses.get(USER(name)) for name in names}
        missing = [name for name, address in found.items() if address is None]
        loaded = await asyncio.gather(*map(self._load_address, missing)) if missing else []
        return {name: address or "" for name, address in found.items()} | dict(zip(missing, loaded, strict=True))

    async def _load_address(self, name: str) -> str:
        key = USER(name)

        def store(address: str | None) -> str:
            self._addresses.put(key, address or "")
            return address or ""

        loaded: str = await self._valkey.tracked("HGET", key, "avatar", store=store)
        return loaded

    async def set(self, actor: Actor, picture: str) -> User:
        """Make a picture of the caller their avatar, also in their posts. Two short transactions, three round trips."""
        if self._pictures is None:
            raise NotFound("Pictures are not enabled here.")
        await self._pictures.claim(actor, [picture], PictureUse(AVATAR, actor.name))  # refuses another user's picture
        address = self._pictures.address(picture, "small")
        user = await self._users.update_profile(actor, actor.name, Profile(avatar=address))
        if await self._pictures.deleted([picture]):  # while it became the avatar
            await self.remove(actor.name, picture)
        return user

    async def delete(self, actor: Actor) -> User:
        """Remove the caller's avatar. Three round trips."""
        return await self._users.update_profile(actor, actor.name, Profile(avatar=None))

    async def states(self, uses: Sequence[tuple[str, str]]) -> list[UseState]:
        """Return whether each picture is the user's avatar. One round trip."""
        addresses = await self._valkey.batch([("HGET", USER(name), "avatar") for name, _ in uses])
        return [
            "visible" if picture_in_address(address) == picture else "gone"
            for (_, picture), address in zip(uses, addresses, strict=True)
        ]

    async def remove(self, id: str, picture: str) -> None:
        """Remove an avatar whose picture is deleted."""
        if await self.states([(id, picture)]) == ["visible"]:
            await self.delete(Actor(id, "user"))
