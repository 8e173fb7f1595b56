"""Checks passwords and reads the current role of a user, for other domains' sessions and for pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from plaza.core.auth import Actor, Auth
from plaza.core.clients import UNKNOWN_CLIENT, ClientInfo
from plaza.core.domain import NO_PROOF, InvalidPasskey, MfaRequired, SecondFactor, SecondFactorProof, WrongCode
from plaza.core.errors import Forbidden
from plaza.core.functions import Functions
from plaza.core.passkey_credentials import PasskeyCredential
from plaza.core.passwords import PasswordCaller, Passwords
from plaza.core.roles import ROLES
from plaza.core.security_log import AccountLog
from plaza.core.sign_in_limits import SignInLimits
from plaza.core.tracking_cache import TrackingCache
from plaza.social.keys import AUTH_USER, USER, USER_LEAVING, USER_RENAMING
from plaza.social.model import RESERVED_USERNAMES, AccountSuspended, UsernameTaken

# Users whose role is cached until it changes: about 200 bytes each.
MAX_CACHED_ACTORS: Final = 20_000


class Credentials:
    """Password checks and current roles."""

    def __init__(
        self,
        functions: Functions,
        auth: Auth,
        limits: SignInLimits,
        passwords: Passwords,
        second_factor: SecondFactor | None = None,
        log: AccountLog | None = None,
    ) -> None:
        self._auth = auth
        self._second_factor = second_factor
        self.log = log or AccountLog(None)
        self._functions = functions
        self._valkey = functions.valkey
        self.limits = limits
        self._passwords = passwords
        self._actors: TrackingCache[Actor] = TrackingCache(functions.valkey, MAX_CACHED_ACTORS)

    async def check(
        self,
        username: str,
        password: str,
        client: ClientInfo = UNKNOWN_CLIENT,
        proof: SecondFactorProof = NO_PROOF,
    ) -> Actor | None:
        """Return the user who may sign in; None if the password is wrong. Four round trips, besides the limit's.

        Raises `MfaRequired`, or `Unauthenticated` for a wrong proof, if the account has a second factor.
        """
        address, device = client.address, client.known_device
        await self.limits.take(username, address, device)
        if not await self._is_password(username, password, self.limits.caller(username, address, device)):
            await self.log.record(username, "sign_in", address, result="wrong_password")
            return None
        await self.require_second_factor(username, proof, address)
        actor = await self.actor(username)
        if actor is not None:
            await self.limits.give_back(username, address, device)
            known = self.limits.is_known(username, device)
            await self.log.record(username, "sign_in", address, known_device=known)
        return actor

    def new_device(self, username: str) -> str:
        """Return the cookie for a device in which this user has just signed in. No I/O."""
        return self.limits.new_device(username)

    async def has_password(self, username: str, password: str, address: str | None) -> bool:
        """Whether this is the password of a signed-in user. Two round trips, besides the limit's."""
        await self.limits.take_signed_in(username)
        right = await self._is_password(username, password, self.limits.caller(username, address))
        if right:
            await self.limits.give_back_signed_in(username)
        return right

    async def require_own_password(
        self, actor: Actor, username: str, password: str | None, address: str | None
    ) -> None:
        """Raise `Forbidden` if the actor acts on the own account without its password. Three round trips.

        An account without a password (its tokens come from another issuer) needs none.
        """
        if actor.name != username or not await self.has_any_password(username):
            return
        if password is None or not await self.has_password(username, password, address):
            raise Forbidden("This needs your password. Send it as `password`.", field="password")

    async def require_second_factor(self, username: str, proof: SecondFactorProof, address: str | None) -> None:
        """Raise `Unauthenticated` unless the account has no second factor or the proof is right."""
        if self._second_factor is None or not (methods := await self._second_factor.methods(username)):
            return
        try:
            if proof.passkey is not None:
                await self._second_factor.verify_passkey(proof.passkey, username)
            elif proof.code is None:
                raise MfaRequired(methods=list(methods))
            elif not await self._second_factor.verify(username, proof.code):
                raise WrongCode
        except (WrongCode, InvalidPasskey):
            await self.log.record(username, "sign_in", address, result="wrong_second_factor")
            raise

    async def passkey_user(self, credential: PasskeyCredential, address: str | None) -> Actor:
        """Return the user who signs in with a passkey alone. Five round trips."""
        if self._second_factor is None:
            raise InvalidPasskey
        username = await self._second_factor.verify_passkey(credential)
        actor = await self.actor(username)
        if actor is None:
            raise AccountSuspended("This account is suspended.")
        await self.log.record(username, "sign_in", address, detail="passkey")
        return actor

    async def has_any_password(self, username: str) -> bool:
        """Whether a user has a password. One round trip."""
        return bool(await self._valkey.call("HEXISTS", AUTH_USER(username), "password_hash"))

    async def _is_password(self, username: str, password: str, caller: PasswordCaller) -> bool:
        stored = await self._valkey.call("HGET", AUTH_USER(username), "password_hash")
        if not (await self._passwords.check(stored, password, caller)).matches:
            return False
        # Hashing takes a tenth of a second. The password may have been changed meanwhile, and all sessions ended.
        return bool(await self._valkey.call("HGET", AUTH_USER(username), "password_hash") == stored)

    async def create(self, username: str, profile: Mapping[str, str]) -> bool:
        """Create an account without a password; False if the username is taken or reserved. One round trip."""
        if username.lower() in RESERVED_USERNAMES:
            return False
        keys = [USER(username), AUTH_USER(username), USER_LEAVING(username), USER_RENAMING(username)]
        fields = [part for name, value in profile.items() if value for part in (name, value)]
        try:
            await self._functions.run("social_register", keys, username, "", "", "", "", "", *fields)
        except UsernameTaken:
            return False
        return True

    async def get_email(self, username: str) -> str | None:
        """Return the address in a user's profile; None without one. One round trip."""
        email: str | None = await self._valkey.call("HGET", USER(username), "email")
        return email

    async def set_email(self, username: str, address: str) -> None:
        """Set the address in a user's profile. One round trip."""
        await self._functions.run("social_change_profile", [USER(username)], username, 1, "email", address)

    async def require_strong(self, username: str, password: str) -> None:
        """Raise `WeakPassword` if a user's new password is easy to guess. No round trip."""
        await self._passwords.require_strong(password, username)

    async def set_password(self, username: str, password: str) -> None:
        """Set a user's password and end every session that refreshes tokens. One round trip."""
        hashed = await self._passwords.hash_new(password, username)
        keys, at = [USER(username), AUTH_USER(username)], self._auth.revocation_time_ms(username)
        await self._functions.run("social_change_password", keys, "", hashed, "", "", username, at)

    async def actor(self, username: str) -> Actor | None:
        """Return a user with the current role; None if suspended or unknown. No round trip if cached, else one."""
        key = USER(username)
        cached = self._actors.get(key)
        if cached is not None:
            return cached

        def store(row: list[str | None]) -> None:
            actor = _actor(username, row)
            if actor is not None:
                self._actors.put(key, actor)

        # A suspension changes the profile too, so that the cached actor is invalidated.
        (row,) = await self._functions.query_with_batch("social_actor", [key, AUTH_USER(username)], (), [], store=store)
        return _actor(username, row)


def _actor(username: str, row: Sequence[str | None]) -> Actor | None:
    """Return the user of a reply of `social_actor`; None if suspended or unknown."""
    role, suspended, name, created = row
    if suspended is not None or (role is None and name is None and created is None):
        return None
    return Actor(username, role if role in ROLES else "user")  # another service may have written the profile
