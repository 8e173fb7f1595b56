"""Waits for what processes that tests killed have left behind."""

from __future__ import annotations

from plaza.core.functions import Functions
from tests.servers import Cluster, Server
from tests.waiting import eventually


def count_clients(place: Server | Cluster) -> int:
    """Count the clients, which may have sent commands that Valkey has not read."""
    clients = 0
    for node in place.nodes if isinstance(place, Cluster) else [place]:
        with node.redis_client() as client:
            clients += client.info("clients")["connected_clients"]
    return clients


async def wait_for_disconnects(place: Server | Cluster, clients: int) -> None:
    """Wait until at most `clients` are connected. Valkey has then read all commands of the others."""
    await eventually(lambda: count_clients(place) <= clients)


async def recover_all(functions: Functions) -> bool:
    """Recover the entries of killed processes. Returns whether there were none."""
    return not await functions.outbox_recovery.recover(0)
