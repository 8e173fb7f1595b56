"""`StandaloneValkey`: the `Valkey` interface for one server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from plaza.core.valkey.address import Address
from plaza.core.valkey.bulk_hashes import flat_replies_to_dicts, hash_indexes
from plaza.core.valkey.calls import (
    Arg,
    ConnectionOptions,
    ReplyGroup,
    all_or_first_error,
    exec_replies,
    exec_replies_or_error,
)
from plaza.core.valkey.client import Valkey
from plaza.core.valkey.command_guard import ALLOWED_NAMES, check_all_allowed, check_allowed
from plaza.core.valkey.connection import Connection, OnErrorReply, pack
from plaza.core.valkey.dedicated import DedicatedConnection, Subscription
from plaza.core.valkey.shared_reads import SharedReads

MULTI, EXEC = pack(("MULTI",)), pack(("EXEC",))
_CACHING = pack(("CLIENT", "CACHING", "YES"))


class StandaloneValkey(Valkey):
    """One Valkey server, over one connection that all callers share.

    Two more connections open on first use: one for raw replies, and one for batches of hashes (`bulk_hashes.py`).
    """

    clustered = False

    def __init__(
        self,
        address: Address,
        options: ConnectionOptions,
        *,
        on_error_reply: OnErrorReply | None = None,
        on_down: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self.address = address
        self.options = options
        self._on_error_reply = on_error_reply

        def on_connection_down() -> None:
            self._listeners.notify(None)
            if on_down is not None:
                on_down()

        self._connection = Connection(
            address,
            options,
            tracking=True,
            on_push=self._listeners.on_push,
            on_down=on_connection_down,
            on_error_reply=on_error_reply,
        )
        self._shared_reads = SharedReads(self._connection)
        self._raw: Connection | None = None
        self._flat: Connection | None = None

    def __repr__(self) -> str:
        return f"<Valkey at {self.address}>"

    def connection(self, raw: bool) -> Connection:
        """Return the shared connection, or the one for raw replies."""
        if not raw:
            return self._connection
        if self._raw is None:
            self._raw = Connection(self.address, self.options, resp=2, text=False, on_error_reply=self._on_error_reply)
        return self._raw

    def call(
        self,
        *command: Arg,
        timeout: float | None = None,
        raw: bool = False,
        key: str | None = None,
        shared: bool = False,
    ) -> asyncio.Future[Any]:
        if command[0] not in ALLOWED_NAMES:
            check_allowed(command)
        if shared and timeout is None and not raw:
            return self._shared_reads.send(pack(command))
        return (self.connection(raw) if raw else self._connection).send(pack(command), None, timeout)

    def batch(
        self,
        commands: Sequence[Sequence[Arg]],
        *,
        timeout: float | None = None,
        raw: bool = False,
        return_errors: bool = False,
    ) -> asyncio.Future[list[Any]]:
        check_all_allowed(commands)
        packed = [pack(tuple(command)) for command in commands]
        if not packed:
            return resolved_future([])
        return self.send_batch(commands, packed, list if return_errors else all_or_first_error, timeout, raw)[1]

    def send_batch(
        self,
        commands: Sequence[Sequence[Arg]],
        packed: list[bytes],
        finish: Callable[[list[Any]], Any],
        timeout: float | None,
        raw: bool,
    ) -> tuple[Connection, asyncio.Future[list[Any]]]:
        """Send a batch, or a cluster batch's part for this node. Returns the connection used and the replies."""
        connection = self.connection(raw)
        group = ReplyGroup(len(packed), finish)
        if not raw and (hashes := hash_indexes(commands)):
            if self._flat is None:
                self._flat = Connection(self.address, self.options, resp=2)
            connection = self._flat
            group.finish = lambda replies: finish(flat_replies_to_dicts(replies, hashes))
        return connection, connection.send(b"".join(packed), group, timeout)

    def multi(
        self,
        commands: Sequence[Sequence[Arg]],
        *,
        timeout: float | None = None,
        raw: bool = False,
        return_errors: bool = False,
    ) -> asyncio.Future[list[Any]]:
        check_all_allowed(commands)
        packed = [pack(tuple(command)) for command in commands]
        if not packed:
            return resolved_future([])
        finish = exec_replies if return_errors else exec_replies_or_error
        group = ReplyGroup(len(packed) + 2, finish)
        return self.connection(raw).send(b"".join((MULTI, *packed, EXEC)), group, timeout)

    def tracked(
        self, *command: Arg, store: Callable[[Any], Any] | None = None, timeout: float | None = None
    ) -> asyncio.Future[Any]:
        check_allowed(command)

        def finish(replies: list[Any]) -> Any:
            reply = all_or_first_error(replies)[-1]
            return reply if store is None else store(reply)

        return self._connection.send(_CACHING + pack(command), ReplyGroup(2, finish), timeout)

    async def tracked_with_batch(
        self, command: Sequence[Arg], batch: Sequence[Sequence[Arg]], store: Callable[[Any], Any]
    ) -> list[Any]:
        check_all_allowed([command, *batch])

        def finish(replies: list[Any]) -> list[Any]:
            _, reply, *others = all_or_first_error(replies)
            return [store(reply), *others]

        packed = [_CACHING, pack(tuple(command)), *(pack(tuple(other)) for other in batch)]
        result: list[Any] = await self._connection.send(b"".join(packed), ReplyGroup(len(packed), finish))
        return result

    def subscribe(self, *channels: str) -> Subscription:
        # PING is answered once the channels are listened to, in a reply like any other.
        command = pack(("SUBSCRIBE", *channels)) + pack(("PING",))
        return Subscription(partial(Connection, self.address, self.options), command)

    @asynccontextmanager
    async def blocking(self) -> AsyncIterator[DedicatedConnection]:
        dedicated = DedicatedConnection(Connection(self.address, self.options), pack)
        try:
            yield dedicated
        finally:
            await dedicated.close()

    def primaries(self) -> list[Valkey]:
        return [self]

    @property
    def connected(self) -> bool:
        return self._connection.connected

    async def ready(self) -> None:
        await self._connection.ready()

    async def close(self) -> None:
        for connection in (self._connection, self._raw, self._flat):
            if connection is not None:
                await connection.close()


def resolved_future(reply: Any) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(reply)
    return future
