"""After any stalls and crashes, every projection matches its source data, on a cluster of three primaries.

The callers use `FaultyValkey`, which stops them between any two steps, for a while or permanently.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from plaza.core.event_streams import EventStream, all_streams
from plaza.core.events import Event
from plaza.core.functions import Functions
from plaza.core.keys import PENDING
from plaza.core.keyspace import Layout, use_layout
from plaza.core.outbox import OutboxEntry, UpdateTooLate
from plaza.core.valkey import Arg, ConnectionLost, Overloaded, Valkey, connect
from tests.core.ledger import BOX_ITEMS, BOXES_TOP, LIBRARY, SHELF_BOXES, SHELVES_TOP
from tests.servers import Cluster
from tests.timeouts import connect_for_test, within_time_limit

Step = Callable[[str], Awaitable[None]]


class Crashed(Exception):
    """The caller's process has ended."""


class FaultyValkey:
    """A Valkey whose caller can be stopped before and after every function call."""

    def __init__(self, valkey: Valkey, step: Step) -> None:
        self._valkey, self._step, self.clustered = valkey, step, valkey.clustered

    def __getattr__(self, name: str) -> Any:
        return getattr(self._valkey, name)

    async def fcall(self, name: str, keys: Sequence[str], *args: Arg, **how: Any) -> Any:
        await self._step(f"before {name}")
        reply = await self._valkey.fcall(name, keys, *args, **how)
        await self._step(f"after {name}")
        return reply


class StopAtStep:
    """Stops a caller before its nth step until released; with `crash` permanently."""

    def __init__(self, stop: int, crash: bool = False) -> None:
        self.stop, self.crash, self.taken = stop, crash, 0
        self.arrived, self.released = asyncio.Event(), asyncio.Event()

    async def __call__(self, step: str) -> None:
        self.taken += 1
        if self.crash and self.taken >= self.stop:
            self.arrived.set()
            raise Crashed(step)
        if self.taken == self.stop:
            self.arrived.set()
            await self.released.wait()


@pytest.fixture
async def valkey(cluster: Cluster) -> AsyncIterator[Valkey]:
    use_layout(Layout.BRACES)
    valkey = await connect_for_test(cluster.url)
    yield valkey
    await valkey.close()
    use_layout(Layout.PLAIN)


@pytest.fixture
def redis_client(cluster: Cluster) -> Iterator[Any]:
    with contextlib.closing(cluster.redis_client()) as client:
        yield client


async def functions_stopped_by(valkey: Valkey, step: Step, projection_ms: int = 60_000) -> Functions:
    functions = Functions(FaultyValkey(valkey, step), [LIBRARY], projection_ms=projection_ms)  # type: ignore[arg-type]
    await functions.load()
    return functions


async def put(functions: Functions, box: str, shelf: str, item: str, quantity: int) -> None:
    await functions.run("ledger_put", [BOX_ITEMS(box)], box, shelf, item, quantity)


def assert_projections_match(redis_client: Any, shelf_of: dict[str, str]) -> None:
    """`shelf_of` maps each box to its shelf."""
    totals = {box: sum(map(int, redis_client.hvals(BOX_ITEMS(box)))) for box in shelf_of}
    assert dict(redis_client.zrange(BOXES_TOP(), 0, -1, withscores=True)) == {b: t for b, t in totals.items() if t}
    shelves: dict[str, dict[str, int]] = {}
    for box, shelf in shelf_of.items():
        if redis_client.exists(BOX_ITEMS(box)):
            shelves.setdefault(shelf, {})[box] = totals[box]
    for shelf, boxes in shelves.items():
        assert {b: int(t) for b, t in redis_client.hgetall(SHELF_BOXES(shelf)).items()} == boxes
    ranked = dict(redis_client.zrange(SHELVES_TOP(), 0, -1, withscores=True))
    assert ranked == {shelf: sum(boxes.values()) for shelf, boxes in shelves.items()}
    assert pending_keys(redis_client) == []
    assert_replay_gives_source_data(redis_client, shelf_of)


def assert_replay_gives_source_data(redis_client: Any, boxes: Iterable[str]) -> None:
    """Replaying the events gives the items of each box; none was published twice or is still queued."""
    replayed: dict[str, dict[str, int]] = {box: {} for box in boxes}
    events = [event for stream in all_streams("ledger") for event in read_stream(redis_client, stream)]
    for event in events:
        replayed[event.subject][event.data["item"]] = event.data["quantity"]
    assert replayed == {box: {i: int(q) for i, q in redis_client.hgetall(BOX_ITEMS(box)).items()} for box in boxes}
    assert len({event.id for event in events}) == len(events)
    assert list(redis_client.scan_iter("unpublished:*")) == []


def read_stream(redis_client: Any, stream: EventStream) -> list[Event]:
    return [Event(stream.name, entry_id, fields) for entry_id, fields in redis_client.xrange(stream.key)]


def pending_keys(redis_client: Any) -> list[str]:
    return list(redis_client.scan_iter("pending:*"))


async def no_stop(_: str) -> None:
    return


async def test_a_command_completes_its_projections_before_it_returns(valkey: Valkey, redis_client: Any) -> None:
    functions = await functions_stopped_by(valkey, no_stop)
    await put(functions, "b1", "s1", "nut", 3)
    await put(functions, "b2", "s1", "bolt", 4)
    assert redis_client.zscore(SHELVES_TOP(), "s1") == 7
    assert_projections_match(redis_client, {"b1": "s1", "b2": "s1"})


async def test_two_operations_stopped_at_any_step_leave_the_latest_projection(
    valkey: Valkey, redis_client: Any
) -> None:
    """Two operations on one box, each stopped before each of its steps, released in either order."""
    counted = StopAtStep(stop=-1)
    await put(await functions_stopped_by(valkey, counted), "count", "count", "nut", 1)
    shelf_of = {"count": "count"}

    async def race(first: int, second: int, order: tuple[int, int]) -> None:
        box = f"b{first}-{second}-{order[0]}"
        shelf_of[box] = box
        steps = [StopAtStep(first), StopAtStep(second)]
        tasks = []
        for n, step in enumerate(steps):
            tasks.append(
                asyncio.create_task(put(await functions_stopped_by(valkey, step), box, box, f"item{n}", n + 1))
            )
            await asyncio.wait([tasks[-1], asyncio.ensure_future(step.arrived.wait())], return_when="FIRST_COMPLETED")
        for n in order:
            steps[n].released.set()
            await asyncio.wait([tasks[n]], timeout=0.2)
        await asyncio.gather(*tasks)

    stops = range(1, counted.taken + 1)
    await asyncio.gather(*(race(a, b, order) for a, b in itertools.product(stops, stops) for order in ((0, 1), (1, 0))))
    assert_projections_match(redis_client, shelf_of)


async def test_a_caller_that_crashes_at_any_step_loses_and_doubles_nothing(valkey: Valkey, redis_client: Any) -> None:
    counted = StopAtStep(stop=-1)
    await put(await functions_stopped_by(valkey, counted), "b0", "s", "nut", 1)
    for stop in range(1, counted.taken + 1):
        functions = await functions_stopped_by(valkey, StopAtStep(stop, crash=True), projection_ms=100)
        with pytest.raises(Crashed):
            await put(functions, f"b{stop}", "s", "nut", 10 + stop)
        await functions.outbox.drain()
    await recover_all(valkey)
    assert_projections_match(redis_client, {f"b{n}": "s" for n in range(counted.taken + 1)})


async def test_stalls_and_crashes_on_few_owners_leave_every_projection_correct(
    valkey: Valkey, redis_client: Any
) -> None:
    chance = random.Random(7)
    shelf_of = {f"b{n}": f"s{n % 2}" for n in range(4)}

    def random_faults() -> Step:
        dead = False

        async def step(name: str) -> None:
            nonlocal dead
            dead = dead or chance.random() < 0.03
            if dead:
                raise Crashed(name)
            if chance.random() < 0.10:
                await asyncio.sleep(chance.uniform(0, 0.25))  # sometimes past the deadline of 100 ms

        return step

    for _ in range(4):
        callers = [await functions_stopped_by(valkey, random_faults(), projection_ms=100) for _ in range(60)]
        boxes = [chance.choice(list(shelf_of)) for _ in callers]
        await asyncio.gather(
            *(
                put(c, box, shelf_of[box], f"i{chance.randrange(5)}", n)
                for n, (c, box) in enumerate(zip(callers, boxes, strict=True))
            ),
            return_exceptions=True,
        )
        await asyncio.gather(*(c.outbox.drain() for c in callers))
        await recover_all(valkey)
        assert_projections_match(redis_client, shelf_of)


async def recover_all(valkey: Valkey) -> None:
    """Do what a worker does, once the outbox entries are old enough."""
    worker = await functions_stopped_by(valkey, no_stop, projection_ms=100)
    await asyncio.sleep(0.35)
    for _ in range(10):  # commands performed by a recovery write entries of their own
        if not await worker.outbox_recovery.recover(abandoned_ms=300):
            return
    raise AssertionError("recovery does not end")


async def test_projections_that_return_to_their_owner_end(valkey: Valkey, redis_client: Any) -> None:
    """A box and a shelf of one name share an outbox, as an author and a bookmark of the own post do."""
    functions = await functions_stopped_by(valkey, no_stop)
    async with within_time_limit():
        await asyncio.gather(*(put(functions, "same", "same", f"i{n % 3}", n) for n in range(50)))
    assert_projections_match(redis_client, {"same": "same"})


async def test_a_late_update_is_rejected(valkey: Valkey, redis_client: Any) -> None:
    functions = await functions_stopped_by(valkey, no_stop)
    with pytest.raises(UpdateTooLate):
        await functions._run("ledger_apply", [BOXES_TOP()], ["1000", "4", "ZADD", BOXES_TOP(), "5", "b1"])
    with pytest.raises(UpdateTooLate):
        await functions.outbox.run("ledger_set_total", [SHELF_BOXES("s1")], ["s1", "b1", 5], deadline="1000")
    assert redis_client.exists(BOXES_TOP()) == redis_client.exists(SHELF_BOXES("s1")) == 0


async def test_an_unreadable_entry_does_not_block_others(valkey: Valkey, redis_client: Any) -> None:
    for owner in range(20):
        await valkey.call("HSET", PENDING("gone", owner), "op", "not an entry")
        await valkey.call("SADD", OutboxEntry.for_key("gone", f"x:{{{owner}}}").slot, PENDING("gone", owner))
    functions = await functions_stopped_by(valkey, StopAtStep(3, crash=True), projection_ms=100)
    with pytest.raises(Crashed):
        await put(functions, "b1", "s1", "nut", 3)
    worker = await functions_stopped_by(valkey, no_stop, projection_ms=100)
    await asyncio.sleep(0.35)
    assert await worker.outbox_recovery.recover(abandoned_ms=300) == 1
    assert redis_client.zscore(SHELVES_TOP(), "s1") == 3


async def test_an_entry_from_before_the_clock_was_set_back_is_recovered(valkey: Valkey, redis_client: Any) -> None:
    functions = await functions_stopped_by(valkey, StopAtStep(3, crash=True))
    with pytest.raises(Crashed):
        await put(functions, "b1", "s1", "nut", 3)
    pending = OutboxEntry.for_key("ledger", BOX_ITEMS("b1")).pending
    for operation, text in (await valkey.call("HGETALL", pending)).items():
        if text.startswith("{"):
            entry = json.loads(text)
            await valkey.call("HSET", pending, operation, json.dumps({**entry, "at": entry["at"] + 3_600_000}))
    worker = await functions_stopped_by(valkey, no_stop)
    assert await worker.outbox_recovery.recover() == 1
    assert redis_client.zscore(SHELVES_TOP(), "s1") == 3


async def overloaded_functions(cluster: Cluster) -> Functions:
    """Functions on a connection that soon refuses calls. On a busy machine it takes several tries to open."""
    async with within_time_limit():
        while True:
            with contextlib.suppress(ConnectionLost):
                valkey = await connect(cluster.url, max_in_flight=4, queue_timeout=0.02)
                try:
                    return await functions_stopped_by(valkey, no_stop)
                except ConnectionLost:
                    await valkey.close()


async def test_overloaded_callers_settle_everything_they_started(
    valkey: Valkey, cluster: Cluster, redis_client: Any
) -> None:
    functions = await overloaded_functions(cluster)
    puts = (put(functions, f"b{n % 5}", "s", f"i{n % 7}", n) for n in range(400))
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert {type(result) for result in results} == {type(None), Overloaded}  # some were refused
    await functions.outbox.drain()
    await functions.valkey.close()
    assert_projections_match(redis_client, {f"b{n}": "s" for n in range(5)})


async def test_a_worker_ignores_entries_of_live_callers(valkey: Valkey, redis_client: Any) -> None:
    stop = StopAtStep(3)
    operation = asyncio.create_task(put(await functions_stopped_by(valkey, stop), "b1", "s1", "nut", 3))
    await stop.arrived.wait()
    worker = await functions_stopped_by(valkey, no_stop)
    assert await worker.outbox_recovery.recover() == 0
    assert pending_keys(redis_client)
    stop.released.set()
    await operation
    assert_projections_match(redis_client, {"b1": "s1"})


async def test_a_request_cancelled_at_any_step_still_settles(valkey: Valkey, redis_client: Any) -> None:
    counted = StopAtStep(stop=-1)
    await put(await functions_stopped_by(valkey, counted), "b0", "s1", "nut", 3)
    for step in range(1, counted.taken + 1):
        stop = StopAtStep(step)
        functions = await functions_stopped_by(valkey, stop)
        operation = asyncio.create_task(put(functions, f"b{step}", "s1", "nut", 3))
        await stop.arrived.wait()
        operation.cancel()
        await asyncio.wait([operation])
        stop.released.set()
        await functions.outbox.drain()
        assert operation.cancelled()
    assert_projections_match(redis_client, {f"b{n}": "s1" for n in range(counted.taken + 1)})


async def test_waiting_for_a_popular_name_ends(valkey: Valkey) -> None:
    """Live callers always have some entry with the name."""
    functions, entry = await functions_stopped_by(valkey, no_stop), OutboxEntry.for_key("ledger", BOX_ITEMS("b1"))

    async def write_entries() -> None:
        while True:
            entry_json = {"at": int(time.time() * 1000), "todo": [json.dumps(["on_shelf", "b1", "zoe"])]}
            fields = ("HSET", entry.pending, "op", json.dumps(entry_json))
            await valkey.multi([fields, ("SADD", entry.slot, entry.pending)])
            await asyncio.sleep(0)

    callers = asyncio.create_task(write_entries())
    async with within_time_limit():
        await functions.outbox_recovery.wait_until_settled("zoe", abandoned_ms=200)
    assert not callers.done()
    callers.cancel()
