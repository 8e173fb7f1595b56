"""What needs a connection of its own: messages that arrive unasked, and commands that wait on the server.

On the shared connection a `BLPOP` would hold up everybody behind it. Here it may take its time, and giving it up
breaks the connection: otherwise Valkey would hand an element to a caller who has gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from plaza.core.valkey.calls import Arg, CallTimeout, ConnectionLost, Overloaded

if TYPE_CHECKING:
    from plaza.core.valkey.connection import Connection

# Messages a subscriber may be behind. More than that, and it would never catch up; it is told so.
MAX_UNREAD_MESSAGES = 10_000


class OpenConnection(Protocol):
    """Makes a connection of its own; `connection.Connection` with all but these arguments given."""

    def __call__(self, *, on_push: Callable[[list[Any]], None], on_down: Callable[[], None]) -> Connection: ...


class Subscription:
    """`async with valkey.subscribe("news") as messages: async for channel, payload in messages: …`

    Messages of a broken connection are gone, so a gap is never silent: reading raises `ConnectionLost`, and whoever
    subscribes again knows that it must look what it missed.
    """

    def __init__(self, open_wire: OpenConnection, subscribe: bytes) -> None:
        self._open_wire = open_wire
        self._subscribe = subscribe
        self._messages: deque[tuple[str, str]] = deque()
        self._arrived = asyncio.Event()
        self._ended: Exception | None = None

    async def __aenter__(self) -> Self:
        self._connection = self._open_wire(on_push=self._push, on_down=self._down)
        try:
            await self._connection.ready()
            await self._connection.send(self._subscribe)
        except BaseException:
            await self._connection.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._connection.close()

    @property
    def behind(self) -> int:
        """How many messages have arrived and not been read."""
        return len(self._messages)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[str, str]:
        while not self._messages:
            if self._ended is not None:
                raise self._ended
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.popleft()

    def _push(self, message: list[Any]) -> None:
        if message[0] != "message" or self._ended is not None:
            return
        self._messages.append((message[1], message[2]))
        if len(self._messages) >= MAX_UNREAD_MESSAGES:
            self._end(Overloaded(f"A subscriber is {MAX_UNREAD_MESSAGES} messages behind."))
            self._connection.drop()
        self._arrived.set()

    def _down(self) -> None:
        self._end(ConnectionLost("The connection of a subscription broke.", may_have_run=False))

    def _end(self, error: Exception) -> None:
        self._ended = self._ended or error
        self._arrived.set()


class DedicatedConnection:
    """One caller's connection. Use it from one task at a time, for commands that wait on the server."""

    def __init__(self, connection: Connection, pack: Callable[[tuple[Arg, ...]], bytes]) -> None:
        self._connection = connection
        self._pack = pack

    async def call(self, *command: Arg, timeout: float | None = None) -> Any:
        """Without a timeout: as long as the command says it will wait, and then as long as any other."""
        if timeout is None:
            timeout = server_wait_seconds(command) + self._connection.options.timeout
        try:
            return await self._connection.send(self._pack(command), None, timeout)
        except (asyncio.CancelledError, CallTimeout):
            self._connection.drop()
            raise

    async def close(self) -> None:
        await self._connection.close()


_LAST = frozenset(("BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BZPOPMIN", "BZPOPMAX"))
_FIRST = frozenset(("BLMPOP", "BZMPOP"))
UNLIMITED_SECONDS = 365 * 86_400.0


def server_wait_seconds(command: Sequence[Arg]) -> float:
    """Seconds a command may wait on the server by its own words; for ever is a year."""
    words = [word.decode(errors="replace") if isinstance(word, bytes) else str(word) for word in command]
    name = words[0].upper()
    asked = "0"
    if name in _LAST:
        asked = words[-1]
    elif name in _FIRST:
        asked = words[1]
    elif name in ("XREAD", "XREADGROUP"):
        upper = [word.upper() for word in words[:8]]  # BLOCK stands before the names of streams
        if "BLOCK" not in upper:
            return 0.0
        asked = words[upper.index("BLOCK") + 1]
        return float(asked) / 1000 or UNLIMITED_SECONDS
    else:
        return 0.0
    return float(asked) or UNLIMITED_SECONDS
