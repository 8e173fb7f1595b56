"""The sessions of programs that refresh tokens: listed and ended."""

from __future__ import annotations

from plaza.core.account_sessions import AccountSession
from plaza.core.auth import Auth
from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.social.keys import AUTH_USER
from plaza.social.refresh_tokens import family_field, read_sessions


class ApiSessions:
    """Lists and ends families of refresh tokens."""

    def __init__(self, functions: Functions, auth: Auth, clock: Clock) -> None:
        self._functions = functions
        self._auth = auth
        self._clock = clock

    async def sessions_of(self, username: str) -> list[AccountSession]:
        """Return a user's sessions. One round trip."""
        credentials = await self._functions.valkey.call("HGETALL", AUTH_USER(username))
        now = self._clock.now_ms()
        return [session for session in read_sessions(credentials) if session.expires_at > now]

    async def end_session(self, username: str, id: str, token_hash: str = "") -> bool:
        """End a session and make its access tokens void; False if there is none with this id. Two round trips.

        With `token_hash`, only if this is the hash of its current refresh token.
        """
        now = self._clock.now_ms()
        args = (family_field(id), token_hash, now)
        if not await self._functions.run("social_end_session", [AUTH_USER(username)], *args):
            return False
        await self._auth.end_session(id, now)
        return True

    async def end_all(self, username: str) -> None:
        """End all sessions and make every access token of a user void. Two round trips."""
        at = self._auth.revocation_time_ms(username)
        await self._functions.run("social_sign_out", [AUTH_USER(username)], username, at)
        await self._auth.revoke_access_tokens(username, at)
