"""Account export: everything Plaza stores about a user, for that user."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial

from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.domain import PersonalData, PersonalFiles
from plaza.core.json_stream import stream_json
from plaza.core.security_log import AccountLog
from plaza.core.zip_stream import ArchivedFile, stream_zip


class AccountExport:
    def __init__(
        self, domains: Mapping[str, PersonalData], files: PersonalFiles | None, log: AccountLog, clock: Clock
    ) -> None:
        self._domains = domains
        self._files = files
        self._log = log
        self._clock = clock

    async def everything(self, actor: Actor, address: str | None) -> AsyncIterator[bytes]:
        """Return what each domain stores about the caller, as JSON that is read while it is sent.

        A few round trips for each 500 entries.
        """
        await self._log.record(actor.name, "data_exported", address)
        return await self._data(actor)

    async def archive(self, actor: Actor, address: str | None) -> AsyncIterator[bytes]:
        """Return a ZIP archive of the same JSON and the caller's pictures, which are read while it is sent."""
        await self._log.record(actor.name, "data_exported", address)
        return await stream_zip(self._archived(actor))

    async def _data(self, actor: Actor) -> AsyncIterator[bytes]:
        domains = {name: partial(data.export, actor.name) for name, data in self._domains.items()}
        return await stream_json({"id": actor.name, "username": actor.name, **domains})

    async def _archived(self, actor: Actor) -> AsyncIterator[ArchivedFile]:
        yield ArchivedFile("data.json", self._clock.now_ms(), await self._data(actor), compress=True)
        if self._files is not None:
            async for file in self._files.files(actor.name):
                yield file
