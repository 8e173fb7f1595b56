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
KILL_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.05


class ReplacementConnection(Protocol):
    """The connection to the same server that took the place of the one that broke."""

    async def ready(self) -> None: ...

    def ask(self, *command: Arg) -> Awaitable[Any]: ...


class FencedConnection:
    """A connection of the past."""

    def __init__(self, connection: ReplacementConnection, id: int, name: str) -> None:
        self._connection = connection
        self._id = id
        self._name = name
        self._killing: asyncio.Task[bool] | None = None

    async def kill(self) -> bool:
        """Whether it is sure that nothing it carried will run any more. However many ask, the server is asked once."""
        if self._killing is None:
            self._killing = asyncio.create_task(self._kill(), context=Context())
        return await asyncio.shield(self._killing)

    async def _kill(self) -> bool:
        until = monotonic() + KILL_SECONDS
        while monotonic() < until:
            try:
                await self._connection.ready()
                return await self._end()
            except ReplyError:
                return False  # not everybody may end connections
            except Unavailable:
                await asyncio.sleep(PAUSE_SECONDS)
        return False

    async def _end(self) -> bool:
        listed = str(await self._connection.ask("CLIENT", "LIST", "ID", self._id))
        if f"name={self._name}" in listed.split():
            await self._connection.ask("CLIENT", "KILL", "ID", self._id)
        return True
