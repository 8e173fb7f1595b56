"""Limits how often passwords can be guessed, without giving attackers a way to lock a user out.

Attempts count for the username at an address, for the address, and for the username in total. The last limit is against
many addresses together, and would let them lock a user out. So a browser in which the user has signed in before is
known by a signed cookie, and counts on its own: what other clients do does not affect it.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

from plaza.core.clock import Clock
from plaza.core.passwords import PasswordCaller
from plaza.core.rate_limits import Limiter, address_subject

# A browser that was not used for a year is unknown again.
DEVICE_SECONDS: Final = 365 * 86_400
_MAX_COOKIE_CHARACTERS: Final = 200


class SignInLimits:
    """Counts attempts to sign in, and recognizes devices."""

    def __init__(self, limiter: Limiter, secret: str, clock: Clock) -> None:
        self._limiter = limiter
        self._key = hmac.digest(secret.encode(), b"plaza device", "sha256")
        self._clock = clock

    async def take(self, username: str, address: str | None, device: str = "") -> None:
        """Count an attempt, or raise `RateLimited`. `device` is the client's cookie. At most two round trips."""
        if self.is_known(username, device):
            await self._limiter.take("device", _joined(username, device), None)
            return
        # In this order: an attempt that one address may not make does not count against the user.
        if address is not None:
            await self._limiter.take("guess", _joined(username, address_subject(address)), None)
        await self._limiter.take("auth", username, address)

    async def give_back(self, username: str, address: str | None, device: str = "") -> None:
        """Undo the count of an attempt that was right. At most two round trips."""
        if self.is_known(username, device):
            await self._limiter.give_back("device", _joined(username, device))
            return
        if address is not None:
            await self._limiter.give_back("guess", _joined(username, address_subject(address)))
        await self._limiter.give_back("auth", username)

    async def take_signed_in(self, username: str) -> None:
        """Count an attempt of a signed-in user, who confirms the own password. One round trip."""
        await self._limiter.take("device", username, None)

    async def give_back_signed_in(self, username: str) -> None:
        """Undo the count of a signed-in user's attempt that was right. One round trip."""
        await self._limiter.give_back("device", username)

    def caller(self, username: str, address: str | None, device: str = "") -> PasswordCaller:
        """Return the caller whose turn it is when several passwords are checked. No I/O."""
        if self.is_known(username, device):
            return PasswordCaller(device, is_known=True)
        return PasswordCaller("" if address is None else address_subject(address))

    def new_device(self, username: str) -> str:
        """Return the cookie for a device in which this user has just signed in."""
        head = f"{secrets.token_urlsafe(12)}.{int(self._clock.now_s()) + DEVICE_SECONDS}"
        return f"{head}.{self._signature(username, head)}"

    def is_known(self, username: str, device: str) -> bool:
        """Whether this user has signed in on the device with this cookie. No I/O."""
        head, _, signature = device.rpartition(".")
        expires = head.rpartition(".")[2]
        if not head or len(device) > _MAX_COOKIE_CHARACTERS or not (expires.isascii() and expires.isdigit()):
            return False
        expected = self._signature(username, head)
        return hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace")) and (
            int(expires) > self._clock.now_s()
        )

    def _signature(self, username: str, head: str) -> str:
        text = f"{head} {username}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text, "sha256").hex()[:32]


def _joined(username: str, place: str) -> str:
    """A subject of two parts. It has a space, so the limiter hashes it and it is never a username."""
    return f"{username} {place}"
