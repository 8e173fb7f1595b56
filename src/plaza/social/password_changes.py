"""Changes passwords. Every session and access token of the account ends."""

from __future__ import annotations

from plaza.core.auth import Actor, Auth
from plaza.core.clients import UNKNOWN_CLIENT, ClientInfo
from plaza.core.clock import Clock
from plaza.core.domain import SignOut
from plaza.core.errors import Forbidden, Invalid
from plaza.core.functions import Functions
from plaza.core.passwords import Passwords
from plaza.core.sequences import pairs_to_dict
from plaza.core.settings import AccountAddress
from plaza.social.credentials import Credentials
from plaza.social.keys import AUTH_USER, USER
from plaza.social.model import PasswordChange, SignedIn, require_username
from plaza.social.private_fields import PrivateFields
from plaza.social.refresh_tokens import RefreshToken, issue_tokens


class PasswordChanges:
    """Changes passwords of users, by themselves and by operators."""

    def __init__(
        self,
        functions: Functions,
        auth: Auth,
        passwords: Passwords,
        credentials: Credentials,
        clock: Clock,
        private: PrivateFields,
        browser_sessions: SignOut | None = None,
        addresses: AccountAddress = "truncated",
    ) -> None:
        self._functions = functions
        self._auth = auth
        self._credentials = credentials
        self._passwords = passwords
        self._log = credentials.log
        self._clock = clock
        self._private = private
        self._browser_sessions = browser_sessions
        self._addresses = addresses

    async def change(self, actor: Actor, change: PasswordChange, client: ClientInfo = UNKNOWN_CLIENT) -> SignedIn:
        """Change the password and start a new API session.

        Three round trips, besides the limit's and those of sessions that end.
        """
        token, now = RefreshToken.new(actor.name), self._clock.now_ms()
        session = (token.family, token.stored_session(now, client, self._addresses))
        reply, revoked_ms = await self._change(actor, change, client, session)
        profile = self._private.own_profile(pairs_to_dict(reply), actor.name)
        return issue_tokens(self._auth, profile, token, revoked_ms + 1, now)

    async def change_in_browser(self, actor: Actor, change: PasswordChange, client: ClientInfo) -> None:
        """Change the password without a new session: the page starts one. Costs as much as `change`."""
        await self._change(actor, change, client, ("", ""))

    async def set(self, username: str, password: str) -> None:
        """Set a password as an operator. One round trip, besides those of sessions that end."""
        require_username(username)
        if not 8 <= len(password) <= 256:
            raise Invalid("A password must have 8 to 256 characters.", field="password")
        hashed = await self._passwords.hash_new(password, username)
        await self._replace(username, "", hashed, "", "")
        await self._log.notify(username, "password_changed")

    async def _change(
        self, actor: Actor, change: PasswordChange, client: ClientInfo, session: tuple[str, str]
    ) -> tuple[list[str], int]:
        name = actor.name
        await self._credentials.limits.take_signed_in(name)
        caller = self._credentials.limits.caller(name, client.address)
        stored = await self._functions.valkey.call("HGET", AUTH_USER(name), "password_hash")
        if not (await self._passwords.check(stored, change.old, caller)).matches:
            await self._log.record(name, "password_changed", client.address, result="wrong_password")
            raise Forbidden("The old password is wrong.", field="old")
        hashed = await self._passwords.hash_new(change.new, name, "new", caller)
        reply, revoked_ms = await self._replace(name, stored, hashed, *session)
        if not reply:
            raise Forbidden("The old password is wrong.", field="old")
        await self._log.record(name, "password_changed", client.address)
        return reply, revoked_ms

    async def _replace(self, name: str, *args: str) -> tuple[list[str], int]:
        """Replace the password. Returns the profile, and the time up to which access tokens are void."""
        # Before the change, so that a crash leaves no session; after it, for a sign-in with the old password meanwhile.
        await self._end_browser_sessions(name)
        at = self._auth.revocation_time_ms(name)
        keys = [USER(name), AUTH_USER(name)]
        reply: list[str] = await self._functions.run("social_change_password", keys, *args, name, at)
        await self._end_browser_sessions(name)
        if reply:
            await self._auth.revoke_access_tokens(name, at)
        return reply, at

    async def _end_browser_sessions(self, name: str) -> None:
        if self._browser_sessions is not None:
            await self._browser_sessions.sign_out(name)
