"""Checks passwords and reads the current role of a user, for other domains' sessions and for pages."""

from __future__ import annotations

from typing import Final

from plaza.core.auth import Actor
from plaza.core.functions import Functions
from plaza.core.passwords import Passwords
from plaza.core.rate_limits import Limiter
from plaza.core.tokens import ROLES
from plaza.core.tracking_cache import TrackingCache
from plaza.social.keys import AUTH_USER, USER

# Users whose role is cached until it changes: about 200 bytes each.
MAX_CACHED_ACTORS: Final = 20_000


class Credentials:
    """Password checks and current roles."""

    def __init__(self, functions: Functions, limiter: Limiter, passwords: Passwords) -> None:
        self._valkey = functions.valkey
        self._limiter = limiter
        self._passwords = passwords
        self._actors: TrackingCache[Actor] = TrackingCache(functions.valkey, MAX_CACHED_ACTORS)

    async def check(self, username: str, password: str, address: str | None = None) -> Actor | None:
        """Return the user if the password is right, else None. Three round trips, besides the limit's."""
        await self._limiter.take("auth", username, address)
        stored = await self._valkey.call("HGET", AUTH_USER(username), "password_hash")
        if not (await self._passwords.check(stored, password)).right:
            return None
        # Hashing takes a tenth of a second. The password may have been changed meanwhile, and all sessions ended.
        if await self._valkey.call("HGET", AUTH_USER(username), "password_hash") != stored:
            return None
        actor = await self.actor(username)
        if actor is not None:
            await self._limiter.give_back("auth", username)
        return actor

    async def actor(self, username: str) -> Actor | None:
        """Return a user with the current role; None if suspended or unknown. No round trip if cached, else one."""
        key = USER(username)
        cached = self._actors.get(key)
        if cached is not None:
            return cached

        def keep(row: list[str | None]) -> Actor | None:
            role, suspended = row
            if role not in ROLES or suspended is not None:
                return None
            actor = Actor(username, role)
            self._actors.put(key, actor)
            return actor

        actor: Actor | None = await self._valkey.tracked("HMGET", key, "role", "suspended_at", store=keep)
        return actor
