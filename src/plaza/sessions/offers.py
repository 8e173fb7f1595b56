"""Session tokens that were offered to a client and are not stored yet.

Most requests without a cookie come from programs that will never send one. So a read only offers a session: its cookie,
and a second one that proves that Plaza made the token. The session is stored when both come back.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

from plaza.core.clock import Clock

# A page and its pictures are loaded within this time. After it, the next read offers another token.
OFFER_SECONDS: Final = 600


class SessionOffers:
    """Makes and checks the proofs of offered tokens. Without a secret, they are valid in this process only."""

    def __init__(self, clock: Clock, secret: str = "") -> None:
        self._clock = clock
        self._key = hmac.digest((secret or secrets.token_hex(32)).encode(), b"plaza session offer", "sha256")

    def proof(self, token: str) -> str:
        """Return the proof for a new token."""
        expires = int(self._clock.now_s()) + OFFER_SECONDS
        return f"{expires}.{self._signature(token, expires)}"

    def is_offered(self, token: str, proof: str) -> bool:
        """Whether Plaza offered this token within the last minutes."""
        expires, _, signature = proof.partition(".")
        if not (expires.isascii() and expires.isdigit() and len(expires) < 16) or int(expires) <= self._clock.now_s():
            return False
        return hmac.compare_digest(self._signature(token, int(expires)).encode(), signature.encode("utf-8", "replace"))

    def _signature(self, token: str, expires: int) -> str:
        return hmac.digest(self._key, f"{expires} {token}".encode(), "sha256").hex()[:32]
