"""The nodes of a cluster, and which node serves each slot.

The table of slots is used until a node contradicts it. A MOVED reply corrects one slot at once and triggers a reload of
the whole table, and so does a broken connection.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextvars import Context
from typing import Any

from plaza.core.errors import Unavailable
from plaza.core.valkey.address import Address
from plaza.core.valkey.calls import Arg, ConnectionOptions, ReplyError
from plaza.core.valkey.client import InvalidationListeners
from plaza.core.valkey.connection import OnErrorReply
from plaza.core.valkey.slots import SLOTS, key_slot
from plaza.core.valkey.standalone import StandaloneValkey

# The shortest time between two reloads of the table: normally, and while a primary is unavailable.
_RELOAD_SECONDS = 0.05
_RELOAD_WHILE_DOWN_SECONDS = 0.3

StartTask = Callable[[Coroutine[Any, Any, Any], Context | None], asyncio.Task[Any]]


class ClusterTopology:
    """Knows the nodes and the slots, and reloads them when they change."""

    def __init__(
        self,
        seeds: Sequence[Address],
        options: ConnectionOptions,
        listeners: InvalidationListeners,
        start_task: StartTask,
        on_error_reply: OnErrorReply,
    ) -> None:
        self.seeds = list(seeds)
        self.primaries: list[StandaloneValkey] = []
        self._options = options
        self._listeners = listeners
        self._start_task = start_task
        self._on_error_reply = on_error_reply
        self._known: list[Address] = []  # every node of the latest table, also replicas
        self._nodes: dict[tuple[str, int], StandaloneValkey] = {}
        self._slots: list[StandaloneValkey | None] = [None] * SLOTS
        self._changed = asyncio.Event()

    def home(self, key: Arg | None) -> StandaloneValkey:
        """Return the node of a key; any node for None."""
        return self.any_node() if key is None else self.node_of_slot(key_slot(key))

    def by_node(self, keys: Iterable[Arg | None]) -> dict[StandaloneValkey, list[int]]:
        """Return the indexes of keys by their nodes."""
        nodes: dict[StandaloneValkey, list[int]] = {}
        for i, key in enumerate(keys):
            nodes.setdefault(self.home(key), []).append(i)
        return nodes

    def node_of_slot(self, slot: int) -> StandaloneValkey:
        # A node that does not serve the slot replies with the right node, or that no node serves it.
        return self._slots[slot] or self.any_node()

    def slots_on(self, node: object) -> Iterator[int]:
        """Yield the slots that a node serves."""
        return (slot for slot, server in enumerate(self._slots) if server is node)

    def any_node(self) -> StandaloneValkey:
        connected = [server for server in self.primaries if server.connected]
        return random.choice(connected or self.primaries)

    def node(self, address: Address) -> StandaloneValkey:
        """Return the node at an address, connecting to it if it is new."""
        place = (address.host, address.port)
        if place not in self._nodes:
            server = StandaloneValkey(
                address, self._options, on_error_reply=self._on_error_reply, on_down=self._changed.set
            )
            server.on_invalidate(self._listeners.notify)
            self._nodes[place] = server
        return self._nodes[place]

    def move_slot(self, slot: int, server: StandaloneValkey) -> None:
        """Record a MOVED reply."""
        self._slots[slot] = server
        self._changed.set()

    def reload_soon(self) -> None:
        self._changed.set()

    async def watch(self) -> None:
        """Reload the table after every change, and regularly while a primary is unavailable."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            loaded = await self.load()
            if loaded and all(server.connected for server in self.primaries):
                await asyncio.sleep(_RELOAD_SECONDS)
            else:
                await asyncio.sleep(_RELOAD_WHILE_DOWN_SECONDS * random.uniform(0.5, 1))
                self._changed.set()

    async def load(self) -> bool:
        """Read the table of slots from the first node that answers. Returns whether one did."""
        known = {(a.host, a.port): a for a in (*(s.address for s in self.primaries), *self._known, *self.seeds)}
        nodes = sorted(map(self.node, known.values()), key=lambda server: (not server.connected, random.random()))
        for server in nodes:
            try:
                rows = await server.call("CLUSTER", "SLOTS", timeout=self._options.connect_timeout)
            except (ReplyError, Unavailable):
                continue
            if rows:
                self._use(sorted(rows, key=lambda row: int(row[0])), server.address)
                return True
        return False

    def _use(self, rows: list[list[Any]], source: Address) -> None:
        slots: list[StandaloneValkey | None] = [None] * SLOTS
        primaries: list[StandaloneValkey] = []
        self._known = []
        for first, last, *nodes in rows:
            addresses = [source.at(node[0] or source.host, node[1]) for node in nodes]
            self._known += addresses
            server = self.node(addresses[0])
            slots[first : last + 1] = [server] * (last + 1 - first)
            if server not in primaries:
                primaries.append(server)
        changed = slots != self._slots
        self._slots, self.primaries = slots, primaries
        for place in [place for place, server in self._nodes.items() if server not in primaries]:
            self._start_task(self._retire(self._nodes.pop(place)), Context())
        if changed:
            # The node that tracked a key may not be the one that sees its next change.
            self._listeners.notify(None)

    async def _retire(self, server: StandaloneValkey) -> None:
        """Close a node that no longer has slots, after its calls have ended."""
        try:
            await asyncio.sleep(self._options.timeout)
        finally:
            await server.close()

    async def close(self) -> None:
        await asyncio.gather(*(node.close() for node in self._nodes.values()))
