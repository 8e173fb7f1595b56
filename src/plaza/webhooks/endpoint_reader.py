"""Reads endpoints as workers need them: with their decrypted secrets, ready to select events and to sign requests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import structlog
from msgspec import Struct

from plaza.core.encryption import EncryptedFields, Encryption, Undecryptable
from plaza.core.number_parsing import parse_int
from plaza.core.valkey import Valkey
from plaza.webhooks.cloud_events import OutgoingEvent
from plaza.webhooks.keys import WEBHOOK, WEBHOOKS
from plaza.webhooks.model import type_matcher
from plaza.webhooks.signing import secret_key, signed_headers

log = structlog.get_logger("plaza.webhooks")


class Endpoint(Struct, frozen=True):
    """An endpoint, as a worker uses it."""

    id: str
    revision: str
    url: str
    types: re.Pattern[str]
    include_imports: bool
    is_enabled: bool
    since: int  # Unix milliseconds; older events are not sent
    key: bytes | None  # None if the secret cannot be decrypted
    previous_key: bytes | None = None
    previous_until: int = 0

    def wants(self, event: OutgoingEvent) -> bool:
        """Whether an event is sent to this endpoint."""
        return (
            self.is_enabled
            and event.added_ms >= self.since
            and (self.include_imports or not event.is_import)
            and self.types.fullmatch(event.type) is not None
        )

    def headers(self, message_id: str, now_ms: int, body: bytes) -> dict[str, str]:
        """Return the headers of a signed request."""
        assert self.key is not None
        keys = [self.key]
        if self.previous_key is not None and now_ms < self.previous_until:
            keys.append(self.previous_key)
        return signed_headers(keys, message_id, now_ms // 1000, body)


class EndpointReader:
    """Reads endpoints from Valkey."""

    def __init__(self, valkey: Valkey, encryption: Encryption) -> None:
        self._valkey = valkey
        self._encryption = encryption

    async def revisions(self) -> dict[str, str]:
        """Return the revision of every endpoint, by id. Valkey reports the next change of them. One round trip."""
        found: dict[str, str] = await self._valkey.tracked("HGETALL", WEBHOOKS())
        return found

    async def get_many(self, ids: Sequence[str]) -> list[Endpoint | None]:
        """Return endpoints; None for those that do not exist. One round trip."""
        found = await self._valkey.batch([("HGETALL", WEBHOOK(id)) for id in ids]) if ids else []
        return [self._endpoint(id, fields) for id, fields in zip(ids, found, strict=True)]

    async def get(self, id: str) -> Endpoint | None:
        """Return an endpoint; None if it does not exist. One round trip."""
        return (await self.get_many([id]))[0]

    def encrypt_secret(self, id: str, secret: str) -> str:
        """Return a secret as it is stored."""
        return self._encryption.encrypt(secret, _context(id))

    def decrypt_secret(self, id: str, stored: str) -> str | None:
        """Return a stored secret; None if it was encrypted with another data key."""
        try:
            return self._encryption.decrypt(stored, _context(id))
        except Undecryptable:
            log.error("webhook_secret_unreadable", webhook=id)
            return None

    def encrypted_fields(self) -> EncryptedFields:
        def renew(ids: tuple[str, ...], field: str, stored: str, plain_too: bool) -> str:
            return self._encryption.renew(stored, _context(ids[0]))

        return EncryptedFields(WEBHOOK, ("secret", "previous_secret"), renew)

    def _endpoint(self, id: str, fields: Mapping[str, str]) -> Endpoint | None:
        if not fields.get("url"):
            return None
        previous = fields.get("previous_secret")
        return Endpoint(
            id,
            fields.get("revision", ""),
            fields["url"],
            type_matcher(fields.get("types", "").split()),
            fields.get("include_imports") == "1",
            "disabled_at" not in fields,
            parse_int(fields.get("since"), 0),
            self._key(id, fields.get("secret", "")),
            self._key(id, previous) if previous else None,
            parse_int(fields.get("previous_until"), 0),
        )

    def _key(self, id: str, stored: str) -> bytes | None:
        secret = self.decrypt_secret(id, stored)
        return None if secret is None else secret_key(secret)


def _context(id: str) -> str:
    return f"webhook {id}"
