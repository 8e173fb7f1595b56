"""The second factor at sign-in: one-time codes (TOTP, RFC 6238), and recovery codes for a lost device."""

from __future__ import annotations

import secrets
from typing import Final

import pyotp

from plaza.accounts.keys import ACCOUNT_MFA
from plaza.accounts.model import TOTP_STEPS_AROUND, MfaStatus, NotEnrolled, TotpEnrolment, digest
from plaza.accounts.recovery_codes import new_recovery_codes, recovery_digests
from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.domain import WrongCode
from plaza.core.encryption import EncryptedFields, Encryption, Undecryptable
from plaza.core.functions import Functions

STEP_SECONDS: Final = 30
_CONTEXT: Final = "totp"


class SecondFactors:
    """Enrols, checks and removes second factors."""

    def __init__(self, functions: Functions, encryption: Encryption, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._encryption = encryption
        self._clock = clock

    def encrypted_fields(self) -> EncryptedFields:
        def renew(ids: tuple[str, ...], field: str, stored: str, plain_too: bool) -> str:
            return self._encryption.renew(stored, _CONTEXT)

        return EncryptedFields(ACCOUNT_MFA, ("totp_secret", "pending_secret"), renew)

    async def is_enabled(self, username: str) -> bool:
        """Whether signing in with the password needs a code or a passkey. One round trip."""
        return (await self.status(username)).enabled

    async def status(self, username: str) -> MfaStatus:
        """Return the second factors of a user, and how many recovery codes are left. One round trip."""
        fields = await self._valkey.call("HKEYS", ACCOUNT_MFA(username))
        has_totp = "totp_secret" in fields
        passkeys, codes = (sum(name.startswith(prefix) for name in fields) for prefix in ("passkey:", "recovery:"))
        return MfaStatus(has_totp or passkeys > 0, has_totp, passkeys, codes)

    async def enrol(self, actor: Actor) -> TotpEnrolment:
        """Return a new secret for an authenticator. It counts once a code confirmed it. One round trip."""
        secret = pyotp.random_base32()
        stored = self._encryption.encrypt(secret, _CONTEXT)
        await self._valkey.call("HSET", ACCOUNT_MFA(actor.name), "pending_secret", stored)
        return _enrolment(actor.name, secret)

    async def pending(self, actor: Actor) -> TotpEnrolment | None:
        """Return the secret that is being set up; None if there is none. One round trip."""
        stored = await self._valkey.call("HGET", ACCOUNT_MFA(actor.name), "pending_secret")
        if stored is None:
            return None
        try:
            return _enrolment(actor.name, self._encryption.decrypt(stored, _CONTEXT))
        except Undecryptable:
            return None

    async def confirm(self, actor: Actor, code: str) -> list[str]:
        """Turn codes on and return the recovery codes, which are shown this once. Two round trips."""
        pending = await self._valkey.call("HGET", ACCOUNT_MFA(actor.name), "pending_secret")
        if pending is None:
            raise NotEnrolled
        step = self._matching_step(pending, code)
        if step is None:
            raise WrongCode
        codes = new_recovery_codes()
        args = (pending, step, self._clock.now_ms(), *recovery_digests(codes))
        if not await self._functions.run("accounts_enable_totp", [ACCOUNT_MFA(actor.name)], *args):
            raise NotEnrolled
        return codes

    async def disable(self, username: str) -> None:
        """Turn one-time codes off; passkeys stay. One round trip."""
        await self._functions.run("accounts_disable_totp", [ACCOUNT_MFA(username)])

    async def renew_recovery_codes(self, username: str) -> list[str]:
        """Replace the recovery codes and return the new ones, which are shown this once. One round trip."""
        codes = new_recovery_codes()
        if not await self._functions.run(
            "accounts_renew_recovery_codes", [ACCOUNT_MFA(username)], *recovery_digests(codes)
        ):
            raise NotEnrolled
        return codes

    async def verify(self, username: str, code: str) -> bool:
        """Whether a one-time code or a recovery code is right. Each works once. At most three round trips."""
        stored = await self._valkey.call("HGET", ACCOUNT_MFA(username), "totp_secret")
        code = code.replace(" ", "").replace("-", "").lower()
        step = None if stored is None else self._matching_step(stored, code)
        if step is not None:
            return bool(await self._functions.run("accounts_use_totp_step", [ACCOUNT_MFA(username)], step))
        return bool(await self._valkey.call("HDEL", ACCOUNT_MFA(username), f"recovery:{digest(code)}"))

    def _matching_step(self, stored: str, code: str) -> int | None:
        """Return the time step whose code this is; None if it is none of the accepted ones."""
        try:
            totp = pyotp.TOTP(self._encryption.decrypt(stored, _CONTEXT))
        except Undecryptable:
            return None  # the data key was lost or the value damaged: a recovery code still works
        now = int(self._clock.now_s()) // STEP_SECONDS
        for step in range(now - TOTP_STEPS_AROUND, now + TOTP_STEPS_AROUND + 1):
            if secrets.compare_digest(totp.generate_otp(step).encode(), code.encode()):
                return step
        return None


def _enrolment(username: str, secret: str) -> TotpEnrolment:
    return TotpEnrolment(secret, pyotp.TOTP(secret).provisioning_uri(username, issuer_name="Plaza"))
