"""`ClusterValkey`: the `Valkey` interface for a cluster.

Every node has one shared connection, and `cluster_topology.py` knows the node of each slot. A redirected command did
not run, so it is sent again to the right node within its timeout (`redirect_follower.py`). A command in flight on a
broken connection may have run, so it is never sent again. Callers see none of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from time import monotonic
from typing import Any

from plaza.core.valkey.address import Address
from plaza.core.valkey.calls import (
    REQUEST_USAGE,
    Arg,
    ConnectionLost,
    ConnectionOptions,
    all_or_first_error,
    exec_replies,
    exec_replies_or_error,
)
from plaza.core.valkey.client import Valkey
from plaza.core.valkey.cluster_batch import ClusterBatch
from plaza.core.valkey.cluster_blocking import ClusterBlocking
from plaza.core.valkey.cluster_topology import ClusterTopology
from plaza.core.valkey.command_guard import ALLOWED_NAMES, check_all_allowed, check_allowed
from plaza.core.valkey.connection import Connection, pack
from plaza.core.valkey.dedicated import Subscription
from plaza.core.valkey.redirect_errors import resend
from plaza.core.valkey.redirect_follower import RedirectFollower
from plaza.core.valkey.slots import common_slot, first_key
from plaza.core.valkey.standalone import EXEC, MULTI, StandaloneValkey, resolved_future


class ClusterValkey(Valkey):
    """All primaries of a Valkey cluster."""

    clustered = True

    def __init__(self, seeds: Sequence[Address], options: ConnectionOptions) -> None:
        self.options = options
        super().__init__()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.redirects = RedirectFollower(lambda: self.topology, self.start, self.closed)
        self.topology = ClusterTopology(seeds, options, self._listeners, self.start, self.redirects.on_error_reply)

    def __repr__(self) -> str:
        return f"<Valkey cluster at {', '.join(map(str, self.topology.seeds))}>"

    async def ready(self) -> None:
        """Load the table of slots, and keep it up to date from then on."""
        if not await self.topology.load():
            seeds = ", ".join(map(str, self.topology.seeds))
            raise ConnectionLost(f"No node of the Valkey cluster at {seeds} answers.", may_have_run=False)
        self.start(self.topology.watch())

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
        packed = pack(command)
        node = self.topology.home(first_key(command) if key is None else key)
        return node.connection(raw).send(packed, None, timeout)

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
        nodes = self.topology.by_node(map(first_key, commands))
        batch = ClusterBatch(self, packed, len(nodes), self.options.until(timeout), return_errors)
        usage = REQUEST_USAGE.get()
        for node, indexes in nodes.items():
            part = [commands[i] for i in indexes], [packed[i] for i in indexes]
            batch.add(indexes, *node.send_batch(*part, list, timeout, raw))
            REQUEST_USAGE.set(None)  # the parts are sent in parallel, so they count as one round trip
        REQUEST_USAGE.set(usage)
        return batch.result

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
        slot = common_slot(commands)
        node = self.topology.any_node() if slot is None else self.topology.node_of_slot(slot)
        connection, until = node.connection(raw), self.options.until(timeout)
        finish = exec_replies if return_errors else exec_replies_or_error
        send = resend(b"".join((MULTI, *packed, EXEC)), len(packed) + 2, finish, until)
        return self.start(self.redirects.follow(send(connection, False), connection, until, send))

    def tracked(
        self, *command: Arg, store: Callable[[Any], Any] | None = None, timeout: float | None = None
    ) -> asyncio.Future[Any]:
        check_allowed(command)
        key, packed, until = first_key(command), pack(command), self.options.until(timeout)

        def store_and_invalidate(replies: list[Any]) -> Any:
            # ASKING and CACHING each apply to the next command only, so a key of a migrating slot cannot be tracked:
            # what was stored is invalidated at once.
            reply = all_or_first_error(replies)[0]
            result = reply if store is None else store(reply)
            self._listeners.notify([str(key)])
            return result

        def send(connection: Connection, asking: bool) -> Awaitable[Any]:
            if asking:
                return resend(packed, 1, store_and_invalidate, until)(connection, True)
            node, left = self.topology.node(connection.address), max(until - monotonic(), 0)
            return node.tracked(*command, store=store, timeout=left)

        connection = self.topology.home(key).connection(False)
        return self.start(self.redirects.follow(send(connection, False), connection, until, send))

    def subscribe(self, *channels: str) -> Subscription:
        return self.topology.any_node().subscribe(*channels)

    @asynccontextmanager
    async def blocking(self) -> AsyncIterator[ClusterBlocking]:
        connections = ClusterBlocking(self)
        try:
            yield connections
        finally:
            await connections.close()

    def slots_on(self, node: Valkey) -> Iterable[int]:
        return self.topology.slots_on(node)

    def by_node(self, keys: Sequence[str]) -> Collection[list[int]]:
        return self.topology.by_node(keys).values()

    def primaries(self) -> list[StandaloneValkey]:
        return list(self.topology.primaries)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.topology.close()

    def start(self, work: Coroutine[Any, Any, Any], context: Context | None = None) -> asyncio.Task[Any]:
        """Run a coroutine in a task that ends with the cluster."""
        task = asyncio.create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def closed(self) -> ConnectionLost:
        return ConnectionLost(f"The connection to {self!r} is closed.", may_have_run=True)
