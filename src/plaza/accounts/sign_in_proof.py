"""Asks users to prove again who they are, before a change that a stolen token must not make."""

from __future__ import annotations

from plaza.accounts.model import IncorrectPassword
from plaza.core.auth import Actor
from plaza.core.domain import CredentialStore, SecondFactor, WrongCode


class SignInProof:
    """Checks a signed-in user's password or code."""

    def __init__(self, credentials: CredentialStore, second_factor: SecondFactor) -> None:
        self._credentials = credentials
        self._second_factor = second_factor

    async def require_password(self, actor: Actor, password: str, address: str | None) -> None:
        """Raise `IncorrectPassword` unless this is the user's password. Wrong ones count as failed sign-ins."""
        if not await self._credentials.has_password(actor.name, password, address):
            raise IncorrectPassword(field="password")

    async def require_code(self, actor: Actor, code: str) -> None:
        """Raise `WrongCode` unless this is a valid code of the user."""
        if not await self._second_factor.verify(actor.name, code):
            raise WrongCode(field="code")
