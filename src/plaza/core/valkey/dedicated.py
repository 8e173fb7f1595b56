"""Dedicated connections: subscriptions, and commands that block on the server.

On the shared connection a `BLPOP` would block all callers. Cancelling a blocking command breaks its connection:
otherwise Valkey would give an element to a caller that no longer waits.
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

# A subscriber with this many unread messages fails: it would not catch up.
MAX_UNREAD_MESSAGES = 10_000


class OpenConnection(Protocol):
    """Opens a connection: `connection.Connection` with all but these arguments bound."""

    def __call__(self, *, on_push: Callable[[list[Any]], None], on_down: Callable[[], None]) -> Connection: ...


class Subscription:
    """`async with valkey.subscribe("news") as messages: async for channel, payload in messages: …`

    The messages of a broken connection are lost. Reading then raises `ConnectionLost`, so a subscriber knows that it
    has missed some.
    """

    def __init__(self, open_connection: OpenConnection, subscribe: bytes) -> None:
        self._open_connection = open_connection
        self._subscribe = subscribe
        self._messages: deque[tuple[str, str]] = deque()
        self._arrived = asyncio.Event()
        self._ended: Exception | None = None

    async def __aenter__(self) -> Self:
        self._connection = self._open_connection(on_push=self._push, on_down=self._down)
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
    def unread(self) -> int:
        """The number of messages that have arrived and not been read."""
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
    """One caller's connection, for commands that block on the server. Use it from one task at a time."""

    def __init__(self, connection: Connection, pack: Callable[[tuple[Arg, ...]], bytes]) -> None:
        self._connection = connection
        self._pack = pack

    async def call(self, *command: Arg, timeout: float | None = None) -> Any:
        """Run a command. The default timeout is the command's own blocking time plus the usual timeout."""
        if timeout is None:
            timeout = server_wait_seconds(command) + self._connection.options.timeout
        try:
            return await self._connection.send(self._pack(command), None, timeout)
        except (asyncio.CancelledError, CallTimeout):
            self._connection.drop()
            raise

    async def close(self) -> None:
        await self._connection.close()


_TIMEOUT_LAST = frozenset(("BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BZPOPMIN", "BZPOPMAX"))
_TIMEOUT_FIRST = frozenset(("BLMPOP", "BZMPOP"))
UNLIMITED_SECONDS = 365 * 86_400.0


def server_wait_seconds(command: Sequence[Arg]) -> float:
    """Return how long a command may block on the server by its arguments, in seconds; without limit is a year."""
    words = [word.decode(errors="replace") if isinstance(word, bytes) else str(word) for word in command]
    name = words[0].upper()
    if name in _TIMEOUT_LAST:
        block = words[-1]
    elif name in _TIMEOUT_FIRST:
        block = words[1]
    elif name in ("XREAD", "XREADGROUP"):
        upper = [word.upper() for word in words[:8]]  # BLOCK comes before the names of streams
        if "BLOCK" not in upper:
            return 0.0
        block = words[upper.index("BLOCK") + 1]
        return float(block) / 1000 or UNLIMITED_SECONDS
    elif name == "WAIT":
        return float(words[2]) / 1000 or UNLIMITED_SECONDS
    else:
        return 0.0
    return float(block) or UNLIMITED_SECONDS
