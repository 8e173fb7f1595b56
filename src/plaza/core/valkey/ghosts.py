"""Ghosts: connections that broke while they carried something. Their server may have read it, and run it later.

A caller who must know that nothing more will happen asks the server to end the old connection for good. Valkey runs one
command after the other, so once it has answered that, whatever the connection carried has run or never will, wherever
its bytes were waiting. The number by which a connection is ended is given out anew by a server that was restarted, so
the name is compared too: each has one of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextvars import Context
from time import monotonic
from typing import Any, Final, Protocol

from plaza.core.errors import Unavailable
from plaza.core.valkey.calls import Arg, ReplyError

# How long it is worth waiting for a server to be back.
LAY_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.05


class Wire(Protocol):
    """The connection to the same server that took the place of the one that broke."""

    async def ready(self) -> None: ...

    def ask(self, *command: Arg) -> Awaitable[Any]: ...


class Ghost:
    """A connection of the past."""

    def __init__(self, wire: Wire, id: int, name: str) -> None:
        self._wire = wire
        self._id = id
        self._name = name
        self._laying: asyncio.Task[bool] | None = None

    async def lay(self) -> bool:
        """Whether it is sure that nothing it carried will run any more. However many ask, the server is asked once."""
        if self._laying is None:
            self._laying = asyncio.create_task(self._lay(), context=Context())
        return await asyncio.shield(self._laying)

    async def _lay(self) -> bool:
        until = monotonic() + LAY_SECONDS
        while monotonic() < until:
            try:
                await self._wire.ready()
                return await self._end()
            except ReplyError:
                return False  # not everybody may end connections
            except Unavailable:
                await asyncio.sleep(PAUSE_SECONDS)
        return False

    async def _end(self) -> bool:
        listed = str(await self._wire.ask("CLIENT", "LIST", "ID", self._id))
        if f"name={self._name}" in listed.split():
            await self._wire.ask("CLIENT", "KILL", "ID", self._id)
        return True
