"""Signs users in: a new token replaces the guest's, and the guest's data moves to the new session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from plaza.core.clients import UNKNOWN_CLIENT, ClientInfo
from plaza.core.domain import SecondFactorProof, SignInCheck
from plaza.core.tokens import is_username
from plaza.sessions.model import Login, Visit, WrongLogin, is_token, new_token, seconds_text
from plaza.sessions.session_finder import SessionFinder

# How long requests with the replaced token are served: those that the browser sent before it got the new one.
GRACE_SECONDS: Final = 10


class SignIn:
    """Starts the sessions of users.

    `on_replaced(token, reply)` is called if the owner of a session's data replied something when it was replaced.
    """

    def __init__(
        self,
        finder: SessionFinder,
        passwords: SignInCheck | None = None,
        on_replaced: Callable[[str, str], Awaitable[None]] | None = None,
    ) -> None:
        self._finder = finder
        self._store = finder.store
        self._passwords = passwords
        self._on_replaced = on_replaced

    async def login(self, cookie: str | None, login: Login, client: ClientInfo = UNKNOWN_CLIENT) -> Visit:
        """Sign in by username and password. Two round trips besides the password check."""
        user = None
        # Before the check: a user who is suspended, renamed or deleted during it is signed out by that.
        since = self._store.start_time(login.username)
        if self._passwords is not None and is_username(login.username):
            proof = SecondFactorProof(login.code, login.passkey)
            user = await self._passwords.check(login.username, login.password, client, proof)
        if user is None:
            raise WrongLogin("Username or password is wrong.")
        return await self.admit(cookie, user.name, client, since)

    def new_device(self, username: str) -> str:
        """Return the cookie for a device in which this user has just signed in; empty without a password check."""
        return "" if self._passwords is None else self._passwords.new_device(username)

    async def admit(
        self, cookie: str | None, username: str, client: ClientInfo = UNKNOWN_CLIENT, since: str | None = None
    ) -> Visit:
        """Start the session of an authenticated user; the guest's data moves to the new session. Two round trips.

        The new session exists before the old one is replaced: if that fails, the guest's session is unchanged.
        """
        token, started = new_token(), since or self._store.start_time(username)
        await self._store.open(token, username, started, client)
        if cookie is not None and is_token(cookie):
            until = seconds_text(self._store.clock.now_ms() + GRACE_SECONDS * 1000)
            reply = await self._store.replace(cookie, token, username, until)
            # A token of another service has no session before its first request, but it may have a cart.
            if reply is None and await self._finder.find(cookie) is not None:
                reply = await self._store.replace(cookie, token, username, until)
            if reply and self._on_replaced is not None:
                await self._on_replaced(cookie, reply)
        return Visit(token, username, float(started), float(started), new=True)
