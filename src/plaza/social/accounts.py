"""Accounts: registration, sign-in, refresh tokens, passwords."""

from __future__ import annotations

from typing import Final

import msgspec

from plaza.core.auth import Actor, Auth
from plaza.core.clients import UNKNOWN_CLIENT, ClientInfo
from plaza.core.clock import Clock
from plaza.core.domain import InvalidPasskey, SecondFactorProof
from plaza.core.errors import Invalid
from plaza.core.functions import Functions
from plaza.core.idempotency import STORED_MS, IdempotentRequest, KeyReused
from plaza.core.passwords import Passwords
from plaza.core.rate_limits import Limiter
from plaza.core.sequences import pairs_to_dict
from plaza.core.settings import AccountAddress
from plaza.social.api_sessions import ApiSessions
from plaza.social.credentials import Credentials
from plaza.social.keys import AUTH_USER, USER, USER_LEAVING, USER_RENAMING
from plaza.social.model import (
    RESERVED_USERNAMES,
    InvalidRefreshToken,
    PasskeyLogin,
    PasswordLogin,
    Registration,
    SignedIn,
    User,
    UsernameTaken,
    WrongPassword,
    require_username,
)
from plaza.social.private_fields import PrivateFields
from plaza.social.refresh_tokens import MAX_SESSIONS, RefreshToken, issue_tokens, stored_use

# The reply of a refresh with a token that was used before.
REUSED: Final = "reused"


class Accounts:
    """Registration, sign-in and refresh tokens."""

    def __init__(
        self,
        functions: Functions,
        auth: Auth,
        limiter: Limiter,
        passwords: Passwords,
        credentials: Credentials,
        sessions: ApiSessions,
        clock: Clock,
        private: PrivateFields,
        addresses: AccountAddress = "truncated",
    ) -> None:
        self.limiter = limiter
        self.functions = functions
        self.valkey = functions.valkey
        self.auth = auth
        self.passwords = passwords
        self._credentials = credentials
        self._log = credentials.log
        self._sessions = sessions
        self._private = private
        self.clock = clock
        self._addresses = addresses

    async def register_once(
        self, new: Registration, key: str | None, client: ClientInfo = UNKNOWN_CLIENT
    ) -> tuple[SignedIn, bool]:
        """Register an account; return also whether the same key and registration had created it before.

        A repeated registration signs in again and needs the password: the first response's tokens are not stored.
        """
        sent = None if key is None else _idempotent_request(key, new)
        try:
            return await self.register(new, client, sent), False
        except UsernameTaken:
            if sent is None:
                raise
        return await self._register_again(new, client, sent), True

    async def _register_again(self, new: Registration, client: ClientInfo, sent: IdempotentRequest) -> SignedIn:
        """Sign in to an account that an earlier run of this request registered. Two round trips."""
        name, now, stamp = new.username, self.clock.now_ms(), self.auth.issue_time_ms(new.username)
        stored, known = await self.valkey.call("HMGET", AUTH_USER(name), "password_hash", "registered")
        key, request, at = (known or "||0").split("|")
        if key != sent.key or now - int(at) >= STORED_MS:
            raise UsernameTaken("This username is taken. Choose another one.")
        if request != sent.request_hash or not (await self.passwords.check(stored, new.password)).matches:
            raise KeyReused("Use a new key for a new request.", field="Idempotency-Key")
        token = RefreshToken.new(name)
        reply = await self._sign_in(token, now, client, stored)
        if not reply:
            raise UsernameTaken("This username is taken. Choose another one.")
        return issue_tokens(self.auth, self._own_profile(reply, token), token, stamp, now)

    async def register(
        self, new: Registration, client: ClientInfo = UNKNOWN_CLIENT, sent: IdempotentRequest | None = None
    ) -> SignedIn:
        """Register an account and start an API session. One round trip, besides the limit's."""
        token, now = RefreshToken.new(new.username), self.clock.now_ms()
        stamp = self.auth.issue_time_ms(new.username)
        session = (token.family, token.stored_session(now, client, self._addresses))
        reply = await self._create(new, client, now, session, sent)
        return issue_tokens(self.auth, self._own_profile(reply, token), token, stamp, now)

    async def create(self, new: Registration, client: ClientInfo = UNKNOWN_CLIENT) -> None:
        """Register an account without a session: a browser gets a session of its own. One round trip."""
        await self._create(new, client, self.clock.now_ms(), ("", ""), None)

    async def _create(
        self, new: Registration, client: ClientInfo, now: int, session: tuple[str, str], sent: IdempotentRequest | None
    ) -> list[str]:
        """Store an account and return its profile."""
        name = new.username
        require_username(name)
        if name.lower() in RESERVED_USERNAMES:
            raise Invalid("This username is reserved. Choose another one.", field="username")
        await self.limiter.take("register", name, client.address)
        caller = self._credentials.limits.caller(name, client.address)
        hashed = await self.passwords.hash_new(new.password, name, caller=caller)
        changes = self._private.stored(name, new.changes())
        fields = [part for field, value in changes.items() if value is not None for part in (field, value)]
        reply: list[str] = await self.functions.run(
            "social_register",
            [USER(name), AUTH_USER(name), USER_LEAVING(name), USER_RENAMING(name)],
            name, now, hashed, *session, "" if sent is None else f"{sent.key}|{sent.request_hash}|{now}", *fields,
        )  # fmt: skip
        await self._log.record(name, "register", client.address)
        return reply

    async def login(self, login: PasswordLogin, client: ClientInfo = UNKNOWN_CLIENT) -> SignedIn:
        """Sign in by password. Two round trips, besides the limit's.

        An unknown username takes the same time as a wrong password, and counts as an attempt too. `device` is the
        client's cookie.
        """
        name, now, limits = login.username, self.clock.now_ms(), self._credentials.limits
        address, device = client.address, client.known_device
        await limits.take(name, address, device)
        stamp = self.auth.issue_time_ms(name)
        stored = await self.valkey.call("HGET", AUTH_USER(name), "password_hash")
        checked = await self.passwords.check(stored, login.password, limits.caller(name, address, device))
        if not checked.matches:
            await self._log.record(name, "sign_in", address, result="wrong_password")
            raise WrongPassword
        proof = SecondFactorProof(login.code, login.passkey)
        await self._credentials.require_second_factor(name, proof, address)
        token = RefreshToken.new(name)
        reply = await self._sign_in(token, now, client, stored, checked.new_hash or "")
        if not reply:
            raise WrongPassword
        await limits.give_back(name, address, device)
        await self._log.record(name, "sign_in", address, known_device=limits.is_known(name, device))
        return issue_tokens(self.auth, self._own_profile(reply, token), token, stamp, now)

    async def login_with_passkey(self, login: PasskeyLogin, client: ClientInfo = UNKNOWN_CLIENT) -> SignedIn:
        """Sign in with a passkey alone: it proves a device and its user, so no password or code is needed."""
        user = await self._credentials.passkey_user(login.credential, client.address)
        now, stamp, token = self.clock.now_ms(), self.auth.issue_time_ms(user.name), RefreshToken.new(user.name)
        reply = await self._sign_in(token, now, client, "")
        if not reply:
            raise InvalidPasskey
        return issue_tokens(self.auth, self._own_profile(reply, token), token, stamp, now)

    async def _sign_in(
        self, token: RefreshToken, now: int, client: ClientInfo, stored: str, rehashed: str = ""
    ) -> list[str] | None:
        """Start a session and return the profile; None if the password was changed meanwhile.

        `stored` is the hash that was checked; empty if the user proved something else than the password.
        """
        reply: list[str] | None = await self.functions.run(
            "social_sign_in",
            [USER(token.username), AUTH_USER(token.username)],
            now, stored, rehashed, token.family, token.stored_session(now, client, self._addresses), MAX_SESSIONS,
        )  # fmt: skip
        return reply

    async def refresh(self, refresh_token: str, client: ClientInfo = UNKNOWN_CLIENT) -> SignedIn:
        """Exchange a refresh token for the next one. One round trip.

        A token that is used a second time was copied: its session ends, with the access tokens of both users of it.
        """
        old, now = RefreshToken.parse(refresh_token), self.clock.now_ms()
        stamp, token = self.auth.issue_time_ms(old.username), old.next()
        reply = await self.functions.run(
            "social_refresh",
            [USER(old.username), AUTH_USER(old.username)],
            now, old.family, old.hash, token.stored_hash(now), stored_use(now, client, self._addresses),
        )  # fmt: skip
        if reply == REUSED:
            await self.auth.end_session(old.session, now)
            await self._log.record(old.username, "refresh_token_reused", client.address, result="session_ended")
        if not reply or reply == REUSED:
            raise InvalidRefreshToken
        signed_in_ms, profile = reply
        return issue_tokens(self.auth, self._own_profile(profile, token), token, stamp, int(signed_in_ms))

    async def logout(self, actor: Actor | None, refresh_token: str | None, client: ClientInfo = UNKNOWN_CLIENT) -> None:
        """End the session of a refresh token, or all sessions of the caller. Two round trips."""
        if refresh_token is not None:
            token = RefreshToken.parse(refresh_token)
            if await self._sessions.end_session(token.username, token.session, token.hash):
                await self._log.record(token.username, "session_ended", client.address, detail="logout")
        elif actor is not None and not actor.via_key:
            await self._sessions.end_all(actor.name)
            await self._log.record(actor.name, "sessions_ended", client.address, detail="logout")

    async def whoami(self, actor: Actor) -> User:
        """Return the caller's profile with private fields; without one, what the token says. One round trip."""
        fields = await self.valkey.call("HGETALL", USER(actor.name))
        return self._private.own_profile(fields or {"role": actor.role}, actor.name)

    def _own_profile(self, reply: list[str], token: RefreshToken) -> User:
        return self._private.own_profile(pairs_to_dict(reply), token.username)


def _idempotent_request(key: str, new: Registration) -> IdempotentRequest:
    """Return what identifies a registration with an `Idempotency-Key`. The username stands for the caller.

    The password is not part of it: a fast hash of it would be easy to guess. It is checked against its own hash.
    """
    profile = msgspec.json.encode(new.changes())
    return IdempotentRequest.from_request(f"registering {new.username}", key, "POST", "/auth/register", profile)
