"""Account export: everything Plaza stores about a user, for that user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plaza.core.auth import Actor
from plaza.core.domain import PersonalData
from plaza.core.security_log import AccountLog


class AccountExport:
    def __init__(self, domains: Mapping[str, PersonalData], log: AccountLog) -> None:
        self._domains = domains
        self._log = log

    async def everything(self, actor: Actor, address: str | None) -> dict[str, Any]:
        """Return what each domain stores about the caller. A few round trips for each 500 entries."""
        await self._log.record(actor.name, "data_exported", address)
        exports = {name: await personal_data.export(actor.name) for name, personal_data in self._domains.items()}
        return {"id": actor.name, "username": actor.name, **exports}
