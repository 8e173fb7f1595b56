"""What sign-ins need of second factors: one-time codes, recovery codes and passkeys together."""

from __future__ import annotations

from typing import Final

from plaza.accounts.keys import ACCOUNT_MFA
from plaza.accounts.passkeys import Passkeys
from plaza.accounts.second_factor import SecondFactors
from plaza.core.passkey_credentials import PasskeyCredential
from plaza.core.tracking_cache import TrackingCache
from plaza.core.valkey import Valkey

# Admins, whose second factor is checked at every request. There are few.
MAX_CACHED_USERS: Final = 1_000


class SecondFactorCheck:
    """Checks codes and passkeys at sign-in."""

    def __init__(self, valkey: Valkey, second_factors: SecondFactors, passkeys: Passkeys) -> None:
        self._second_factors = second_factors
        self._passkeys = passkeys
        self._set_up: TrackingCache[bool] = TrackingCache(valkey, MAX_CACHED_USERS)

    async def is_set_up(self, username: str) -> bool:
        """Whether a user has a second factor. No round trip if it is cached, else two."""
        key = ACCOUNT_MFA(username)
        cached = self._set_up.get(key)
        if cached is None:
            cached = await self._set_up.load(key, lambda: self._second_factors.is_enabled(username))
        return bool(cached)

    async def methods(self, username: str) -> list[str]:
        """Return how a user can prove more than the password; empty without a second factor. One round trip."""
        status = await self._second_factors.status(username)
        if not status.enabled:
            return []
        known = {"totp": status.totp, "passkey": status.passkeys, "recovery_code": status.recovery_codes_left}
        return [method for method, count in known.items() if count]

    async def verify(self, username: str, code: str) -> bool:
        """Whether a one-time or recovery code is right. At most three round trips."""
        return await self._second_factors.verify(username, code)

    async def verify_passkey(self, credential: PasskeyCredential, username: str | None = None) -> str:
        """Return the user of a passkey, or raise `InvalidPasskey`. Four round trips."""
        return (await self._passkeys.verify(credential, username)).username
