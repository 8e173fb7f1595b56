"""The endpoints of webhooks: create, list, change, rotate the secret, remove."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog
from msgspec import UNSET

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.idempotency import KeyReused
from plaza.core.number_parsing import parse_int
from plaza.core.valkey import Arg
from plaza.webhooks.endpoint_reader import EndpointReader
from plaza.webhooks.keys import WEBHOOK, WEBHOOK_QUEUE, WEBHOOK_STATE, WEBHOOKS
from plaza.webhooks.model import (
    MAX_WEBHOOKS,
    ROTATION_MS,
    NewWebhook,
    NoWebhook,
    TooManyWebhooks,
    Webhook,
    WebhookChange,
    WebhookWithSecret,
    check_types,
)
from plaza.webhooks.signing import new_secret
from plaza.webhooks.targets import check_url

BY_OPERATOR: Final = "Disabled by an operator."

log = structlog.get_logger("plaza.webhooks")


class Webhooks:
    """Manages endpoints. Secrets are stored encrypted and shown once."""

    def __init__(
        self,
        functions: Functions,
        reader: EndpointReader,
        clock: Clock,
        *,
        event_types: Sequence[str],
        allow_private: bool,
    ) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._reader = reader
        self._clock = clock
        self._event_types = event_types
        self._allow_private = allow_private

    async def create(self, creator: str, new: NewWebhook, idempotency_key: str | None = None) -> WebhookWithSecret:
        """Create an endpoint and return it with its secret. Three round trips.

        The same idempotency key and request by the same creator return the same endpoint again.
        """
        check_url(new.url, allow_private=self._allow_private)
        check_types(new.types, self._event_types)
        id = _new_id(creator, idempotency_key)
        request = hashlib.sha256(msgspec.json.encode(new)).hexdigest()
        if await self._valkey.call("HLEN", WEBHOOKS()) >= MAX_WEBHOOKS:
            raise TooManyWebhooks(f"There are {MAX_WEBHOOKS} webhooks. Remove one first.")
        secret = new_secret()
        fields: dict[str, Arg] = {
            "url": new.url,
            "types": " ".join(new.types),
            "description": new.description,
            "include_imports": int(new.include_imports),
            "secret": self._reader.encrypt_secret(id, secret),
            "created_at": self._clock.now_ms(),
            "created_by": creator,
            "request": request,
        }
        if not await self._functions.run("webhooks_create", [WEBHOOK(id)], id, *_flat(fields)):
            secret = await self._repeated_secret(id, request)
        return _with_secret(await self.get(id), secret)

    async def list_all(self) -> list[Webhook]:
        """Return all endpoints, oldest first. Two round trips."""
        ids = await self._valkey.call("HKEYS", WEBHOOKS())
        found = [webhook for webhook in await self._get_many(ids) if webhook is not None]
        return sorted(found, key=lambda webhook: (webhook.created_at, webhook.id))

    async def get(self, id: str) -> Webhook:
        """Return an endpoint. One round trip."""
        (found,) = await self._get_many([id])
        if found is None:
            raise NoWebhook
        return found

    async def change(self, id: str, change: WebhookChange) -> Webhook:
        """Change an endpoint. Two round trips."""
        if change.url is not UNSET:
            check_url(change.url, allow_private=self._allow_private)
        if change.types is not UNSET:
            check_types(change.types, self._event_types)
        enabled = "" if change.enabled is UNSET else int(change.enabled)
        args = (self._clock.now_ms(), enabled, BY_OPERATOR, *_flat(_changed_fields(change)))
        await self._functions.run("webhooks_change", [WEBHOOK(id)], id, *args)
        return await self.get(id)

    async def rotate(self, id: str, operation: str = "") -> WebhookWithSecret:
        """Replace the secret. For a day requests are signed with the old one too. Two round trips.

        The same operation replaces it once: a second replacement would end the validity of the first secret.
        """
        secret = new_secret()
        until = self._clock.now_ms() + ROTATION_MS
        stored = self._reader.encrypt_secret(id, secret)
        if not await self._functions.run("webhooks_rotate", [WEBHOOK(id)], id, stored, until, operation):
            stored = await self._valkey.call("HGET", WEBHOOK(id), "secret")
            secret = self._reader.decrypt_secret(id, stored or "") or ""
        return _with_secret(await self.get(id), secret)

    async def remove(self, id: str) -> None:
        """Delete an endpoint, with the events that wait for it. One round trip."""
        await self._functions.run("webhooks_remove", [WEBHOOK(id)], id)

    async def disable(self, id: str, reason: str) -> None:
        """Disable an endpoint for a reason that operators see. One round trip."""
        if await self._functions.run("webhooks_disable", [WEBHOOK(id)], id, self._clock.now_ms(), reason):
            log.warning("webhook_disabled", webhook=id, reason=reason)

    async def _repeated_secret(self, id: str, request: str) -> str:
        """Return the secret of the endpoint that the first request with this idempotency key created."""
        stored_request, stored = await self._valkey.call("HMGET", WEBHOOK(id), "request", "secret")
        if stored_request != request:
            raise KeyReused
        return self._reader.decrypt_secret(id, stored or "") or ""

    async def _get_many(self, ids: Sequence[str]) -> list[Webhook | None]:
        commands: list[Sequence[Arg]] = []
        for id in ids:
            commands += [("HGETALL", WEBHOOK(id)), ("HGETALL", WEBHOOK_STATE(id)), ("XLEN", WEBHOOK_QUEUE(id))]
        replies = await self._valkey.batch(commands) if commands else []
        return [_webhook(id, *replies[3 * i : 3 * i + 3]) for i, id in enumerate(ids)]


def _new_id(creator: str, idempotency_key: str | None) -> str:
    if idempotency_key is None:
        return secrets.token_hex(8)
    return hashlib.sha256(f"{creator} {idempotency_key}".encode()).hexdigest()[:16]


def _flat(fields: Mapping[str, Arg]) -> list[Arg]:
    return [word for pair in fields.items() for word in pair]


def _changed_fields(change: WebhookChange) -> dict[str, Arg]:
    fields: dict[str, Arg] = {}
    if change.url is not UNSET:
        fields["url"] = change.url
    if change.types is not UNSET:
        fields["types"] = " ".join(change.types)
    if change.description is not UNSET:
        fields["description"] = change.description
    if change.include_imports is not UNSET:
        fields["include_imports"] = int(change.include_imports)
    return fields


def _webhook(id: str, fields: Mapping[str, str], state: Mapping[str, str], waiting: int) -> Webhook | None:
    if not fields.get("url"):
        return None
    return Webhook(
        id=id,
        url=fields["url"],
        types=fields.get("types", "").split(),
        description=fields.get("description", ""),
        include_imports=fields.get("include_imports") == "1",
        enabled="disabled_at" not in fields,
        disabled_at=parse_int(fields.get("disabled_at"), None),
        disabled_reason=fields.get("disabled_reason"),
        created_at=parse_int(fields.get("created_at"), 0),
        created_by=fields.get("created_by"),
        waiting=waiting,
        delivered=parse_int(state.get("delivered"), 0),
        dropped=parse_int(state.get("dropped"), 0),
        failing_since=parse_int(state.get("failing_since"), None),
        next_attempt_at=parse_int(state.get("next_at"), None),
        last_delivered_at=parse_int(state.get("last_delivered_at"), None),
        last_error=state.get("last_error"),
    )


def _with_secret(webhook: Webhook, secret: str) -> WebhookWithSecret:
    values: dict[str, Any] = msgspec.structs.asdict(webhook)
    return WebhookWithSecret(**values, secret=secret)
