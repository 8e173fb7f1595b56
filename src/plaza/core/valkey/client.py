"""`Valkey`: the interface that services use, for one server or a cluster."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, Self

from plaza.core.keyspace import Layout
from plaza.core.valkey.calls import Arg
from plaza.core.valkey.dedicated import Subscription
from plaza.core.valkey.slots import SLOTS

OnInvalidate = Callable[[list[str] | None], None]


class BlockingConnection(Protocol):
    """A dedicated connection, for commands that block on the server: `dedicated.py`."""

    async def call(self, *command: Arg, timeout: float | None = None) -> Any: ...


class InvalidationListeners:
    """Callbacks for changed keys. An exception in one does not stop the others."""

    def __init__(self) -> None:
        self._callbacks: dict[object, OnInvalidate] = {}

    def add(self, callback: OnInvalidate) -> Callable[[], None]:
        """Add a callback. Returns a function that removes it; calling that twice is harmless."""
        added = object()
        self._callbacks[added] = callback

        def remove() -> None:
            self._callbacks.pop(added, None)

        return remove

    def on_push(self, message: list[Any]) -> None:
        if message[0] == "invalidate":
            self.notify(message[1])

    def notify(self, keys: list[str] | None) -> None:
        for callback in list(self._callbacks.values()):
            try:
                callback(keys)
            except Exception as error:
                context = {"message": "A callback for changed keys failed.", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)


class AsyncResource(ABC):
    """Something to use in `async with`, which closes it."""

    @abstractmethod
    async def close(self) -> None:
        """Close permanently. Waiting calls fail."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


class Valkey(AsyncResource):
    """One server or a cluster; callers need not know which."""

    clustered: bool

    def __init__(self) -> None:
        self._listeners = InvalidationListeners()

    @property
    def layout(self) -> Layout:
        return Layout.BRACES if self.clustered else Layout.PLAIN

    @abstractmethod
    def call(
        self,
        *command: Arg,
        timeout: float | None = None,
        raw: bool = False,
        key: str | None = None,
        shared: bool = False,
    ) -> Awaitable[Any]:
        """Run a command. One round trip. The reply is text in RESP3 types, or with `raw` bytes in RESP2 types.

        `key` names the command's key on a cluster, for commands where it is in an unusual position. A read that is
        `shared` is sent once for all who want it at the same moment (one server only): they must not change the reply.
        One with a `timeout` of its own or `raw` is sent for itself.
        """

    @abstractmethod
    def batch(
        self,
        commands: Sequence[Sequence[Arg]],
        *,
        timeout: float | None = None,
        raw: bool = False,
        return_errors: bool = False,
    ) -> Awaitable[list[Any]]:
        """Run many commands in one round trip, not atomically. Raises the first error, or returns all errors.

        A batch that only reads may use another connection: it sees every write that was answered before it.
        """

    @abstractmethod
    def multi(
        self,
        commands: Sequence[Sequence[Arg]],
        *,
        timeout: float | None = None,
        raw: bool = False,
        return_errors: bool = False,
    ) -> Awaitable[list[Any]]:
        """Run many commands atomically in one round trip. Raises the first error, or returns all errors."""

    def fcall(
        self,
        name: str,
        keys: Sequence[str],
        *args: Arg,
        read_only: bool = False,
        timeout: float | None = None,
        raw: bool = False,
    ) -> Awaitable[Any]:
        """Call a loaded function. One round trip."""
        return self.call("FCALL_RO" if read_only else "FCALL", name, len(keys), *keys, *args, timeout=timeout, raw=raw)

    @abstractmethod
    def tracked(
        self, *command: Arg, store: Callable[[Any], Any] | None = None, timeout: float | None = None
    ) -> Awaitable[Any]:
        """Read keys that Valkey tracks: `on_invalidate` is called when one changes.

        `store(reply)` runs in reply order, before the invalidation of any later change, so what it stores cannot become
        stale. Its return value is the result.
        """

    async def tracked_with_batch(
        self, command: Sequence[Arg], batch: Sequence[Sequence[Arg]], store: Callable[[Any], Any]
    ) -> list[Any]:
        """Run a tracked read and an untracked batch together. Returns all replies, the read's first."""
        reading = asyncio.ensure_future(self.tracked(*command, store=store))
        replies = await self.batch(batch)
        return [await reading, *replies]

    def on_invalidate(self, callback: OnInvalidate) -> Callable[[], None]:
        """Register a callback for changed tracked keys; None means any key. Returns a function that removes it."""
        return self._listeners.add(callback)

    @abstractmethod
    def subscribe(self, *channels: str) -> Subscription:
        """Subscribe to channels, on a dedicated connection."""

    @abstractmethod
    def blocking(self) -> AbstractAsyncContextManager[BlockingConnection]:
        """Open a dedicated connection, for commands that block on the server."""

    def slots_on(self, node: Valkey) -> Iterable[int]:
        """Yield the slots that a primary serves; all there are without a cluster."""
        return range(SLOTS)

    def by_node(self, keys: Sequence[str]) -> Collection[list[int]]:
        """Return the indexes of keys, those on one node together. A slot may have moved since."""
        return [list(range(len(keys)))]

    @abstractmethod
    def primaries(self) -> Sequence[Valkey]:
        """Return each server that has keys, for SCAN, FUNCTION LOAD and the like."""

    @abstractmethod
    async def ready(self) -> None:
        """Wait for the connection, at most as long as a call would."""
