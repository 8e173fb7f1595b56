"""All sessions of an account in one list: programs that refresh tokens, and browsers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from plaza.accounts.model import SessionPage
from plaza.core.account_sessions import AccountSession, SessionList
from plaza.core.auth import Actor
from plaza.core.errors import NotFound
from plaza.core.paging import Page, ids_in_memory, page_by_position
from plaza.core.security_log import AccountLog


class AccountSessions:
    """Lists and ends the sessions of a user."""

    def __init__(self, stores: Sequence[SessionList], log: AccountLog) -> None:
        self._stores = stores
        self._log = log

    async def list_all(self, actor: Actor) -> list[AccountSession]:
        """Return the caller's sessions, last used first. Two round trips."""
        found = await asyncio.gather(*(store.sessions_of(actor.name) for store in self._stores))
        sessions = [replace(session, current=session.id == actor.session) for part in found for session in part]
        return sorted(sessions, key=lambda session: (-session.last_used_at, session.id))

    async def page(self, actor: Actor, page: Page) -> SessionPage:
        """Return a page of the caller's sessions, last used first. Two round trips."""
        own = {session.id: session for session in await self.list_all(actor)}

        async def load(ids: Sequence[str]) -> list[AccountSession | None]:
            return [own[id] for id in ids]

        name = f"account sessions of {actor.name}"
        rows = [(session.id, session.last_used_at) for session in own.values()]
        paged = await page_by_position(name, page, ids_in_memory(name, rows), load)
        return SessionPage(paged.items, paged.pagination)

    async def end(self, actor: Actor, id: str, address: str | None) -> None:
        """End one of the caller's sessions, with its access tokens. A session of another user is not found."""
        for store in self._stores:
            if await store.end_session(actor.name, id):
                await self._log.record(actor.name, "session_ended", address)
                return
        raise NotFound("You have no session with this id.", id=id)

    async def end_others(self, actor: Actor, address: str | None) -> int:
        """End all of the caller's sessions but the current one. Returns how many ended."""
        ended = 0
        for store in self._stores:
            for session in await store.sessions_of(actor.name):
                if session.id != actor.session:
                    ended += await store.end_session(actor.name, session.id)
        await self._log.record(actor.name, "sessions_ended", address, detail=f"{ended} others")
        return ended
