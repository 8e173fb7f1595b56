"""Kills connections that broke with commands in flight, so that these commands cannot run later.

The server may have received the commands and run them after the connection broke. A caller that must exclude that
kills the old connection on the server. Valkey runs one command after the other, so after the reply to CLIENT KILL the
old commands have run or never will. A restarted server assigns client ids again, so the connection's unique name is
compared too.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable
from contextvars import Context
from time import monotonic
from typing import Any, Final, Protocol

from plaza.core.errors import Unavailable
from plaza.core.valkey.calls import Arg, ReplyError

# How long to wait for the server to come back.
KILL_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.05
# How the names of all connections of Plaza begin.
CONNECTION_NAMES: Final = "plaza-"
# Processes in different containers often have the same pid.
_INSTANCE: Final = secrets.token_hex(3)


def own_name_prefix() -> str:
    """How the names of this process's connections begin: an operator sees in CLIENT LIST which process has one."""
    return f"{CONNECTION_NAMES}{os.getpid()}-{_INSTANCE}-"


class ReplacementConnection(Protocol):
    """The new connection to the same server."""

    async def ready(self) -> None: ...

    def send_unchecked(self, *command: Arg) -> Awaitable[Any]: ...


class FencedConnection:
    """A broken connection whose commands may still run on the server."""

    def __init__(self, connection: ReplacementConnection, id: int, name: str) -> None:
        self._connection = connection
        self._id = id
        self._name = name
        self._killing: asyncio.Task[bool] | None = None

    async def kill(self) -> bool:
        """Kill the connection. Returns whether none of its commands can run any more. The server is asked once."""
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
                return False  # this user may not kill connections
            except Unavailable:
                await asyncio.sleep(PAUSE_SECONDS)
        return False

    async def _end(self) -> bool:
        listed = str(await self._connection.send_unchecked("CLIENT", "LIST", "ID", self._id))
        if f"name={self._name}" in listed.split():
            await self._connection.send_unchecked("CLIENT", "KILL", "ID", self._id)
        return True
