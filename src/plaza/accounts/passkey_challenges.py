"""Challenges for passkeys: each works once, for five minutes, for its purpose and user.

A challenge is signed and carries its expiry, so issuing one stores nothing: an anonymous caller can ask for many. Only
a challenge that a valid passkey answered is stored, until it expires, so that it cannot be answered again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final, Literal

import msgspec

from plaza.accounts.keys import CHALLENGE_SECONDS, USED_CHALLENGE
from plaza.accounts.model import InvalidChallenge
from plaza.core.clock import Clock
from plaza.core.valkey import Valkey

ChallengePurpose = Literal["register", "sign_in"]

_RANDOM_BYTES: Final = 16
_EXPIRY_BYTES: Final = 8
_HEAD_BYTES: Final = _RANDOM_BYTES + _EXPIRY_BYTES


class _ClientData(msgspec.Struct):
    challenge: str


class PasskeyChallenges:
    """Issues and accepts challenges."""

    def __init__(self, valkey: Valkey, secret: str, clock: Clock) -> None:
        self._valkey = valkey
        self._key = hmac.digest(secret.encode(), b"plaza passkey challenges", "sha256")
        self._clock = clock

    def issue(self, purpose: ChallengePurpose, username: str = "") -> bytes:
        """Return a new challenge. No I/O."""
        expires = self._clock.now_ms() + CHALLENGE_SECONDS * 1000
        head = secrets.token_bytes(_RANDOM_BYTES) + expires.to_bytes(_EXPIRY_BYTES, "big")
        return head + self._signature(head, purpose, username)

    def require_issued(self, client_data: str, purpose: ChallengePurpose, username: str = "") -> bytes:
        """Return the challenge in a browser's client data; `InvalidChallenge` unless it was issued here and is valid.

        No I/O. Whether the authenticator signed it is checked after this, and `spend` comes last.
        """
        challenge = _challenge_in(client_data)
        head, signature = challenge[:_HEAD_BYTES], challenge[_HEAD_BYTES:]
        expires = int.from_bytes(head[_RANDOM_BYTES:], "big")
        is_own = hmac.compare_digest(signature, self._signature(head, purpose, username))
        if not is_own or expires <= self._clock.now_ms():
            raise InvalidChallenge
        return challenge

    async def spend(self, challenge: bytes) -> None:
        """Mark a challenge as answered; `InvalidChallenge` if it was before. One round trip."""
        key = USED_CHALLENGE(hashlib.sha256(challenge).hexdigest())
        if await self._valkey.call("SET", key, "1", "NX", "EX", CHALLENGE_SECONDS) is None:
            raise InvalidChallenge

    def _signature(self, head: bytes, purpose: str, username: str) -> bytes:
        return hmac.digest(self._key, b"\n".join((head, purpose.encode(), username.encode())), "sha256")


def _challenge_in(client_data: str) -> bytes:
    try:
        decoded = msgspec.json.decode(_from_base64(client_data), type=_ClientData)
        return _from_base64(decoded.challenge)
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise InvalidChallenge from error


def _from_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
