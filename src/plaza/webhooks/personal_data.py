"""Exports, deletes and renames what webhooks store about a user: who created an endpoint.

Events that wait in a queue can name users too. They are deleted when they are delivered, and after a week at the
latest. Records of deliveries name no user.
"""

from __future__ import annotations

from typing import Any

from plaza.core.functions import Functions
from plaza.webhooks.endpoints import Webhooks
from plaza.webhooks.keys import WEBHOOK, WEBHOOKS


class WebhooksPersonalData:
    """The endpoints that a user created. They stay when the user goes: they belong to the community."""

    def __init__(self, functions: Functions, webhooks: Webhooks) -> None:
        self._functions = functions
        self._webhooks = webhooks

    async def export(self, username: str) -> dict[str, Any]:
        """Return the endpoints that a user created. Two round trips."""
        found = [webhook for webhook in await self._webhooks.list_all() if webhook.created_by == username]
        return {
            "webhooks": [{"id": webhook.id, "url": webhook.url, "created_at": webhook.created_at} for webhook in found]
        }

    async def delete(self, username: str) -> None:
        """Remove the name from the user's endpoints."""
        await self.rename(username, "")

    async def rename(self, old: str, new: str) -> None:
        """Put a new name on the user's endpoints. Repeatable."""
        for id in await self._functions.valkey.call("HKEYS", WEBHOOKS()):
            await self._functions.run("webhooks_rename_creator", [WEBHOOK(id)], old, new)
