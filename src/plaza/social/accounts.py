"""Accounts: registration, sign-in, refresh tokens, passwords.

A session is a *family* of refresh tokens. Each token can be exchanged once, for the next one. A token that is used
twice was copied, so its family ends. Only hashes are stored.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from plaza.core.auth import Actor, Auth
from plaza.core.clock import Clock
from plaza.core.domain import SignOut
from plaza.core.errors import Forbidden, Invalid
from plaza.core.functions import Functions
from plaza.core.idempotency import STORED_MS, IdempotentRequest, KeyReused
from plaza.core.passwords import Passwords
from plaza.core.rate_limits import Limiter
from plaza.core.sequences import pairs_to_dict
from plaza.core.tokens import ACCESS_TOKEN_SECONDS, Role, is_username
from plaza.social.credentials import Credentials
from plaza.social.keys import AUTH_USER, USER, USER_LEAVING, USER_RENAMING
from plaza.social.model import (
    InvalidRefreshToken,
    PasswordChange,
    PasswordLogin,
    Registration,
    SignedIn,
    User,
    UsernameTaken,
    WrongPassword,
    user_from_hash,
)

REFRESH_MS: Final = 30 * 86_400_000

# Names that look official. Other systems may sync such users, and operators may have them.
RESERVED_USERNAMES: Final = frozenset({"admin", "support", "system", "root", "plaza"})
# Refresh token families of one user; beyond this the one with the earliest expiry ends.
MAX_SESSIONS: Final = 20


@dataclass(frozen=True, slots=True)
class RefreshToken:
    """`<username>.<family>.<secret>`: the first two parts locate it, the secret proves it."""

    username: str
    family: str
    secret: str

    @classmethod
    def new(cls, username: str) -> RefreshToken:
        return cls(username, f"family:{secrets.token_hex(16)}", secrets.token_urlsafe(32))

    @classmethod
    def parse(cls, token: str) -> RefreshToken:
        username, family, secret = [*token.rsplit(".", 2), "", ""][:3]
        if not is_username(username) or len(family) != 32 or not secret:
            raise InvalidRefreshToken
        return cls(username, f"family:{family}", secret)

    def next(self) -> RefreshToken:
        return RefreshToken(self.username, self.family, secrets.token_urlsafe(32))

    def __str__(self) -> str:
        return f"{self.username}.{self.family.removeprefix('family:')}.{self.secret}"

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def stored_value(self, now_ms: int) -> str:
        return f"{self.hash}|{now_ms + REFRESH_MS}"


class Accounts:
    """Registration, sign-in and refresh tokens."""

    def __init__(
        self,
        functions: Functions,
        auth: Auth,
        limiter: Limiter,
        passwords: Passwords,
        credentials: Credentials,
        clock: Clock,
        browser_sessions: SignOut | None = None,
    ) -> None:
        self.limiter = limiter
        self.functions = functions
        self.valkey = functions.valkey
        self.auth = auth
        self.passwords = passwords
        self._credentials = credentials
        self._log = credentials.log
        self.clock = clock
        self._browser_sessions = browser_sessions

    async def register_once(
        self, new: Registration, key: str | None, address: str | None = None
    ) -> tuple[SignedIn, bool]:
        """Register an account; return also whether the same key and registration had created it before.

        A repeated registration signs in again and needs the password: the first response's tokens are not stored.
        """
        sent = None if key is None else _idempotent_request(key, new)
        try:
            return await self.register(new, address, sent), False
        except UsernameTaken:
            if sent is None:
                raise
        return await self._register_again(new, sent), True

    async def _register_again(self, new: Registration, sent: IdempotentRequest) -> SignedIn:
        """Sign in to an account that an earlier run of this request registered. Two round trips."""
        name, now, stamp = new.username, self.clock.now_ms(), self.auth.issue_time_ms(new.username)
        stored, known = await self.valkey.call("HMGET", AUTH_USER(name), "password_hash", "registered")
        key, request, at = (known or "||0").split("|")
        if key != sent.key or now - int(at) >= STORED_MS:
            raise UsernameTaken("This username is taken. Choose another one.")
        if request != sent.request_hash or not (await self.passwords.check(stored, new.password)).matches:
            raise KeyReused("Use a new key for a new request.", field="Idempotency-Key")
        token = RefreshToken.new(name)
        reply = await self._sign_in(token, now, stored)
        if not reply:
            raise UsernameTaken("This username is taken. Choose another one.")
        return self._signed_in(reply, token, stamp)

    async def register(
        self, new: Registration, address: str | None = None, sent: IdempotentRequest | None = None
    ) -> SignedIn:
        """Register an account and sign in. One round trip, besides the limit's."""
        require_username(new.username)
        if new.username.lower() in RESERVED_USERNAMES:
            raise Invalid("This username is reserved. Choose another one.", field="username")
        await self.limiter.take("register", new.username, address)
        stamp, now = self.auth.issue_time_ms(new.username), self.clock.now_ms()
        caller = self._credentials.limits.caller(new.username, address)
        hashed = await self.passwords.hash_new(new.password, new.username, caller=caller)
        token, name = RefreshToken.new(new.username), new.username
        fields = [part for name, value in new.changes().items() if value is not None for part in (name, value)]
        reply = await self.functions.run(
            "social_register",
            [USER(name), AUTH_USER(name), USER_LEAVING(name), USER_RENAMING(name)],
            name, now, hashed, token.family, token.stored_value(now),
            "" if sent is None else f"{sent.key}|{sent.request_hash}|{now}", *fields,
        )  # fmt: skip
        await self._log.record(name, "register", address)
        return self._signed_in(reply, token, stamp)

    async def login(self, login: PasswordLogin, address: str | None = None, device: str = "") -> SignedIn:
        """Sign in by password. Two round trips, besides the limit's.

        An unknown username takes the same time as a wrong password, and counts as an attempt too. `device` is the
        client's cookie.
        """
        name, now, limits = login.username, self.clock.now_ms(), self._credentials.limits
        await limits.take(name, address, device)
        stamp = self.auth.issue_time_ms(name)
        stored = await self.valkey.call("HGET", AUTH_USER(name), "password_hash")
        checked = await self.passwords.check(stored, login.password, limits.caller(name, address, device))
        if not checked.matches:
            await self._log.record(name, "sign_in", address, result="wrong_password")
            raise WrongPassword
        await self._credentials.require_code(name, login.code, address)
        token = RefreshToken.new(name)
        reply = await self._sign_in(token, now, stored, checked.new_hash or "")
        if not reply:
            raise WrongPassword
        await limits.give_back(name, address, device)
        await self._log.record(name, "sign_in", address)
        return self._signed_in(reply, token, stamp)

    async def _sign_in(self, token: RefreshToken, now: int, stored: str, rehashed: str = "") -> list[str] | None:
        """Start a session and return the profile; None if the password was changed meanwhile."""
        reply: list[str] | None = await self.functions.run(
            "social_sign_in",
            [USER(token.username), AUTH_USER(token.username)],
            now, stored, rehashed, token.family, token.stored_value(now), MAX_SESSIONS,
        )  # fmt: skip
        return reply

    async def refresh(self, refresh_token: str) -> SignedIn:
        """Exchange a refresh token for the next one. One round trip."""
        old, now = RefreshToken.parse(refresh_token), self.clock.now_ms()
        stamp, token = self.auth.issue_time_ms(old.username), old.next()
        reply = await self.functions.run(
            "social_refresh",
            [USER(old.username), AUTH_USER(old.username)],
            now, old.family, old.hash, token.stored_value(now),
        )  # fmt: skip
        if not reply:
            raise InvalidRefreshToken
        return self._signed_in(reply, token, stamp)

    async def logout(self, actor: Actor | None, refresh_token: str | None) -> None:
        """End the session of a refresh token, or all sessions of the caller. Two round trips.

        Access tokens belong to no session, so all of the user's end; other sessions refresh theirs.
        """
        if refresh_token is not None:
            token = RefreshToken.parse(refresh_token)
            await self._sign_out(token.username, token.family)
        elif actor is not None and not actor.via_key:
            await self._sign_out(actor.name, "")

    async def _sign_out(self, name: str, family: str) -> None:
        at = self.auth.issue_time_ms(name)
        if await self.functions.run("social_sign_out", [AUTH_USER(name)], family, name, at):
            await self.auth.revoke_access_tokens(name, at)

    async def change_password(self, actor: Actor, change: PasswordChange, address: str | None = None) -> SignedIn:
        """Change the password, end every session and access token, and start a new session.

        Three round trips, besides the limit's and those of sessions that end.
        """
        name, now = actor.name, self.clock.now_ms()
        limits = self._credentials.limits
        await limits.take_signed_in(name)
        caller = limits.caller(name, address)
        stored = await self.valkey.call("HGET", AUTH_USER(name), "password_hash")
        if not (await self.passwords.check(stored, change.old, caller)).matches:
            await self._log.record(name, "password_changed", address, result="wrong_password")
            raise Forbidden("The old password is wrong.", field="old")
        token, hashed = RefreshToken.new(name), await self.passwords.hash_new(change.new, name, "new", caller)
        reply, revoked_ms = await self._replace_password(name, stored, hashed, token.family, token.stored_value(now))
        if not reply:
            raise Forbidden("The old password is wrong.", field="old")
        await self._log.record(name, "password_changed", address)
        return self._signed_in(reply, token, revoked_ms + 1)

    async def set_password(self, username: str, password: str) -> None:
        """Set a password as an operator; every session of the account ends. One round trip."""
        require_username(username)
        if not 8 <= len(password) <= 256:
            raise Invalid("A password must have 8 to 256 characters.", field="password")
        hashed = await self.passwords.hash_new(password, username)
        await self._replace_password(username, "", hashed, "", "")

    async def _replace_password(self, name: str, *args: str) -> tuple[list[str], int]:
        """Replace the password. Returns the profile, and the time up to which access tokens are void."""
        # Before the change, so that a crash leaves no session; after it, for a sign-in with the old password meanwhile.
        await self._end_browser_sessions(name)
        at = self.auth.issue_time_ms(name)
        keys = [USER(name), AUTH_USER(name)]
        reply: list[str] = await self.functions.run("social_change_password", keys, *args, name, at)
        await self._end_browser_sessions(name)
        if reply:
            await self.auth.revoke_access_tokens(name, at)
        return reply, at

    async def _end_browser_sessions(self, name: str) -> None:
        if self._browser_sessions is not None:
            await self._browser_sessions.sign_out(name)

    async def whoami(self, actor: Actor) -> User:
        """Return the caller's profile with private fields; without one, what the token says. One round trip."""
        fields = await self.valkey.call("HGETALL", USER(actor.name))
        return user_from_hash(fields or {"role": actor.role}, actor.name, private=True)

    def _signed_in(self, reply: list[str], token: RefreshToken, stamp: int) -> SignedIn:
        user = user_from_hash(pairs_to_dict(reply), token.username, private=True)
        access = self.auth.issue(user.username, cast(Role, user.role), issued_ms=stamp)
        return SignedIn(user, access, str(token), ACCESS_TOKEN_SECONDS)


def _idempotent_request(key: str, new: Registration) -> IdempotentRequest:
    """Return what identifies a registration with an `Idempotency-Key`. The username stands for the caller.

    The password is not part of it: a fast hash of it would be easy to guess. It is checked against its own hash.
    """
    profile = msgspec.json.encode(new.changes())
    return IdempotentRequest.from_request(f"registering {new.username}", key, "POST", "/auth/register", profile)


def require_username(username: str) -> None:
    """Raise `Invalid` unless this can be a username."""
    if not is_username(username):
        raise Invalid("A username has 1 to 30 of A-Z a-z 0-9 . _ - and is not me or AUTH.", field="username")
