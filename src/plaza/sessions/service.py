"""Lists, ends and cleans up sessions."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from plaza.core.account_sessions import AccountSession
from plaza.core.errors import NotFound
from plaza.core.paging import Page, ids_in_memory, page_by_position
from plaza.core.security_log import AccountLog
from plaza.sessions.keys import RECENT_TOKENS, SESSION_STATE, USER_SESSION_TOKENS
from plaza.sessions.model import (
    Session,
    SessionClient,
    SessionLimits,
    SessionReplaced,
    SessionsPage,
    Visit,
    is_token,
    public_id,
)
from plaza.sessions.session_finder import MAX_REPLACEMENTS, SessionFinder

CLEAN_BATCH: Final = 200
# Tokens of other services that one run passes over; the next run goes on after them.
MAX_KEPT: Final = 10_000


class Sessions:
    """The sessions of users and guests."""

    def __init__(self, finder: SessionFinder, log: AccountLog | None = None) -> None:
        self.store = finder.store
        self._log = log or AccountLog(None)
        self._finder = finder
        self._valkey = self.store.functions.valkey
        self._next_rank = 0  # where cleaning goes on in `recent:`; it passes over the tokens of other services

    @property
    def limits(self) -> SessionLimits:
        return self.store.limits

    async def visit(self, cookie: str | SessionClient | None) -> Visit:
        """Return the session of a cookie. A missing or invalid token gets a new session."""
        visit, _ = await self._finder.visit(cookie)
        return visit

    async def logout(self, cookie: str | None, address: str | None = None) -> None:
        """End the session of a cookie. The account's cart stays for the next login."""
        if cookie is None or not is_token(cookie):
            return
        token = cookie
        for _ in range(MAX_REPLACEMENTS):
            user, replaced_until, to = await self._valkey.call("HMGET", SESSION_STATE(token), "user", "moved", "to")
            if not replaced_until:
                await self.store.end(token)
                if user:
                    await self._log.record(user, "session_ended", address, detail="sign_out")
                return
            # A token that was replaced long ago must not end the new session. Nor must a guest's, which may be planted.
            if not user or not to or self.store.clock.now_s() > float(replaced_until):
                return
            token = to

    async def list_own(self, visit: Visit) -> list[Session]:
        """Return the sessions of the signed-in user, or only this one of a guest. Two round trips."""
        if visit.user is None or visit.replaced:
            return [self.describe(visit)]
        tokens = await self._valkey.call("ZRANGE", USER_SESSION_TOKENS(visit.user), 0, -1, "REV")
        fields = ("user", "since", "seen", "moved", "device", "address")
        rows = await self._valkey.batch([("HMGET", SESSION_STATE(token), *fields) for token in tokens])
        sessions = []
        if visit.token not in tokens:  # a login of another service, which is being indexed
            sessions.append(self.describe(visit))
        for token, (user, since, seen, replaced, device, address) in zip(tokens, rows, strict=True):
            if user == visit.user and not replaced:
                described = self.describe(Visit(token, user, float(since), float(seen)), current=token == visit.token)
                sessions.append(msgspec.structs.replace(described, device=device or "", address=address or ""))
        now = self.store.clock.now_s()
        return [session for session in sessions if session.expires_at >= now]

    async def page(self, visit: Visit, page: Page) -> SessionsPage:
        """Return a page of the caller's sessions, newest first."""
        own = {session.id: session for session in await self.list_own(visit)}
        rows = [(session.id, session.created_at) for session in own.values()]

        async def load(ids: Sequence[str]) -> list[Session | None]:
            return [own[id] for id in ids]

        name = f"sessions of {visit.buyer}"
        paged = await page_by_position(name, page, ids_in_memory(name, rows), load)
        return SessionsPage(paged.items, paged.pagination)

    async def end_own(self, visit: Visit, id: str) -> None:
        """End one of the caller's sessions. A session of another user is not found."""
        if visit.replaced:
            raise SessionReplaced("A login has replaced this session. Repeat the request with the new cookie.")
        if visit.user is not None:
            ended = await self.end_session(visit.user, id)
        elif ended := secrets.compare_digest(visit.id, id):
            await self.store.end(visit.token)
        if not ended:
            raise NotFound("You have no session with this id.", id=id)

    async def sessions_of(self, username: str) -> list[AccountSession]:
        """Return the sessions of a user. Two round trips."""
        return [_account_session(session) for session in await self.list_own(Visit("", username, 0, 0))]

    async def end_session(self, username: str, id: str) -> bool:
        """End a session of a user; False if there is none with this id. Two round trips."""
        tokens = await self._valkey.call("ZRANGE", USER_SESSION_TOKENS(username), 0, -1)
        token = next((token for token in tokens if secrets.compare_digest(public_id(token), id)), None)
        return token is not None and await self.store.end(token)

    def describe(self, visit: Visit, *, current: bool = True) -> Session:
        """Return what the API shows of a session."""
        expires = min(visit.seen + self.limits.idle_seconds, visit.since + self.limits.absolute_seconds)
        return Session(visit.id, visit.user, visit.since, visit.seen, expires, current)

    async def clean(self) -> int:
        """End idle sessions, and the oldest beyond the limit, in batches. Return how many ended.

        A token that only another service knows ends beyond the limit only: that service has its own idle limit.
        """
        total, kept = 0, 0
        while kept < MAX_KEPT:
            batch = await self._sessions_to_clean()
            if not batch:
                self._next_rank = 0
                break
            results = await asyncio.gather(
                *(self.store.end(token, seen, own_only=not surplus) for token, seen, surplus in batch)
            )
            total += sum(results)
            kept += len(batch) - sum(results)
            self._next_rank += len(batch) - sum(results)
        return total

    async def _sessions_to_clean(self) -> list[tuple[str, str, bool]]:
        """Return the oldest sessions that must end, with when they were seen: one that is seen since then is kept.

        The third value is whether the session is beyond the limit.
        """
        first = self._next_rank
        count, rows = await self._valkey.batch(
            [("ZCARD", RECENT_TOKENS()), ("ZRANGE", RECENT_TOKENS(), first, first + CLEAN_BATCH - 1, "WITHSCORES")]
        )
        surplus = count - self.limits.max_sessions
        idle_since = self.store.clock.now_s() - self.limits.idle_seconds
        return [
            (token, repr(float(seen)), rank < surplus)
            for rank, (token, seen) in enumerate(rows, first)
            if rank < surplus or float(seen) < idle_since
        ]

    async def sign_out(self, username: str) -> None:
        """End every session of a user, for example after a password change. The account's cart stays."""
        for token in await self._valkey.call("ZRANGE", USER_SESSION_TOKENS(username), 0, -1):
            await self.store.end(token)


def _account_session(session: Session) -> AccountSession:
    created, used, expires = (round(s * 1000) for s in (session.created_at, session.last_seen, session.expires_at))
    return AccountSession(session.id, "browser", session.device, session.address, created, used, expires)
