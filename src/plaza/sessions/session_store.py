"""Sessions in Valkey: each method is at most one call of the Lua library."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from plaza.core.clients import ClientInfo
from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.keyspace import Key
from plaza.core.outbox import OutboxEntry
from plaza.core.revocations import Revocations
from plaza.core.settings import AccountAddress
from plaza.sessions.keys import SESSION_STATE
from plaza.sessions.model import SessionLimits, seconds_text
from plaza.sessions.offers import SessionOffers

# How often, and how many times, a request looks whether another process has applied the updates of its session. They
# take milliseconds.
SETTLE_CHECK_SECONDS: Final = 0.01
MAX_SETTLE_CHECKS: Final = 200


class SessionData(Struct, frozen=True):
    """What a domain keeps per session: the library that runs session commands, and the keys deleted with a session."""

    library: str
    keys: tuple[Key, ...] = ()


class SessionStore:
    """Sessions in Valkey."""

    def __init__(
        self,
        functions: Functions,
        clock: Clock,
        data: SessionData,
        revocations: Revocations | None = None,
        limits: SessionLimits | None = None,
        offers: SessionOffers | None = None,
        addresses: AccountAddress = "truncated",
    ) -> None:
        self.functions = functions
        self.clock = clock
        self.limits = limits or SessionLimits()
        self.offers = offers or SessionOffers(clock)
        self.library = data.library
        self._data_keys = data.keys
        self._addresses = addresses
        self._revocations = Revocations() if revocations is None else revocations

    def keys(self, token: str) -> list[str]:
        """Return the keys of a session: its state, then its data."""
        return [SESSION_STATE(token), *(key(token) for key in self._data_keys)]

    def command(self, name: str) -> str:
        """Return the full name of a session command."""
        return f"{self.library}_{name}"

    def now(self) -> str:
        return seconds_text(self.clock.now_ms())

    def is_revoked(self, user: str | None, since: float) -> bool:
        """Return whether the user was deleted, renamed or suspended since a time, in Unix seconds. No round trip."""
        return user is not None and self._revocations.revoked_ms(user) >= round(since * 1000)

    def start_time(self, username: str) -> str:
        """Return the start time of a new session: later than any known revocation, whose clock may be ahead."""
        return seconds_text(max(self.clock.now_ms(), self._revocations.revoked_ms(username) + 1))

    async def settle(self, token: str) -> None:
        """Wait until the updates of a session are applied, on a cluster. A worker applies those of a dead process."""
        await self.functions.outbox.drain()
        pending = OutboxEntry.for_key(self.library, SESSION_STATE(token)).pending
        for _ in range(MAX_SETTLE_CHECKS):
            if not await self.functions.valkey.call("EXISTS", pending):
                return
            await asyncio.sleep(SETTLE_CHECK_SECONDS)

    async def open(self, token: str, username: str, since: str, client: ClientInfo) -> None:
        """Start the session of an authenticated user."""
        args = (token, since, username, client.device_name, client.stored_address(self._addresses))
        await self.functions.run(self.command("open_session"), self.keys(token), *args)

    async def replace(self, token: str, new_token: str, username: str, until: str) -> str | None:
        """Replace a session at login. Return what the owner of its data replied, or None if there is no session."""
        args = (token, until, new_token, username)
        reply: str | None = await self.functions.run(self.command("replace_session"), self.keys(token), *args)
        return reply

    async def end(self, token: str, seen: str = "", *, own_only: bool = False) -> bool:
        """End a session; with `seen` only if it was not seen after that. Return whether it ended.

        `own_only`: not if only another service knows the token.
        """
        args = (token, seen, "1" if own_only else "")
        return bool(await self.functions.run(self.command("end_session"), self.keys(token), *args))
