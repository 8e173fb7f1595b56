"""The second factor at sign-in: one-time codes (TOTP, RFC 6238), and recovery codes for a lost device."""

from __future__ import annotations

import secrets
from typing import Final

import pyotp

from plaza.accounts.keys import ACCOUNT_MFA
from plaza.accounts.model import MfaStatus, NotEnrolled, TotpEnrolment, digest
from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.domain import WrongCode
from plaza.core.encryption import Encryption, Undecryptable
from plaza.core.functions import Functions

STEP_SECONDS: Final = 30
# A code of the step before or after is accepted: phones' clocks differ, and typing takes time.
STEPS_AROUND: Final = 1
RECOVERY_CODES: Final = 10
_CONTEXT: Final = "totp"
# Without letters and digits that look alike.
_ALPHABET: Final = "23456789abcdefghjkmnpqrstuvwxyz"


class SecondFactors:
    """Enrols, checks and removes second factors."""

    def __init__(self, functions: Functions, encryption: Encryption, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._encryption = encryption
        self._clock = clock

    async def is_enabled(self, username: str) -> bool:
        """Whether signing in needs a code. One round trip."""
        return bool(await self._valkey.call("HEXISTS", ACCOUNT_MFA(username), "totp_secret"))

    async def status(self, username: str) -> MfaStatus:
        """Return whether codes are needed and how many recovery codes are left. One round trip."""
        fields = await self._valkey.call("HKEYS", ACCOUNT_MFA(username))
        left = sum(name.startswith("recovery:") for name in fields)
        return MfaStatus("totp_secret" in fields, left)

    async def enrol(self, actor: Actor) -> TotpEnrolment:
        """Return a new secret for an authenticator. It counts once a code confirmed it. One round trip."""
        secret = pyotp.random_base32()
        stored = self._encryption.encrypt(secret, _CONTEXT)
        await self._valkey.call("HSET", ACCOUNT_MFA(actor.name), "pending_secret", stored)
        uri = pyotp.TOTP(secret).provisioning_uri(actor.name, issuer_name="Plaza")
        return TotpEnrolment(secret, uri)

    async def confirm(self, actor: Actor, code: str) -> list[str]:
        """Turn codes on and return the recovery codes, which are shown this once. Two round trips."""
        pending = await self._valkey.call("HGET", ACCOUNT_MFA(actor.name), "pending_secret")
        if pending is None:
            raise NotEnrolled
        step = self._matching_step(pending, code)
        if step is None:
            raise WrongCode
        codes = [_new_recovery_code() for _ in range(RECOVERY_CODES)]
        digests = [digest(code) for code in codes]
        args = (pending, step, self._clock.now_ms(), *digests)
        if not await self._functions.run("accounts_enable_totp", [ACCOUNT_MFA(actor.name)], *args):
            raise NotEnrolled
        return codes

    async def disable(self, username: str) -> None:
        """Turn codes off. One round trip."""
        await self._valkey.call("DEL", ACCOUNT_MFA(username))

    async def verify(self, username: str, code: str) -> bool:
        """Whether a one-time code or a recovery code is right. Each works once. At most three round trips."""
        stored = await self._valkey.call("HGET", ACCOUNT_MFA(username), "totp_secret")
        if stored is None:
            return False
        code = code.replace(" ", "").replace("-", "").lower()
        step = self._matching_step(stored, code)
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
        for step in range(now - STEPS_AROUND, now + STEPS_AROUND + 1):
            if secrets.compare_digest(totp.generate_otp(step).encode(), code.encode()):
                return step
        return None


def _new_recovery_code() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(16))
