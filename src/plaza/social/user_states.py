"""The roles and states of users, for other domains (`UserStates`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from plaza.core.number_parsing import parse_int
from plaza.core.roles import ROLES, Role
from plaza.core.user_states import UserState
from plaza.core.valkey import Valkey
from plaza.social.keys import AUTH_USER, USER
from plaza.social.search_source import UserSearch

# Far beyond any time that makes sense, and within what every database stores.
_MAX_MS: Final = 2**53


class SocialUserStates:
    """Reads profiles and credentials. Other services write profiles too, so odd values are survived."""

    def __init__(self, valkey: Valkey, search: UserSearch) -> None:
        self._valkey = valkey
        self._search = search

    async def user_states(self, names: Sequence[str]) -> list[UserState | None]:
        """Return users by name, None for one that does not exist. One round trip."""
        if not names:
            return []
        profiles = [("HMGET", USER(name), "role", "created_at", "suspended_at") for name in names]
        exists = [("EXISTS", USER(name)) for name in names]
        suspended = [("HGET", AUTH_USER(name), "suspended_at") for name in names]
        replies = await self._valkey.batch([*profiles, *exists, *suspended])
        rows = zip(names, *(replies[n * len(names) : (n + 1) * len(names)] for n in range(3)), strict=True)
        # Earlier releases stored a suspension in the profile.
        return [
            _state(name, role, created, since or earlier) if known else None
            for name, (role, created, earlier), known, since in rows
        ]

    def all_usernames(self) -> AsyncIterator[Sequence[str]]:
        """Return all usernames in batches, in no order."""
        return self._search.all_keys("")


def _state(name: str, role: str | None, created: str | None, since: str | None) -> UserState:
    known: Role = next((each for each in ROLES if each == role), "user")
    return UserState(name, known, _time(created) or 0, _time(since))


def _time(text: str | None) -> int | None:
    return None if text is None else max(0, min(parse_int(text, 0), _MAX_MS))
