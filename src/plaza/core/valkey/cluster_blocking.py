"""Blocking commands on a cluster: a dedicated connection to each node that they need."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from plaza.core.valkey.address import Address
from plaza.core.valkey.calls import Arg
from plaza.core.valkey.connection import Connection, pack
from plaza.core.valkey.dedicated import DedicatedConnection
from plaza.core.valkey.slots import first_key

if TYPE_CHECKING:
    from plaza.core.valkey.cluster import ClusterValkey


class ClusterBlocking:
    """Dedicated connections to the nodes of a cluster, chosen by each command's key."""

    def __init__(self, cluster: ClusterValkey) -> None:
        self._cluster = cluster
        self._connections: dict[tuple[str, int], DedicatedConnection] = {}

    async def call(self, *command: Arg, timeout: float | None = None) -> Any:
        def send(connection: Connection, asking: bool) -> Awaitable[Any]:
            # Without ASKING: a blocking command on a migrating slot retries until the slot has moved.
            return self._connection_to(connection.address).call(*command, timeout=timeout)

        connection = self._cluster.topology.home(first_key(command)).connection(False)
        until = self._cluster.options.until(timeout)
        return await self._cluster.redirects.follow(send(connection, False), connection, until, send)

    def _connection_to(self, address: Address) -> DedicatedConnection:
        node = (address.host, address.port)
        if node not in self._connections:
            self._connections[node] = DedicatedConnection(Connection(address, self._cluster.options), pack)
        return self._connections[node]

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()
