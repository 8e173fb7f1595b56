"""Account export: everything Plaza stores about a user, for that user."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial

from plaza.core.auth import Actor
from plaza.core.domain import PersonalData
from plaza.core.json_stream import stream_json
from plaza.core.security_log import AccountLog


class AccountExport:
    def __init__(self, domains: Mapping[str, PersonalData], log: AccountLog) -> None:
        self._domains = domains
        self._log = log

    async def everything(self, actor: Actor, address: str | None) -> AsyncIterator[bytes]:
        """Return what each domain stores about the caller, as JSON that is read while it is sent.

        A few round trips for each 500 entries.
        """
        await self._log.record(actor.name, "data_exported", address)
        domains = {name: partial(data.export, actor.name) for name, data in self._domains.items()}
        return await stream_json({"id": actor.name, "username": actor.name, **domains})
