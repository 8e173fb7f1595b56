"""Events of commands: in the same atomic step as source data, in order, each once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from plaza.core import keys as core
from plaza.core.event_streams import SHARDS, all_streams, stream_of
from plaza.core.functions import Functions
from plaza.core.keyspace import Layout, use_layout
from plaza.core.outbox import UpdateTooLate
from plaza.core.valkey import Valkey
from tests.core.ledger import BOX_ITEMS, LIBRARY
from tests.event_reader import read_events
from tests.servers import Cluster
from tests.timeouts import connect_for_test

FAR_FUTURE = str(10**15)


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    functions = Functions(valkey, [LIBRARY])
    await functions.load()
    return functions


@pytest.fixture
async def on_cluster(cluster: Cluster) -> AsyncIterator[Functions]:
    use_layout(Layout.BRACES)
    valkey = await connect_for_test(cluster.url)
    functions = Functions(valkey, [LIBRARY])
    await functions.load()
    yield functions
    await functions.outbox.drain()
    await valkey.close()
    use_layout(Layout.PLAIN)


async def announce(functions: Functions, box: str, count: int = 1, origin: str = "") -> None:
    await functions.run("ledger_announce", [BOX_ITEMS(box)], box, count, origin)


async def numbers(redis_client: Any, box: str) -> list[int]:
    events = await read_events(redis_client, "ledger")
    return [event.data["n"] for event in events if event.subject == box]


async def test_an_event_has_its_fields_when_the_command_returns(functions: Functions, redis_client: Any) -> None:
    await announce(functions, "b1")
    await announce(functions, "b2", origin="import")
    one, two = sorted(await read_events(redis_client, "ledger"), key=lambda event: event.subject)
    assert (one.type, one.subject, one.data, one.origin) == ("box.announced", "b1", {"box": "b1", "n": 1}, "")
    assert (two.subject, two.origin) == ("b2", "import")
    assert one.fields.keys() - {"id"} == {"type", "subject", "time", "data"}
    assert abs(one.time - int(one.entry_id.partition("-")[0])) < 5_000
    assert one.id.startswith("ledger-")
    assert one.id != two.id


async def test_many_events_of_one_command_are_in_order(functions: Functions, redis_client: Any) -> None:
    """More than one call publishes on a cluster."""
    await announce(functions, "b1", 1_200)
    assert await numbers(redis_client, "b1") == list(range(1, 1_201))


async def test_a_busy_owner_publishes_every_event_once(functions: Functions, redis_client: Any) -> None:
    others = [Functions(functions.valkey, [LIBRARY]) for _ in range(2)]  # as other processes have
    await asyncio.gather(*(announce(f, "b1", 2) for _ in range(100) for f in (functions, *others)))
    assert await numbers(redis_client, "b1") == [1, 2] * 300
    assert await redis_client.exists(core.UNPUBLISHED("ledger", "b1")) == 0


async def test_the_events_of_one_owner_are_in_one_shard_and_owners_are_spread(on_cluster: Functions) -> None:
    boxes = [f"b{n}" for n in range(100)]
    await asyncio.gather(*(announce(on_cluster, box, 2) for box in boxes))
    lengths = await on_cluster.valkey.batch([("XLEN", stream.key) for stream in all_streams("ledger")])
    expected = [2 * sum(stream_of("ledger", box).shard == shard for box in boxes) for shard in range(SHARDS)]
    assert lengths == expected
    assert 0 not in lengths


def event(epoch: str, number: int) -> list[str]:
    return [epoch, str(number), "box.announced", "b1", "1", "{}", ""]


async def publish(functions: Functions, deadline: str, *events: list[str]) -> list[str]:
    """Publish events as a caller does; return the ids in the stream."""
    stream = stream_of("ledger", "b1")
    keys = [stream.key, core.PUBLISHED(str(stream.shard), "ledger", "0" * 40)]
    await functions._run("ledger_publish_events", keys, [deadline, *(word for one in events for word in one)])
    return [fields[1] for _, fields in await functions.valkey.call("XRANGE", stream.key, "-", "+")]


async def test_a_shard_drops_what_it_has_and_keeps_the_order(on_cluster: Functions) -> None:
    """A caller that stalled arrives with events that another caller has published with later ones."""
    await publish(on_cluster, FAR_FUTURE, event("a", 1), event("a", 2))
    await publish(on_cluster, FAR_FUTURE, event("a", 1))
    ids = await publish(on_cluster, FAR_FUTURE, event("a", 2), event("a", 5))
    assert ids == ["ledger-a-1", "ledger-a-2", "ledger-a-5"]


async def test_a_node_that_lost_its_latest_writes_loses_no_new_event(on_cluster: Functions) -> None:
    """After a failover the numbers start again, under another epoch; what is late of the old epoch is still dropped."""
    await publish(on_cluster, FAR_FUTURE, event("a", 1), event("a", 7))
    await publish(on_cluster, FAR_FUTURE, event("b", 1))
    ids = await publish(on_cluster, FAR_FUTURE, event("a", 7), event("b", 2))
    assert ids == ["ledger-a-1", "ledger-a-7", "ledger-b-1", "ledger-b-2"]


async def test_a_late_publication_is_rejected(on_cluster: Functions) -> None:
    with pytest.raises(UpdateTooLate):
        await publish(on_cluster, "1000", event("a", 1))
    assert await publish(on_cluster, FAR_FUTURE) == []


async def test_a_restarted_node_starts_another_epoch(on_cluster: Functions, cluster: Cluster) -> None:
    await announce(on_cluster, "b1")
    for node in on_cluster.valkey.primaries():
        await node.call("FUNCTION", "FLUSH")  # as a restart, it loses the state of the library
    await announce(on_cluster, "b1")
    rows = await on_cluster.valkey.call("XRANGE", stream_of("ledger", "b1").key, "-", "+")
    first, second = (fields[1].rsplit("-", 1) for _, fields in rows)
    assert first[0] != second[0]
    assert first[1] == second[1] == "1"
