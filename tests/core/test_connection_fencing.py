"""A caller that loses a connection settles its operations as soon as it is connected again, without a worker.

On a cluster of three primaries. No worker runs here: what the callers do not settle stays unsettled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

import pytest

from plaza.core.functions import Functions
from plaza.core.keyspace import Layout, use_layout
from plaza.core.valkey import Arg, ConnectionLost, ReplyError, Valkey, connection_fencing
from plaza.core.valkey.connection_fencing import FencedConnection
from tests.core.ledger import BOX_ITEMS, LIBRARY
from tests.core.test_outbox import FaultyValkey, assert_projections_match, no_stop, pending_keys, put, redis_client
from tests.servers import Cluster
from tests.timeouts import TIME_LIMIT_SECONDS, connect_for_test, within_time_limit
from tests.waiting import eventually

__all__ = ["redis_client"]  # a fixture


class BreakingValkey(FaultyValkey):
    """Breaks the connection at some calls, after the call is written and before its reply."""

    def __init__(self, valkey: Valkey, stops: Collection[int] = ()) -> None:
        super().__init__(valkey, no_stop)
        self.stops, self.calls, self.broken = stops, 0, 0

    async def fcall(self, name: str, keys: Sequence[str], *args: Arg, **how: Any) -> Any:
        self.calls += 1
        reply = asyncio.ensure_future(self._valkey.fcall(name, keys, *args, **how))
        if self.calls in self.stops:
            await asyncio.sleep(0)  # now it is written
            connection = self._valkey.topology.home(keys[0]).connection(False)  # type: ignore[attr-defined]
            self.broken += connection.connected
            connection.drop()
        return await reply


@pytest.fixture
async def valkey(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Valkey]:
    """A connection that reconnects at once, however often it breaks."""
    monkeypatch.setattr(connection_fencing, "KILL_SECONDS", TIME_LIMIT_SECONDS)
    use_layout(Layout.BRACES)
    async with await connect_for_test(cluster.url, backoff=0.005, max_backoff=0.02) as valkey:
        yield valkey
    use_layout(Layout.PLAIN)


async def breaking_functions(valkey: Valkey, *stops: int) -> tuple[Functions, BreakingValkey]:
    await eventually(lambda: all(node.connected for node in valkey.primaries()))  # type: ignore[attr-defined]
    faulty = BreakingValkey(valkey, stops)
    functions = Functions(faulty, [LIBRARY], projection_ms=60_000)  # type: ignore[arg-type]
    await functions.load()
    return functions, faulty


async def test_a_connection_that_breaks_at_any_step_needs_no_worker(valkey: Valkey, redis_client: Any) -> None:
    functions, counted = await breaking_functions(valkey)
    await put(functions, "b0", "s", "nut", 1)
    steps = counted.calls
    for stop in range(1, steps + 1):
        functions, faulty = await breaking_functions(valkey, stop)
        try:
            await put(functions, f"b{stop}", "s", "nut", 10 + stop)
            assert stop > 1
        except ConnectionLost:
            assert stop == 1, "only the command itself fails, since it may not have run"
            await functions.outbox.drain()
        assert faulty.broken == 1
        assert_projections_match(redis_client, {f"b{n}": "s" for n in range(stop + 1)})
    assert steps > 4


async def test_broken_connections_and_stalled_nodes_leave_every_projection_correct(
    valkey: Valkey, redis_client: Any
) -> None:
    chance = random.Random(11)
    shelf_of = {f"b{n}": f"s{n % 2}" for n in range(4)}
    functions, faulty = await breaking_functions(valkey)
    for _ in range(3):
        faulty.stops = {faulty.calls + call for call in (5, 50, 90, 130, 170)}
        boxes = [chance.choice(list(shelf_of)) for _ in range(40)]
        puts = [put(functions, box, shelf_of[box], f"i{n % 5}", n) for n, box in enumerate(boxes)]
        stalls = [asyncio.to_thread(stall, redis_client, BOX_ITEMS(chance.choice(boxes))) for _ in range(2)]
        await asyncio.gather(*puts, *stalls, return_exceptions=True)
        await functions.outbox.drain()
        await eventually(lambda: not pending_keys(redis_client))
        assert_projections_match(redis_client, shelf_of)
    assert faulty.broken


def stall(redis_client: Any, name: str) -> None:
    """Block the node of a key for a moment, so that unread commands wait there."""
    redis_client.eval("local n = 0 while n < 3e6 do n = n + 1 end", 1, name)


async def open_named_connection(connection: Any, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, int]:
    """Open another connection to the same server and return its client id. CLIENT KILL skips the caller's own."""
    reader, writer = await asyncio.open_connection(connection.address.host, connection.address.port)
    writer.write(f"CLIENT SETNAME {name}\r\nCLIENT ID\r\n".encode())
    assert await reader.readline() == b"+OK\r\n"
    return reader, writer, int((await reader.readline())[1:])


async def test_a_connection_that_the_server_still_has_is_killed(valkey: Valkey) -> None:
    """As after a pulled cable: the server does not know that the connection broke."""
    connection = valkey.primaries()[0].connection(False)  # type: ignore[attr-defined]
    reader, writer, id = await open_named_connection(connection, "plaza-lost")
    fenced = FencedConnection(connection, id, "plaza-lost")
    assert await asyncio.gather(*(fenced.kill() for _ in range(3))) == [True] * 3
    async with within_time_limit():
        assert await reader.read() == b""
    writer.close()


async def test_without_permission_to_kill_connections_a_worker_recovers() -> None:
    class ConnectionWithoutPermission:
        async def ready(self) -> None: ...

        async def send_unchecked(self, *command: Arg) -> Any:
            raise ReplyError("NOPERM", "NOPERM this user has no permissions to run the 'client|list' command")

    assert not await FencedConnection(ConnectionWithoutPermission(), 7, "plaza-x").kill()


async def test_a_client_id_that_now_belongs_to_another_connection_is_not_killed(valkey: Valkey) -> None:
    connection = valkey.primaries()[0].connection(False)  # type: ignore[attr-defined]
    reader, writer, id = await open_named_connection(connection, "another-client")
    assert await FencedConnection(connection, id, "plaza-of-a-server-before-its-restart").kill()
    writer.write(b"PING\r\n")
    async with within_time_limit():
        assert await reader.readline() == b"+PONG\r\n"
    writer.close()
