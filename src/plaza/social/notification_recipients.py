"""Recipients of notifications, and the users that they do not hear of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plaza.social.keys import USER, USER_BLOCKED, USER_BLOCKED_BY, USER_MUTED
from plaza.social.users import Users


class SocialRecipients:
    """Users with a profile. They are told nothing about users that they block or mute, or that block them."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def recipient_keys(self, username: str) -> tuple[str, ...]:
        """Return a user's profile, then the sorted sets of users whose activities are not told to the user."""
        return USER(username), USER_BLOCKED(username), USER_BLOCKED_BY(username), USER_MUTED(username)

    async def current_names(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the current username for each name that a user has or had. One round trip."""
        return await self._users.current_names(names)
