"""Failovers of a real cluster that lose writes, as a network or a machine that fails can."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import redis

from tests.servers import Cluster
from tests.waiting import eventually


def _offset(client: redis.Redis) -> int:
    return int(client.info("replication")["master_repl_offset"])


@asynccontextmanager
async def lossy_failover(cluster: Cluster) -> AsyncIterator[None]:
    """What the first primary writes in the block is lost: its replica, which takes over, does not get it."""
    primary, replica = cluster.nodes[0], cluster.nodes[cluster.primaries]
    with primary.redis_client() as client, replica.redis_client() as follower:
        await eventually(lambda: _offset(client) == _offset(follower))
        replica.pause()
        client.client_kill_filter(_type="replica")
        yield
        primary.stop(signal.SIGKILL)
        replica.resume()
        follower.execute_command("CLUSTER", "FAILOVER", "TAKEOVER")
