"""Claims sessions for events on a cluster, where a session's keys may be on another node than its event's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from plaza.core.errors import Conflict, Forbidden, TooFast, TooLarge
from plaza.core.functions import Functions
from plaza.live import keys

MAX_CACHED_OWNERS = 4096


class SessionClaims:
    """Which event each session belongs to, as far as this process knows, so that it claims each session once."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._owners: dict[str, str] = {}

    @asynccontextmanager
    async def claimed(self, event: str, sessions: Sequence[str]) -> AsyncIterator[None]:
        """Claim sessions for an event, on a cluster. If the operation is refused, the new claims are undone.

        Claiming comes first. If the owner were only read first, two events could get the same new session.
        """
        unknown = [session for session in sessions if self._owners.get(session) != event]
        claims = await asyncio.gather(*(self._claim(session, event) for session in unknown), return_exceptions=True)
        newly_claimed = [session for session, new in zip(unknown, claims, strict=True) if new is True]
        try:
            for failed in (claim for claim in claims if isinstance(claim, BaseException)):
                raise failed
            yield
        except (Conflict, Forbidden, TooFast, TooLarge):
            infos = [keys.SESSION_INFO(session) for session in newly_claimed]
            await asyncio.gather(*(self._functions.run("live_unclaim", [info], event) for info in infos))
            raise
        if len(self._owners) + len(unknown) > MAX_CACHED_OWNERS:
            self._owners.clear()
        self._owners.update(dict.fromkeys(unknown, event))

    async def _claim(self, session: str, event: str) -> bool:
        """Claim a session. Returns whether it had no event before."""
        return bool(await self._functions.run("live_claim", [keys.SESSION_INFO(session)], event))

    def forget(self, session: str) -> None:
        """Claim the session again at its next use."""
        self._owners.pop(session, None)
