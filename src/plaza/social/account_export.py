"""Account export: everything Plaza stores about a user, for that user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plaza.core.auth import Actor
from plaza.core.domain import PersonalData


class AccountExport:
    def __init__(self, domains: Mapping[str, PersonalData]) -> None:
        self._domains = domains

    async def everything(self, actor: Actor) -> dict[str, Any]:
        """Return what each domain stores about the caller. A few round trips for each 500 entries."""
        exports = {name: await personal_data.export(actor.name) for name, personal_data in self._domains.items()}
        return {"id": actor.name, "username": actor.name, **exports}
