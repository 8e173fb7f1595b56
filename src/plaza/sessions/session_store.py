"""Finds the session of a request and runs a command in it.

The Lua command that does a request's work also finds the session and marks it as seen. So this costs no round trip of
its own, and nothing is written for a session that has just ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.keyspace import Key
from plaza.core.outbox import OutboxEntry
from plaza.core.revocations import Revocations
from plaza.sessions.keys import LOGIN_TOKENS, RECENT_TOKENS, SESSION_STATE
from plaza.sessions.model import SessionLimits, Visit, is_token, new_token, seconds_text

# A user may log in more than once while a request is under way.
MAX_REPLACEMENTS: Final = 3


@dataclass(frozen=True, slots=True)
class SessionData:
    """What a domain keeps per session: the library that runs session commands, and the keys deleted with a session."""

    library: str
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionCall:
    """The first keys and arguments of a command that works in a session."""

    keys: list[str]
    args: tuple[str | float, ...]


# Runs a command of a session and returns its reply.
SessionCommand = Callable[[SessionCall], Awaitable[list[Any]]]


class SessionStore:
    """Sessions in Valkey."""

    def __init__(
        self,
        functions: Functions,
        clock: Clock,
        data: SessionData,
        revocations: Revocations | None = None,
        limits: SessionLimits | None = None,
    ) -> None:
        self.functions = functions
        self.clock = clock
        self.limits = limits or SessionLimits()
        self._data = data
        self._revocations = Revocations() if revocations is None else revocations

    def keys(self, token: str) -> list[str]:
        """Return the keys of a session: its state, then its data."""
        return [SESSION_STATE(token), *(key(token) for key in self._data.keys)]

    def command(self, name: str) -> str:
        """Return the full name of a session command."""
        return f"{self._data.library}_{name}"

    def now(self) -> str:
        return seconds_text(self.clock.now_ms())

    async def visit(self, cookie: str | None, command: SessionCommand | None = None) -> tuple[Visit, list[Any]]:
        """Find the session of a cookie and run a command in it. One round trip; two for an invalid token.

        Return the session and the rest of the command's reply. A missing or invalid token gets a new session.
        """
        command = command or self._enter
        if cookie is not None and is_token(cookie):
            found = await self._visit_existing(cookie, command)
            if found is not None:
                return found
        token = new_token()
        reply = await command(self._call_with("1", token, "", "", "0"))
        return _visit(token, reply, new=True), reply[4:]

    async def find(self, token: str) -> Visit | None:
        """Return the session of a token and mark it as seen, or None. No session is created."""
        found = await self._visit_existing(token, self._enter)
        return None if found is None else found[0]

    async def _enter(self, call: SessionCall) -> list[Any]:
        reply: list[Any] = await self.functions.run_deferred(self.command("enter_session"), call.keys, *call.args)
        return reply

    async def _call(self, token: str) -> SessionCall:
        """Return the call for an existing token. On a cluster its documented keys are read first: one round trip."""
        login, recent, pending = "", "", 0
        if self.functions.valkey.clustered:
            entry = OutboxEntry.for_key(self._data.library, SESSION_STATE(token))
            login, recent, pending = await self.functions.valkey.batch(
                [
                    ("HGET", LOGIN_TOKENS(), token),
                    ("ZSCORE", RECENT_TOKENS(), token),
                    ("EXISTS", entry.pending),
                ]
            )
            recent = "" if recent is None else repr(float(recent))
            if login and self.is_revoked(login, float(recent or 0)):
                login = ""
        return self._call_with("0", token, login or "", recent, "0" if pending else "1")

    def _call_with(self, new: str, token: str, *documented: str) -> SessionCall:
        limits = (self.limits.idle_seconds, self.limits.absolute_seconds)
        return SessionCall(self.keys(token), (token, self.now(), *limits, new, *documented))

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
        """Run the command of a request that was under way when a login replaced its token, in the new session.

        The response sets no cookie: it would overwrite the one from the login. An attacker may have planted the guest's
        token, so a guest's token stays a guest's and reveals nothing of the user.
        """
        _, to, since, user_before = reply[:4]
        for _ in range(MAX_REPLACEMENTS):
            if reply[0] != "replaced" or not reply[1]:
                break
            to = reply[1]
            reply = await command(await self._call(to))
        guest = Visit(replaced, None, float(since), float(self.now()), replaced=True)
        if reply[0] != "live":
            return guest, []
        visit = _visit(to, reply, replaced=True)
        if await self._end_if_revoked(visit):
            return None
        return (visit if user_before else replace(guest, successor=visit.user)), reply[4:]

    async def _end_if_revoked(self, visit: Visit) -> bool:
        if not self.is_revoked(visit.user, visit.since):
            return False
        await self.end(visit.token)
        return True

    def is_revoked(self, user: str | None, since: float) -> bool:
        """Return whether the user was deleted, renamed or suspended since a time, in Unix seconds. No round trip."""
        return user is not None and self._revocations.revoked_ms(user) >= round(since * 1000)

    def start_time(self, username: str) -> str:
        """Return the start time of a new session: later than any known revocation, whose clock may be ahead."""
        return seconds_text(max(self.clock.now_ms(), self._revocations.revoked_ms(username) + 1))

    async def signed_in_user(self, token: str) -> str | None:
        """Return which user is signed in with a token. Two round trips; the session is not marked as seen."""
        login = await self.functions.valkey.call("HGET", LOGIN_TOKENS(), token)
        limits = (self.limits.idle_seconds, self.limits.absolute_seconds)
        args = (self.now(), *limits, login or "")
        user, since = await self.functions.query(self.command("session_user"), self.keys(token), *args)
        return None if not user or self.is_revoked(user, float(since)) else str(user)

    async def open(self, token: str, username: str, since: str) -> None:
        """Start the session of an authenticated user."""
        await self.functions.run(self.command("open_session"), self.keys(token), token, since, username)

    async def replace(self, token: str, new_token: str, username: str, until: str) -> str:
        """Replace a session at login. Return what the owner of the session's data replied, or an empty string."""
        reply = await self._replace(token, new_token, username, until)
        # A token of another service has no session before its first request, but it may have a cart.
        if reply is None and await self.find(token) is not None:
            reply = await self._replace(token, new_token, username, until)
        return reply or ""

    async def _replace(self, token: str, new_token: str, username: str, until: str) -> str | None:
        args = (token, until, new_token, username)
        reply: str | None = await self.functions.run(self.command("replace_session"), self.keys(token), *args)
        return reply

    async def end(self, token: str, seen: str = "") -> bool:
        """End a session; with `seen` only if it was not seen after that. Return whether it ended."""
        return bool(await self.functions.run(self.command("end_session"), self.keys(token), token, seen))


def _visit(token: str, reply: Sequence[Any], *, new: bool = False, replaced: bool = False) -> Visit:
    return Visit(token, reply[1] or None, float(reply[2]), float(reply[3]), new, replaced)
