"""After any stalls and deaths, every effect says what the facts say. On a real cluster of three primaries.

The callers here reach Valkey through `Faulty`, which stops them between any two steps: for a while, or for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from plaza.core.functions import Functions
from plaza.core.keys import PENDING
from plaza.core.keyspace import Layout, use_layout
from plaza.core.outbox import OutboxEntry, UpdateTooLate
from plaza.core.valkey import Arg, ConnectionLost, Overloaded, Valkey, connect
from tests.core.ledger import BOX_ITEMS, BOXES_TOP, LIBRARY, SHELF_BOXES, SHELVES_TOP
from tests.servers import Cluster
from tests.timeouts import connect_for_test, within_time_limit

Step = Callable[[str], Awaitable[None]]


class Died(Exception):
    """The caller's process is gone."""


class Faulty:
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


class StepByStep:
    """Stops a caller before its nth step until released; `dies` makes it the last."""

    def __init__(self, stop: int, dies: bool = False) -> None:
        self.stop, self.dies, self.taken = stop, dies, 0
        self.arrived, self.released = asyncio.Event(), asyncio.Event()

    async def __call__(self, step: str) -> None:
        self.taken += 1
        if self.dies and self.taken >= self.stop:
            self.arrived.set()
            raise Died(step)
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


async def caller(valkey: Valkey, step: Step, projection_ms: int = 60_000) -> Functions:
    functions = Functions(Faulty(valkey, step), [LIBRARY], projection_ms=projection_ms)  # type: ignore[arg-type]
    await functions.load()
    return functions


async def put(functions: Functions, box: str, shelf: str, item: str, quantity: int) -> None:
    await functions.run("ledger_put", [BOX_ITEMS(box)], box, shelf, item, quantity)


def assert_effects_equal_facts(redis_client: Any, homes: dict[str, str]) -> None:
    """`homes` says which shelf each box stands on."""
    totals = {box: sum(map(int, redis_client.hvals(BOX_ITEMS(box)))) for box in homes}
    assert dict(redis_client.zrange(BOXES_TOP(), 0, -1, withscores=True)) == {b: t for b, t in totals.items() if t}
    shelves: dict[str, dict[str, int]] = {}
    for box, shelf in homes.items():
        if redis_client.exists(BOX_ITEMS(box)):
            shelves.setdefault(shelf, {})[box] = totals[box]
    for shelf, boxes in shelves.items():
        assert {b: int(t) for b, t in redis_client.hgetall(SHELF_BOXES(shelf)).items()} == boxes
    ranked = dict(redis_client.zrange(SHELVES_TOP(), 0, -1, withscores=True))
    assert ranked == {shelf: sum(boxes.values()) for shelf, boxes in shelves.items()}
    assert pending(redis_client) == []


def pending(redis_client: Any) -> list[str]:
    return list(redis_client.scan_iter("pending:*"))


async def never(_: str) -> None:
    return


async def test_an_operation_settles_its_effects_and_theirs_before_it_answers(valkey: Valkey, redis_client: Any) -> None:
    functions = await caller(valkey, never)
    await put(functions, "b1", "s1", "nut", 3)
    await put(functions, "b2", "s1", "bolt", 4)
    assert redis_client.zscore(SHELVES_TOP(), "s1") == 7
    assert_effects_equal_facts(redis_client, {"b1": "s1", "b2": "s1"})


async def test_whichever_of_two_operations_stops_at_whichever_step_the_later_facts_win(
    valkey: Valkey, redis_client: Any
) -> None:
    """Two operations on one box, each held before each of its steps, released in either order."""
    counted = StepByStep(stop=-1)
    await put(await caller(valkey, counted), "count", "count", "nut", 1)
    homes = {"count": "count"}

    async def race(first: int, second: int, order: tuple[int, int]) -> None:
        box = f"b{first}-{second}-{order[0]}"
        homes[box] = box
        steps = [StepByStep(first), StepByStep(second)]
        tasks = []
        for n, step in enumerate(steps):
            tasks.append(asyncio.create_task(put(await caller(valkey, step), box, box, f"item{n}", n + 1)))
            await asyncio.wait([tasks[-1], asyncio.ensure_future(step.arrived.wait())], return_when="FIRST_COMPLETED")
        for n in order:
            steps[n].released.set()
            await asyncio.wait([tasks[n]], timeout=0.2)
        await asyncio.gather(*tasks)

    stops = range(1, counted.taken + 1)
    await asyncio.gather(*(race(a, b, order) for a, b in itertools.product(stops, stops) for order in ((0, 1), (1, 0))))
    assert_effects_equal_facts(redis_client, homes)


async def test_a_caller_that_dies_at_any_step_loses_nothing_and_doubles_nothing(
    valkey: Valkey, redis_client: Any
) -> None:
    counted = StepByStep(stop=-1)
    await put(await caller(valkey, counted), "b0", "s", "nut", 1)
    for stop in range(1, counted.taken + 1):
        functions = await caller(valkey, StepByStep(stop, dies=True), projection_ms=100)
        with pytest.raises(Died):
            await put(functions, f"b{stop}", "s", "nut", 10 + stop)
        await functions.outbox.drain()
    await recovered(valkey)
    assert_effects_equal_facts(redis_client, {f"b{n}": "s" for n in range(counted.taken + 1)})


async def test_stalls_and_deaths_on_few_hot_owners_leave_every_effect_true(valkey: Valkey, redis_client: Any) -> None:
    chance = random.Random(7)
    homes = {f"b{n}": f"s{n % 2}" for n in range(4)}

    def unlucky() -> Step:
        dead = False

        async def step(name: str) -> None:
            nonlocal dead
            dead = dead or chance.random() < 0.03
            if dead:
                raise Died(name)
            if chance.random() < 0.10:
                await asyncio.sleep(chance.uniform(0, 0.25))  # now and then past the deadline of 100 ms

        return step

    for _ in range(4):
        callers = [await caller(valkey, unlucky(), projection_ms=100) for _ in range(60)]
        boxes = [chance.choice(list(homes)) for _ in callers]
        await asyncio.gather(
            *(
                put(c, box, homes[box], f"i{chance.randrange(5)}", n)
                for n, (c, box) in enumerate(zip(callers, boxes, strict=True))
            ),
            return_exceptions=True,
        )
        await asyncio.gather(*(c.outbox.drain() for c in callers))
        await recovered(valkey)
        assert_effects_equal_facts(redis_client, homes)


async def recovered(valkey: Valkey) -> None:
    """What the worker does, once the notes are old enough to be nobody's."""
    worker = await caller(valkey, never, projection_ms=100)
    await asyncio.sleep(0.35)
    for _ in range(10):  # what a recovery sets off leaves notes of its own, settled on the way
        if not await worker.outbox.recover(abandoned_ms=300):
            return
    raise AssertionError("the notes do not come to an end")


async def test_effects_that_come_back_to_their_owner_come_to_an_end(valkey: Valkey, redis_client: Any) -> None:
    """A box and a shelf of one name share a slot and a note's place, as an author and the own post's bookmark do."""
    functions = await caller(valkey, never)
    async with within_time_limit():
        await asyncio.gather(*(put(functions, "same", "same", f"i{n % 3}", n) for n in range(50)))
    assert_effects_equal_facts(redis_client, {"same": "same"})


async def test_an_effect_that_comes_too_late_is_refused(valkey: Valkey, redis_client: Any) -> None:
    functions = await caller(valkey, never)
    with pytest.raises(UpdateTooLate):
        await functions._run("ledger_apply", [BOXES_TOP()], ["1000", "ZADD", "5", "b1"])
    with pytest.raises(UpdateTooLate):
        await functions.outbox.run("ledger_note_total", [SHELF_BOXES("s1")], ["s1", "b1", 5], deadline="1000")
    assert redis_client.exists(BOXES_TOP()) == redis_client.exists(SHELF_BOXES("s1")) == 0


async def test_a_note_that_cannot_be_settled_keeps_no_other_waiting(valkey: Valkey, redis_client: Any) -> None:
    for owner in range(20):
        await valkey.call("HSET", PENDING("gone", owner), "op", "no note")
        await valkey.call("SADD", OutboxEntry.for_key("gone", f"x:{{{owner}}}").slot, PENDING("gone", owner))
    functions = await caller(valkey, StepByStep(3, dies=True), projection_ms=100)
    with pytest.raises(Died):
        await put(functions, "b1", "s1", "nut", 3)
    worker = await caller(valkey, never, projection_ms=100)
    await asyncio.sleep(0.35)
    assert await worker.outbox.recover(abandoned_ms=300) == 1
    assert redis_client.zscore(SHELVES_TOP(), "s1") == 3


async def impatient(cluster: Cluster) -> Functions:
    """On a connection that soon turns callers away, and gives itself no more time: a busy machine needs several."""
    async with within_time_limit():
        while True:
            with contextlib.suppress(ConnectionLost):
                valkey = await connect(cluster.url, in_flight=4, patience=0.02)
                try:
                    return await caller(valkey, never)
                except ConnectionLost:
                    await valkey.close()


async def test_callers_in_a_crowd_settle_what_they_began_and_leave_nothing_to_a_worker(
    valkey: Valkey, cluster: Cluster, redis_client: Any
) -> None:
    functions = await impatient(cluster)
    puts = (put(functions, f"b{n % 5}", "s", f"i{n % 7}", n) for n in range(400))
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert {type(result) for result in results} == {type(None), Overloaded}  # some were turned away, and told so
    await functions.outbox.drain()
    await functions.valkey.close()
    assert_effects_equal_facts(redis_client, {f"b{n}": "s" for n in range(5)})


async def test_a_worker_leaves_alone_what_a_living_caller_is_doing(valkey: Valkey, redis_client: Any) -> None:
    held = StepByStep(3)
    operation = asyncio.create_task(put(await caller(valkey, held), "b1", "s1", "nut", 3))
    await held.arrived.wait()
    worker = await caller(valkey, never)
    assert await worker.outbox.recover() == 0
    assert pending(redis_client)
    held.released.set()
    await operation
    assert_effects_equal_facts(redis_client, {"b1": "s1"})


async def test_a_cancelled_request_still_settles(valkey: Valkey, redis_client: Any) -> None:
    held = StepByStep(3)
    functions = await caller(valkey, held)
    operation = asyncio.create_task(put(functions, "b1", "s1", "nut", 3))
    await held.arrived.wait()
    operation.cancel()
    await asyncio.wait([operation])
    held.released.set()
    await functions.outbox.drain()
    assert operation.cancelled()
    assert_effects_equal_facts(redis_client, {"b1": "s1"})


async def test_nobody_waits_for_ever_until_a_popular_name_is_not_spoken_of(valkey: Valkey) -> None:
    """One note of a living caller after the other, as a crowd leaves them: never none, and none of them abandoned."""
    functions, note = await caller(valkey, never), OutboxEntry.for_key("ledger", BOX_ITEMS("b1"))
    always = {"at": 10**15, "todo": [json.dumps(["shelved", "b1", "zoe"])]}
    await valkey.multi([("HSET", note.pending, "op", json.dumps(always)), ("SADD", note.slot, note.pending)])
    async with within_time_limit():
        await functions.outbox.wait_until_settled("zoe", abandoned_ms=200)
    assert await valkey.call("HEXISTS", note.pending, "op")  # it was nobody's to take
