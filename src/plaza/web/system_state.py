"""The state of what Plaza depends on: replication, cluster, persistence, queues of events, and the disk."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from sqlalchemy import func, select

from plaza.core import keys as core
from plaza.core.errors import Unavailable
from plaza.core.event_streams import all_streams
from plaza.core.keyspace import Key, Layout
from plaza.core.outbox import slot_tags
from plaza.core.sequences import chunks
from plaza.core.sql import Sql
from plaza.core.sql_events import EVENT_OUTBOX
from plaza.core.valkey import Valkey
from plaza.core.valkey.standalone import StandaloneValkey
from plaza.core.valkey_memory import parse_info
from plaza.web.partial_reads import PartialReads

# Slots counted in one batch.
SLOTS_PER_BATCH = 512


class NodeState(Struct, frozen=True):
    """Replication and persistence of a Valkey server. `problem` is empty unless operators should act."""

    address: str
    replicas: int
    slowest_replica_bytes: int | None  # how far it is behind; None without replicas
    persistence: str
    problem: str


class GroupLag(Struct, frozen=True):
    """The events that a consumer group has not handled."""

    stream: str
    group: str
    waiting: int  # not delivered yet
    pending: int  # delivered, not acknowledged


class DiskState(Struct, frozen=True):
    """The file system of the data directory, in bytes."""

    total: int
    free: int


class SystemState(Struct, frozen=True):
    """What the health page shows besides requests."""

    nodes: list[NodeState]
    cluster: str  # empty on one server
    cluster_problem: str
    groups: list[GroupLag]
    sql_outbox: int
    valkey_outbox: int | None  # None on one server, which needs none, or while it cannot be read
    disk: DiskState
    missing: bool  # whether a part could not be read


class SystemStateReader:
    """Reads the state of Valkey, SQL and the disk."""

    def __init__(self, valkey: Valkey, sql: Sql, data_dir: Path, streams: Sequence[str]) -> None:
        self._valkey = valkey
        self._sql = sql
        self._data_dir = data_dir
        self._streams = streams

    async def read(self) -> SystemState:
        """Return the state now. A round trip for each node and for each domain's events; on a cluster 32 more."""
        reads = PartialReads()
        cluster = "" if Key.layout is Layout.PLAIN else await self._cluster_info()
        rows = await self._sql.fetch_all(select(func.count().label("waiting")).select_from(EVENT_OUTBOX))
        usage = await asyncio.to_thread(shutil.disk_usage, self._data_dir)
        return SystemState(
            nodes=await asyncio.gather(*map(_state_of, self._valkey.primaries())),
            cluster=_cluster_text(parse_info(cluster)) if cluster else "",
            cluster_problem=_cluster_problem(parse_info(cluster)) if cluster else "",
            groups=await reads.read(self._groups(), []),
            sql_outbox=int(rows[0].waiting),
            valkey_outbox=await reads.read(self._outbox_owners(), None) if cluster else None,
            disk=DiskState(usage.total, usage.free),
            missing=reads.missing,
        )

    async def _cluster_info(self) -> str:
        """Return what the first node that responds says about the cluster."""
        for node in self._valkey.primaries():
            with suppress(Unavailable):
                return str(await node.call("CLUSTER", "INFO"))
        return "cluster_state:unknown"

    async def _groups(self) -> list[GroupLag]:
        """Return the groups of all streams, those with the most events waiting first."""
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for name in self._streams:
            commands = [("XINFO", "GROUPS", stream.key) for stream in all_streams(name)]
            for groups in await self._valkey.batch(commands, return_errors=True):
                if isinstance(groups, Exception):
                    continue  # the stream has no event yet
                for group in map(_fields, groups):
                    waiting, pending = found.get((name, group["name"]), (0, 0))
                    counted = int(group.get("lag") or 0), int(group["pending"])
                    found[name, group["name"]] = waiting + counted[0], pending + counted[1]
        lags = [GroupLag(*key, *counts) for key, counts in found.items()]
        return sorted(lags, key=lambda lag: (-lag.waiting - lag.pending, lag.stream, lag.group))

    async def _outbox_owners(self) -> int:
        """Return how many owners have outbox entries that are not settled."""
        batches = chunks([core.PENDING_SLOT(tag) for tag in slot_tags()], SLOTS_PER_BATCH)
        counts = [await self._valkey.batch([("SCARD", slot) for slot in batch]) for batch in batches]
        return sum(int(count) for part in counts for count in part)


def _fields(group: Any) -> dict[str, Any]:
    return group if isinstance(group, dict) else dict(zip(group[::2], group[1::2], strict=True))


def node_name(node: Valkey) -> str:
    """Return how the page names a node that does not respond."""
    return f"port {node.address.port}" if isinstance(node, StandaloneValkey) else "the server"


async def _state_of(node: Valkey) -> NodeState:
    """Return the state of a node, also of one that does not respond. One round trip."""
    try:
        return _node_state(parse_info(str(await node.call("INFO"))))
    except Unavailable:
        return NodeState(node_name(node), 0, None, "", "It does not respond.")


def _node_state(info: dict[str, str]) -> NodeState:
    offset = int(info.get("master_repl_offset", 0))
    replicas = [dict(part.partition("=")[::2] for part in text.split(",")) for text in _replicas(info)]
    behind = [offset - int(replica.get("offset", 0)) for replica in replicas]
    offline = [replica for replica in replicas if replica.get("state") != "online"]
    problems = ["A replica is not in sync."] if offline else []
    aof = info.get("aof_enabled") == "1"
    if info.get("aof_last_write_status", "ok") != "ok" or info.get("rdb_last_bgsave_status", "ok") != "ok":
        problems.append("The last write to the disk failed. Check its space and the log of Valkey.")
    return NodeState(
        address=f"port {info['tcp_port']}" if info.get("tcp_port", "0") != "0" else "embedded",
        replicas=len(replicas),
        slowest_replica_bytes=max(behind) if behind else None,
        persistence="append-only file" if aof else "snapshots only",
        problem=" ".join(problems),
    )


def _replicas(info: dict[str, str]) -> list[str]:
    return [value for name, value in info.items() if name.startswith("slave") and name[5:].isdigit()]


def _cluster_text(info: dict[str, str]) -> str:
    return (
        f"{info.get('cluster_state', 'unknown')}, {info.get('cluster_slots_ok', '?')} of 16384 slots ok, "
        f"{info.get('cluster_known_nodes', '?')} nodes"
    )


def _cluster_problem(info: dict[str, str]) -> str:
    is_ok = info.get("cluster_state") == "ok" and info.get("cluster_slots_ok") == "16384"
    return "" if is_ok else "The cluster is not complete: requests for the missing slots fail with 503."
