"""Commands that wait, on a cluster: a connection of one's own to each node that one of them belongs to."""

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
    """A connection of one's own to whichever node a command belongs to."""

    def __init__(self, cluster: ClusterValkey) -> None:
        self._cluster = cluster
        self._alone: dict[tuple[str, int], DedicatedConnection] = {}

    async def call(self, *command: Arg, timeout: float | None = None) -> Any:
        def again(connection: Connection, asking: bool) -> Awaitable[Any]:
            # Without ASKING: what waits for a slot on the move tries again until it has moved.
            return self._at(connection.address).call(*command, timeout=timeout)

        connection = self._cluster.home(first_key(command)).lane(False)
        return await self._cluster.insist(again(connection, False), connection, self._cluster.until(timeout), again)

    def _at(self, address: Address) -> DedicatedConnection:
        place = (address.host, address.port)
        if place not in self._alone:
            self._alone[place] = DedicatedConnection(Connection(address, self._cluster.options), pack)
        return self._alone[place]

    async def close(self) -> None:
        for alone in self._alone.values():
            await alone.close()
