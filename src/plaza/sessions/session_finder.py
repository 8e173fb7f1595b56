"""Finds the session of a request and runs a command in it.

The Lua command that does a request's work also finds the session and marks it as seen. So this costs no round trip of
its own, and nothing is written for a session that has just ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from plaza.core.outbox import OutboxEntry
from plaza.core.rate_limits import Limiter, RateLimited
from plaza.sessions.keys import LOGIN_TOKENS, RECENT_TOKENS, SESSION_STATE
from plaza.sessions.model import SessionClient, Visit, is_token, new_token
from plaza.sessions.session_store import SessionStore

# A user may log in more than once while a request is under way.
MAX_REPLACEMENTS: Final = 3


class SessionCall(Struct, frozen=True):
    """The first keys and arguments of a command that works in a session."""

    keys: list[str]
    args: tuple[str | float, ...]


# Runs a command of a session and returns its reply.
SessionCommand = Callable[[SessionCall], Awaitable[list[Any]]]


class SessionFinder:
    """Finds the sessions of requests."""

    def __init__(self, store: SessionStore, limiter: Limiter | None = None) -> None:
        self.store = store
        self._limiter = limiter

    async def visit(
        self, cookie: str | SessionClient | None, command: SessionCommand | None = None
    ) -> tuple[Visit, list[Any]]:
        """Find the session of a cookie and run a command in it. One round trip; up to three if a session starts.

        Return the session and the rest of the command's reply. A missing or invalid token gets a new session. A read
        only offers one, and its command is not run: the reply is empty.
        """
        client = cookie if isinstance(cookie, SessionClient) else SessionClient(cookie)
        command = command or self._enter
        token = client.token if is_token(client.token) else None
        if token is not None:
            found = await self._visit_existing(token, command)
            if found is not None:
                return found
        is_offered = token is not None and self.store.offers.is_offered(token, client.proof)
        if not await self._may_start(client, is_offered):
            return self._offer(), []
        if token is not None and is_offered:
            reply = await command(self._call_with("1", token, "", "", "0"))
            if reply[0] in ("new", "live"):
                return _visit(token, reply, new=True), reply[4:]
        token = new_token()
        reply = await command(self._call_with("1", token, "", "", "0"))
        return _visit(token, reply, new=True), reply[4:]

    async def _may_start(self, client: SessionClient, is_offered: bool) -> bool:
        """Whether a session may be stored. Raises `RateLimited` for a write from an address with too many new ones."""
        if not client.may_start and not is_offered:
            return False
        try:
            if self._limiter is not None and client.address is not None:
                await self._limiter.take("session", None, client.address)
        except RateLimited:
            if client.may_start:
                raise
            return False
        return True

    def _offer(self) -> Visit:
        now = float(self.store.now())
        return Visit(new_token(), None, now, now, new=True, offered=True)

    async def find(self, token: str) -> Visit | None:
        """Return the session of a token and mark it as seen, or None. No session is created."""
        found = await self._visit_existing(token, self._enter)
        return None if found is None else found[0]

    async def _enter(self, call: SessionCall) -> list[Any]:
        reply: list[Any] = await self.store.functions.run_deferred(
            self.store.command("enter_session"), call.keys, *call.args
        )
        return reply

    async def _call(self, token: str) -> SessionCall:
        """Return the call for an existing token. On a cluster its documented keys are read first: one round trip."""
        login, recent, pending = "", "", 0
        if self.store.functions.valkey.clustered:
            entry = OutboxEntry.for_key(self.store.library, SESSION_STATE(token))
            login, recent, pending = await self.store.functions.valkey.batch(
                [
                    ("HGET", LOGIN_TOKENS(), token),
                    ("ZSCORE", RECENT_TOKENS(), token),
                    ("EXISTS", entry.pending),
                ]
            )
            recent = "" if recent is None else repr(float(recent))
            if login and self.store.is_revoked(login, float(recent or 0)):
                login = ""
        return self._call_with("0", token, login or "", recent, "0" if pending else "1")

    def _call_with(self, new: str, token: str, *documented: str) -> SessionCall:
        limits = (self.store.limits.idle_seconds, self.store.limits.absolute_seconds)
        return SessionCall(self.store.keys(token), (token, self.store.now(), *limits, new, *documented))

    async def _visit_existing(self, token: str, command: SessionCommand) -> tuple[Visit, list[Any]] | None:
        reply = await command(await self._call(token))
        if reply[0] == "replaced":
            return await self._visit_successor(token, reply, command)
        if reply[0] != "live":
            return None
        visit = _visit(token, reply)
        return None if await self._end_if_revoked(visit) else (visit, reply[4:])

    async def _visit_successor(
        self, replaced: str, reply: list[Any], command: SessionCommand
    ) -> tuple[Visit, list[Any]] | None:
        """Run the command of a request that was under way when a login replaced its token, in the user's new session.

        An attacker may have planted a guest's token. So it stays a guest's: the command is not run, and its request
        sees only what the guest had. The response sets no cookie: it would overwrite the one from the login.
        """
        _, to, since, user_before = reply[:4]
        guest = Visit(replaced, None, float(since), float(self.store.now()), replaced=True)
        if not user_before:
            return guest, []
        for _ in range(MAX_REPLACEMENTS):
            if reply[0] != "replaced" or not reply[1]:
                break
            to = reply[1]
            reply = await command(await self._call(to))
        if reply[0] != "live":
            return guest, []
        visit = _visit(to, reply, replaced=True)
        return None if await self._end_if_revoked(visit) else (visit, reply[4:])

    async def _end_if_revoked(self, visit: Visit) -> bool:
        if not self.store.is_revoked(visit.user, visit.since):
            return False
        await self.store.end(visit.token)
        return True


def _visit(token: str, reply: Sequence[Any], *, new: bool = False, replaced: bool = False) -> Visit:
    return Visit(token, reply[1] or None, float(reply[2]), float(reply[3]), new, replaced)
