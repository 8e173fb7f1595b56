"""An authenticator in software, with real keys and signatures, that can also do what a real one refuses."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
from dataclasses import dataclass, field
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

USER_PRESENT, USER_VERIFIED, HAS_KEY = 0x01, 0x04, 0x40


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass
class Authenticator:
    """One passkey, and what it says about the page and its user."""

    origin: str = "https://plaza.example"
    domain: str = "plaza.example"
    verifies_user: bool = True
    count: int = 0
    counts: bool = True
    credential_id: bytes = field(default_factory=lambda: os.urandom(32))
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    user_handle: str = ""

    def create(self, options: dict[str, Any]) -> dict[str, Any]:
        """What `navigator.credentials.create` returns."""
        self.user_handle = options["user"]["id"]
        client_data = self._client_data("webauthn.create", options["challenge"])
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": self._data(with_key=True)})
        response = {"clientDataJSON": encode(client_data), "attestationObject": encode(attestation)}
        return self._credential(response)

    def get(self, options: dict[str, Any], challenge: str | None = None) -> dict[str, Any]:
        """What `navigator.credentials.get` returns."""
        client_data = self._client_data("webauthn.get", challenge or options["challenge"])
        data = self._data()
        signature = self.key.sign(data + hashlib.sha256(client_data).digest(), ec.ECDSA(SHA256()))
        response = {
            "clientDataJSON": encode(client_data),
            "authenticatorData": encode(data),
            "signature": encode(signature),
            "userHandle": self.user_handle,
        }
        return self._credential(response)

    def _credential(self, response: dict[str, Any]) -> dict[str, Any]:
        id = encode(self.credential_id)
        return {"id": id, "rawId": id, "type": "public-key", "response": response, "clientExtensionResults": {}}

    def _client_data(self, kind: str, challenge: str) -> bytes:
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin}).encode()

    def _data(self, *, with_key: bool = False) -> bytes:
        self.count += self.counts
        flags = USER_PRESENT | (USER_VERIFIED if self.verifies_user else 0) | (HAS_KEY if with_key else 0)
        data = hashlib.sha256(self.domain.encode()).digest() + struct.pack(">BI", flags, self.count)
        return data + self._public_key() if with_key else data

    def _public_key(self) -> bytes:
        numbers = self.key.public_key().public_numbers()
        x, y = numbers.x.to_bytes(32, "big"), numbers.y.to_bytes(32, "big")
        key = cbor2.dumps({1: 2, 3: -7, -1: 1, -2: x, -3: y})
        return bytes(16) + struct.pack(">H", len(self.credential_id)) + self.credential_id + key
