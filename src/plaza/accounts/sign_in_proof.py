"""Asks users to prove again who they are, before a change that a stolen token must not make."""

from __future__ import annotations

from typing import Final

from plaza.accounts.model import IncorrectPassword, SignInAgain
from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.domain import CredentialStore, SecondFactor, WrongCode

# How long ago a user without a password may have signed in.
RECENT_SECONDS: Final = 600


class SignInProof:
    """Checks a signed-in user's password or code."""

    def __init__(self, credentials: CredentialStore, second_factor: SecondFactor, clock: Clock) -> None:
        self._credentials = credentials
        self._second_factor = second_factor
        self._clock = clock

    async def require(self, actor: Actor, password: str | None, address: str | None) -> None:
        """Raise `IncorrectPassword` unless this is the user's password. Wrong ones count as failed sign-ins.

        A user without one (who signs in with a provider) must have signed in within ten minutes, else `SignInAgain`.
        """
        if not await self._credentials.has_any_password(actor.name):
            signed_in = actor.signed_in_ms or 0
            if self._clock.now_ms() - signed_in > RECENT_SECONDS * 1000:
                raise SignInAgain
        elif not password or not await self._credentials.has_password(actor.name, password, address):
            raise IncorrectPassword(field="password")

    async def require_code(self, actor: Actor, code: str) -> None:
        """Raise `WrongCode` unless this is a valid code of the user."""
        if not await self._second_factor.verify(actor.name, code):
            raise WrongCode(field="code")
