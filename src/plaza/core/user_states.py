"""What other domains may know of every user: the role, and whether the account is suspended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from msgspec import Struct

from plaza.core.roles import Role


class UserState(Struct, frozen=True):
    """A user. Times are Unix milliseconds; `suspended_ms` is None while the user is active."""

    username: str
    role: Role
    created_ms: int
    suspended_ms: int | None


class UserStates(Protocol):
    async def user_states(self, names: Sequence[str]) -> Sequence[UserState | None]:
        """Return users by name, None for one that does not exist. One round trip."""

    def all_usernames(self) -> AsyncIterator[Sequence[str]]:
        """Return all usernames in batches, in no order."""
