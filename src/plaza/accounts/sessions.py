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
        sessions = await self.list_of(actor.name)
        return [replace(session, current=session.id == actor.session) for session in sessions]

    async def list_of(self, username: str) -> list[AccountSession]:
        """Return the sessions of any user, for admins, last used first. Two round trips."""
        found = await asyncio.gather(*(store.sessions_of(username) for store in self._stores))
        sessions = [session for part in found for session in part]
        return sorted(sessions, key=lambda session: (-session.last_used_at, session.id))

    async def page(self, actor: Actor, page: Page) -> SessionPage:
        """Return a page of the caller's sessions, last used first. Two round trips."""
        return await _page(f"account sessions of {actor.name}", await self.list_all(actor), page)

    async def page_of(self, username: str, page: Page) -> SessionPage:
        """Return a page of the sessions of any user, for admins, last used first. Two round trips."""
        return await _page(f"sessions of {username}", await self.list_of(username), page)

    async def end(self, actor: Actor, id: str, address: str | None) -> None:
        """End one of the caller's sessions, with its access tokens. A session of another user is not found."""
        for store in self._stores:
            if await store.end_session(actor.name, id):
                await self._log.record(actor.name, "session_ended", address)
                return
        raise NotFound("You have no session with this id.", id=id)

    async def end_of(self, username: str, id: str) -> None:
        """End a session of any user, for admins. The HTTP layer logs it."""
        for store in self._stores:
            if await store.end_session(username, id):
                return
        raise NotFound("This user has no session with this id.", id=id)

    async def end_all_of(self, username: str) -> int:
        """End all sessions of any user, for admins, and return how many. The HTTP layer logs it."""
        sessions = [(store, session.id) for store in self._stores for session in await store.sessions_of(username)]
        return sum([await store.end_session(username, id) for store, id in sessions])

    async def end_others(self, actor: Actor, address: str | None) -> int:
        """End all of the caller's sessions but the current one. Returns how many ended."""
        ended = 0
        for store in self._stores:
            for session in await store.sessions_of(actor.name):
                if session.id != actor.session:
                    ended += await store.end_session(actor.name, session.id)
        await self._log.record(actor.name, "sessions_ended", address, detail=f"{ended} others")
        return ended


async def _page(name: str, sessions: Sequence[AccountSession], page: Page) -> SessionPage:
    known = {session.id: session for session in sessions}

    async def load(ids: Sequence[str]) -> list[AccountSession | None]:
        return [known[id] for id in ids]

    rows = [(session.id, session.last_used_at) for session in sessions]
    paged = await page_by_position(name, page, ids_in_memory(name, rows), load)
    return SessionPage(paged.items, paged.pagination)
