"""Sessions of an account as their user sees them, of programs that refresh tokens and of browsers alike."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec


class AccountSession(msgspec.Struct, frozen=True):
    """A session. `kind` is `api` for a program that refreshes tokens, `browser` for a page session. `address` is
    truncated to its network by default. Times are Unix milliseconds.
    """

    id: str
    kind: Literal["api", "browser"]
    device: str
    address: str
    created_at: int
    last_used_at: int
    expires_at: int
    current: bool = False


class SessionList(Protocol):
    async def sessions_of(self, username: str) -> list[AccountSession]:
        """Return the sessions of a user that have not expired."""

    async def end_session(self, username: str, id: str) -> bool:
        """End a session of a user, with its access tokens; False if there is none with this id."""
