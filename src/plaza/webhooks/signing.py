"""Signatures of the Standard Webhooks format: an HMAC over the message's id, its time and its body."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Final

PREFIX: Final = "whsec_"
# The format allows 24 to 64 bytes.
SECRET_BYTES: Final = 32


def new_secret() -> str:
    """Return a random secret, as receivers get it."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def secret_key(secret: str) -> bytes:
    """Return the key of a secret."""
    return base64.b64decode(secret.removeprefix(PREFIX))


def signed_headers(keys: Sequence[bytes], message_id: str, unix_seconds: int, body: bytes) -> dict[str, str]:
    """Return the headers that let a receiver verify a message. During a rotation it is signed with two keys."""
    content = b"%s.%d.%s" % (message_id.encode(), unix_seconds, body)
    signatures = [base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(unix_seconds),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
