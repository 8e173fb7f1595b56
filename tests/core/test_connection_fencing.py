"""A caller that lives and loses a connection settles what it began as soon as that is back, and no worker has to.

On a real cluster of three primaries. No worker runs here: what is not settled by its callers stays unsettled.
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
from tests.core.test_outbox import Faulty, assert_effects_equal_facts, never, pending, put, redis_client
from tests.servers import Cluster
from tests.timeouts import TIME_LIMIT_SECONDS, connect_for_test, within_time_limit
from tests.waiting import eventually

__all__ = ["redis_client"]  # a fixture


class Breaking(Faulty):
    """A Valkey whose connection breaks at some of the calls, once that is written and before it is answered."""

    def __init__(self, valkey: Valkey, stops: Collection[int] = ()) -> None:
        super().__init__(valkey, never)
        self.stops, self.taken, self.broken = stops, 0, 0

    async def fcall(self, name: str, keys: Sequence[str], *args: Arg, **how: Any) -> Any:
        self.taken += 1
        answer = asyncio.ensure_future(self._valkey.fcall(name, keys, *args, **how))
        if self.taken in self.stops:
            await asyncio.sleep(0)  # in which it is written
            connection = self._valkey.home(keys[0]).lane(False)  # type: ignore[attr-defined]
            self.broken += connection.connected
            connection.drop()
        return await answer


@pytest.fixture
async def valkey(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Valkey]:
    """One that comes back at once, however often it broke, and is waited for however slow the machine."""
    monkeypatch.setattr(connection_fencing, "KILL_SECONDS", TIME_LIMIT_SECONDS)
    use_layout(Layout.BRACES)
    async with await connect_for_test(cluster.url, backoff=0.005, backoff_most=0.02) as valkey:
        yield valkey
    use_layout(Layout.PLAIN)


async def breaking(valkey: Valkey, *stops: int) -> tuple[Functions, Breaking]:
    await eventually(lambda: all(node.connected for node in valkey.primaries()))  # type: ignore[attr-defined]
    faulty = Breaking(valkey, stops)
    functions = Functions(faulty, [LIBRARY], projection_ms=60_000)  # type: ignore[arg-type]
    await functions.load()
    return functions, faulty


async def test_a_connection_that_breaks_at_any_step_leaves_nothing_to_a_worker(
    valkey: Valkey, redis_client: Any
) -> None:
    functions, counted = await breaking(valkey)
    await put(functions, "b0", "s", "nut", 1)
    steps = counted.taken
    for stop in range(1, steps + 1):
        functions, faulty = await breaking(valkey, stop)
        try:
            await put(functions, f"b{stop}", "s", "nut", 10 + stop)
            assert stop > 1
        except ConnectionLost:
            assert stop == 1, "only who does not know whether the facts have changed is told"
            await functions.outbox.drain()
        assert faulty.broken == 1
        assert_effects_equal_facts(redis_client, {f"b{n}": "s" for n in range(stop + 1)})
    assert steps > 4


async def test_connections_that_break_and_nodes_that_stall_on_hot_owners_leave_every_effect_true(
    valkey: Valkey, redis_client: Any
) -> None:
    chance = random.Random(11)
    homes = {f"b{n}": f"s{n % 2}" for n in range(4)}
    functions, faulty = await breaking(valkey)
    for _ in range(3):
        faulty.stops = {faulty.taken + call for call in (5, 50, 90, 130, 170)}
        boxes = [chance.choice(list(homes)) for _ in range(40)]
        puts = [put(functions, box, homes[box], f"i{n % 5}", n) for n, box in enumerate(boxes)]
        stalls = [asyncio.to_thread(stall, redis_client, BOX_ITEMS(chance.choice(boxes))) for _ in range(2)]
        await asyncio.gather(*puts, *stalls, return_exceptions=True)
        await functions.outbox.drain()
        await eventually(lambda: not pending(redis_client))
        assert_effects_equal_facts(redis_client, homes)
    assert faulty.broken


def stall(redis_client: Any, name: str) -> None:
    """The node of a key does nothing for a moment: what it has not read yet waits, whatever becomes of its sender."""
    redis_client.eval("local n = 0 while n < 3e6 do n = n + 1 end", 1, name)


async def named(connection: Any, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, int]:
    """Another connection to the same server, and its number there. (A server does not end who asks for it.)"""
    reader, writer = await asyncio.open_connection(connection.address.host, connection.address.port)
    writer.write(f"CLIENT SETNAME {name}\r\nCLIENT ID\r\n".encode())
    assert await reader.readline() == b"+OK\r\n"
    return reader, writer, int((await reader.readline())[1:])


async def test_a_connection_that_its_server_still_has_is_ended_there(valkey: Valkey) -> None:
    """As after a cable was pulled: the server has heard nothing of it."""
    connection = valkey.primaries()[0].lane(False)  # type: ignore[attr-defined]
    reader, writer, id = await named(connection, "plaza-lost")
    fenced = FencedConnection(connection, id, "plaza-lost")
    assert await asyncio.gather(*(fenced.kill() for _ in range(3))) == [True] * 3
    async with within_time_limit():
        assert await reader.read() == b""
    writer.close()


async def test_who_may_not_end_connections_leaves_it_to_a_worker() -> None:
    class Forbidden:
        async def ready(self) -> None: ...

        async def ask(self, *command: Arg) -> Any:
            raise ReplyError("NOPERM", "NOPERM this user has no permissions to run the 'client|list' command")

    assert not await FencedConnection(Forbidden(), 7, "plaza-x").kill()


async def test_a_number_that_went_to_somebody_else_is_left_alone(valkey: Valkey) -> None:
    connection = valkey.primaries()[0].lane(False)  # type: ignore[attr-defined]
    reader, writer, id = await named(connection, "somebody-else")
    assert await FencedConnection(connection, id, "plaza-of-a-server-before-its-restart").kill()
    writer.write(b"PING\r\n")
    async with within_time_limit():
        assert await reader.readline() == b"+PONG\r\n"
    writer.close()
