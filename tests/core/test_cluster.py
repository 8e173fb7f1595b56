"""The connection on a cluster: routing, and calls while slots and primaries move."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from plaza.core.keyspace import Layout, use_layout
from plaza.core.valkey import REQUEST_USAGE, ConnectionLost, ReplyError, RequestUsage, Valkey, connect
from plaza.core.valkey.slots import first_key, key_slot
from tests.core import ledger
from tests.servers import NODE_TIMEOUT_MS, Cluster, Server, running_cluster
from tests.timeouts import connect_for_test, connect_with_retries, within_time_limit
from tests.waiting import eventually as _until

KEYS = [f"k{i}" for i in range(30)]  # enough to be on all three primaries
ECHO = (
    "#!lua name=t\n"
    "server.register_function{function_name='t_get', flags={'no-writes'},"
    " callback=function(keys, args) return redis.call('GET', keys[1]) end}"
)


@pytest.fixture
async def valkey(cluster: Cluster) -> AsyncIterator[Valkey]:
    valkey = await connect_for_test(cluster.url)
    yield valkey
    await valkey.close()


@pytest.fixture(scope="module")
def changing() -> Iterator[Cluster]:
    """A cluster with replicas, whose slots and primaries the tests move."""
    with running_cluster(3, 1) as cluster:
        yield cluster


@pytest.fixture
async def moving(changing: Cluster) -> AsyncIterator[Valkey]:
    await _until(lambda: _agreed(changing))
    valkey = await connect_for_test(changing.url)
    for primary in valkey.primaries():
        await primary.call("FLUSHALL")
    yield valkey
    await valkey.close()


async def test_slots_match_those_of_the_server(valkey: Valkey) -> None:
    keys = ["", "a", "{a}b", "a{}b", "{}", "a{b", "a}b{c}", "{{a}}", "é{ü}", "x" * 500, "post:{1}:likes", "{a}{b}"]
    assert await valkey.batch([["CLUSTER", "KEYSLOT", key] for key in keys]) == [key_slot(key) for key in keys]
    odd = [b"\xff{\xfe}", b"\xff", b"{a}b"]
    assert await valkey.batch([["CLUSTER", "KEYSLOT", key] for key in odd]) == [key_slot(key) for key in odd]
    assert key_slot(7) == key_slot("7")


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (["GET", "k"], "k"),
        ([b"get", b"k"], b"k"),
        ([b"\xff", b"k"], b"k"),  # not UTF-8
        (["XREAD", b"\xff", "STREAMS", "k", "$"], "k"),
        (["PING"], None),
        (["FCALL", "f", 2, "k", "l", "x"], "k"),
        (["FCALL", "f", 0, "x"], None),
        (["EVAL", "return 1", "1", "k"], "k"),
        (["XREADGROUP", "GROUP", "g", "c", "COUNT", 5, "STREAMS", "k", ">"], "k"),
        (["XREAD", "BLOCK", 0, "streams", "k", "$"], "k"),
        (["OBJECT", "ENCODING", "k"], "k"),
        (["ZUNION", 2, "k", "l"], "k"),
        (["BLMPOP", 0, 1, "k", "LEFT"], "k"),
        (["FUNCTION", "LOAD", "x"], None),
    ],
)
def test_the_first_key_of_a_command_is_found(command: list[Any], key: Any) -> None:
    assert first_key(command) == key


async def test_commands_go_to_the_node_of_their_key(valkey: Valkey, cluster: Cluster) -> None:
    for node in cluster.nodes:
        _ask(node, "CONFIG", "RESETSTAT")
    await asyncio.gather(*(valkey.call("SET", key, key) for key in KEYS))
    assert await asyncio.gather(*(valkey.call("GET", key) for key in KEYS)) == KEYS
    with cluster.redis_client() as redis_client:
        assert [redis_client.get(key) for key in KEYS] == KEYS
    for node in cluster.nodes:  # each node was only asked for its own keys
        with node.redis_client() as redis_client:
            assert redis_client.dbsize() > 0
            assert "moved" not in str(redis_client.info("errorstats")).lower()


async def test_a_batch_is_split_by_node_and_its_replies_are_in_order(valkey: Valkey) -> None:
    used = RequestUsage()
    REQUEST_USAGE.set(used)
    assert await valkey.batch([["SET", key, key] for key in KEYS]) == ["OK"] * 30
    assert await valkey.batch([["GET", key] for key in reversed(KEYS)]) == KEYS[::-1]
    assert used.trips == 2
    assert used.seconds > 0
    assert await valkey.batch([["GET", key] for key in KEYS], raw=True) == [key.encode() for key in KEYS]


async def test_a_batch_raises_its_first_error_or_returns_all(valkey: Valkey) -> None:
    commands = [["SET", "k0", "v"], ["LPUSH", "k0", "x"], ["SET", "k1", "v"], ["GET", "k1"]]
    with pytest.raises(ReplyError, match="WRONGTYPE"):
        await valkey.batch(commands)
    answers = await valkey.batch(commands, return_errors=True)
    assert [answers[0], *answers[2:]] == ["OK", "OK", "v"]
    assert answers[1].code == "WRONGTYPE"


async def test_multi_works_in_one_slot_and_fails_across_slots(valkey: Valkey) -> None:
    assert await valkey.multi([["SET", "{a}x", 1], ["INCR", "{a}y"], ["GET", "{a}x"]]) == ["OK", 1, "1"]
    with pytest.raises(ReplyError, match="one slot") as caught:
        await valkey.multi([["SET", "a", 1], ["SET", "b", 1]])
    assert caught.value.code == "CROSSSLOT"
    assert await valkey.call("EXISTS", "a") == 0


async def test_functions_are_on_every_primary_and_routed_by_their_first_key(valkey: Valkey) -> None:
    assert len(valkey.primaries()) == 3
    for primary in valkey.primaries():
        await primary.call("FUNCTION", "LOAD", ECHO)
    for key in KEYS:
        await valkey.call("SET", key, key)
        assert await valkey.fcall("t_get", [key]) == key
        assert await valkey.fcall("t_get", [key], read_only=True) == key


async def test_messages_of_one_node_reach_subscribers_of_another(valkey: Valkey) -> None:
    async with valkey.subscribe("news") as messages, within_time_limit():
        for n, primary in enumerate(valkey.primaries()):
            # A message may be lost while the nodes still connect to each other, so it is sent again.
            publisher = asyncio.create_task(_repeatedly(primary, "PUBLISH", "news", n))
            while await anext(messages) != ("news", str(n)):
                pass
            publisher.cancel()


async def test_blocking_reads_go_to_the_node_of_their_key(valkey: Valkey) -> None:
    async with valkey.blocking() as alone, within_time_limit():
        for key in KEYS[:6]:
            waiting = asyncio.create_task(alone.call("BLPOP", key, 30))
            await asyncio.sleep(0.01)
            await valkey.call("RPUSH", key, "x")
            assert await waiting == [key, "x"]


async def test_every_node_sends_invalidations_of_tracked_reads(valkey: Valkey) -> None:
    news: list[str] = []
    valkey.on_invalidate(lambda keys: news.extend(keys or ["everything"]))
    await valkey.batch([["SET", key, 0] for key in KEYS])
    assert await asyncio.gather(*(valkey.tracked("GET", key) for key in KEYS)) == ["0"] * 30
    await valkey.batch([["SET", key, 1] for key in KEYS])
    await _until(lambda: len(news) == 30)
    assert sorted(news) == sorted(KEYS)


async def test_commands_forbidden_on_a_shared_connection_are_not_sent(valkey: Valkey) -> None:
    for harm in (["SUBSCRIBE", "news"], ["multi"], ["XREAD", "BLOCK", "0", "STREAMS", "k", "$"]):
        with pytest.raises(ReplyError, match="shared connection"):
            await valkey.call(*harm)
        with pytest.raises(ReplyError, match="shared connection"):
            await valkey.batch([["PING"], harm])
        with pytest.raises(ReplyError, match="shared connection"):
            await valkey.multi([harm])


async def test_a_moved_slot_is_followed_and_remembered(moving: Valkey, changing: Cluster) -> None:
    await moving.call("SET", "k0", "v")
    await moving.batch([["SET", key, key] for key in KEYS[1:]])
    with Moved(changing, "k0") as move:
        move.all()
        used = RequestUsage()
        REQUEST_USAGE.set(used)
        assert await moving.call("GET", "k0") == "v"
        assert used.trips == 2
        assert await moving.call("GET", "k0") == "v"
        assert used.trips == 3  # the second time without a redirection
    answers = await moving.batch(
        [["GET", key] for key in KEYS]
    )  # it has moved back, which the client does not know yet
    assert answers == ["v", *KEYS[1:]]


@pytest.fixture
async def boxes_on_one_node(moving: Valkey) -> AsyncIterator[tuple[Functions, list[str]]]:
    """Owners whose queries and updates go to their node in one call."""
    use_layout(Layout.BRACES)
    functions = Functions(moving, [ledger.LIBRARY])
    await functions.load()
    items = [ledger.BOX_ITEMS(f"b{n}") for n in range(30)]
    items = [items[i] for i in max(moving.by_node(items), key=len)]
    await moving.batch([("HSET", key, "nut", n) for n, key in enumerate(items)])
    yield functions, items
    use_layout(Layout.PLAIN)


@pytest.mark.parametrize("finished", [True, False])
async def test_queries_of_many_owners_reach_one_whose_slot_moves(
    boxes_on_one_node: tuple[Functions, list[str]], changing: Cluster, finished: bool
) -> None:
    functions, items = boxes_on_one_node
    with Moved(changing, items[-1]) as move:
        move.some(items[-1])  # the source still serves the slot, without this key
        if finished:
            move.all()
        totals = await functions.query_each("ledger_total", [[key] for key in items])
    assert totals == [str(n) for n in range(len(items))]


@pytest.mark.parametrize("finished", [True, False])
async def test_updates_of_many_keys_reach_one_whose_slot_moves(
    boxes_on_one_node: tuple[Functions, list[str]], moving: Valkey, changing: Cluster, finished: bool
) -> None:
    functions, items = boxes_on_one_node
    deadline, updates = str(time.time_ns() // 10**6 + 60_000), [["HSET", key, "bolt", "1"] for key in items]
    with Moved(changing, items[-1]) as move:
        move.some(items[-1])
        if finished:
            move.all()
        await functions.outbox._apply_on_node("ledger", deadline, updates)
    assert await moving.batch([("HGET", key, "bolt") for key in items]) == ["1"] * len(items)


async def test_multi_and_raw_follow_a_moved_slot(moving: Valkey, changing: Cluster) -> None:
    await moving.call("SET", "k0", "v")
    with Moved(changing, "k0") as move:
        move.all()
        assert await moving.multi([["SET", "k0", "w"], ["GET", "k0"]]) == ["OK", "w"]
    assert await moving.call("GET", "k0", raw=True) == b"w"


async def test_a_migrating_slot_is_read_on_both_nodes(moving: Valkey, changing: Cluster) -> None:
    await moving.batch([["SET", "{a}x", 1], ["SET", "{a}y", 2]])
    with Moved(changing, "{a}x") as move:
        move.some("{a}x")  # x has moved, y has not; the slot has not
        assert await moving.call("GET", "{a}x") == "1"
        assert await moving.call("GET", "{a}y") == "2"
        assert await moving.batch([["GET", "{a}x"], ["GET", "{a}y"], ["GET", "{a}x"]]) == ["1", "2", "1"]
        assert await moving.multi([["INCR", "{a}x"], ["GET", "{a}x"]]) == [2, "2"]
        assert await moving.call("INCR", "{a}x", raw=True) == 3
        # A command with keys on both nodes fails until they are on one: the wait is bounded.
        both = asyncio.ensure_future(moving.call("MGET", "{a}x", "{a}y"))
        await asyncio.sleep(0.1)
        assert not both.done()
        move.some("{a}y")
        assert await both == ["3", "2"]


async def test_closing_fails_calls_that_wait_for_a_slot(changing: Cluster) -> None:
    await _until(lambda: _agreed(changing))
    valkey = await connect_for_test(changing.url)
    await valkey.batch([["SET", "{a}x", 1], ["SET", "{a}y", 2]])
    with Moved(changing, "{a}x") as move:
        move.some("{a}x")
        both = ["MGET", "{a}x", "{a}y"]  # one on each node: TRYAGAIN
        waiting = [asyncio.ensure_future(valkey.call(*both)), asyncio.ensure_future(valkey.batch([both, ["PING"]]))]
        await asyncio.sleep(0.1)
        assert not any(call.done() for call in waiting)
        await valkey.close()
        async with within_time_limit():
            answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(answer, ConnectionLost) for answer in answers)


async def test_a_key_of_a_migrating_slot_is_not_cached(moving: Valkey, changing: Cluster) -> None:
    cached: dict[str, str] = {}

    def forget(keys: list[str] | None) -> None:
        for key in list(cached) if keys is None else keys:
            cached.pop(key, None)

    moving.on_invalidate(forget)
    await moving.call("SET", "{a}x", 1)
    with Moved(changing, "{a}x") as move:
        move.some("{a}x")
        assert await moving.tracked("GET", "{a}x", store=lambda reply: cached.setdefault("{a}x", reply)) == "1"
        assert cached == {}


async def test_a_planned_failover_fails_no_call(moving: Valkey, changing: Cluster) -> None:
    await _until(lambda: _replicated(changing))
    before = _primary_of(changing, "k0")
    port = _ask(before, "INFO", "replication")["slave0"]["port"]
    replica = next(node for node in changing.nodes if node.port == port)
    news: list[Any] = []
    moving.on_invalidate(news.append)
    await moving.tracked("GET", "k0")
    _ask(replica, "CLUSTER", "FAILOVER")
    done = 0
    while _primary_of(changing, "k0") is before or done < 50:
        done += 1
        assert done < 2000
        if done % 500 == 0:  # a replica that was not ready gives up, so try again
            _ask(replica, "CLUSTER", "FAILOVER")
        assert await moving.call("INCR", "k0") == done
        assert (await moving.batch([["GET", "k0"], ["GET", "k1"]]))[0] == str(done)
        await asyncio.sleep(0.01)
    assert None in news  # another node tracks the keys now


async def test_libraries_are_on_the_replica_that_takes_over(moving: Valkey, changing: Cluster) -> None:
    use_layout(Layout.BRACES)
    try:
        functions = Functions(moving, [ledger.LIBRARY])
        await functions.load()
        await _until(lambda: _replicated(changing))
        box = ledger.BOX_ITEMS("b1")
        before = _primary_of(changing, box)
        port = _ask(before, "INFO", "replication")["slave0"]["port"]
        replica = next(node for node in changing.nodes if node.port == port)
        await functions.run("ledger_put", [box], "b1", "s1", "nut", 3)
        await _until(lambda: _replicated(changing))
        asked = -math.inf

        def taken_over() -> bool:
            nonlocal asked
            if time.monotonic() - asked > 10:  # without votes it gives up after 5 s, so try again
                asked = time.monotonic()
                with contextlib.suppress(
                    redis.ResponseError
                ):  # it is a primary already, and the others do not know yet
                    _ask(replica, "CLUSTER", "FAILOVER", "FORCE")
            return _primary_of(changing, box) is not before

        await _until(taken_over)
        assert await functions.run("ledger_put", [box], "b1", "s1", "bolt", 4) == "7"
        assert await moving.call("ZSCORE", ledger.SHELVES_TOP(), "s1") == 7
    finally:
        use_layout(Layout.PLAIN)


async def test_a_dead_primary_is_replaced_in_bounded_time(moving: Valkey, changing: Cluster) -> None:
    await moving.batch([["SET", key, key] for key in KEYS])
    await _until(lambda: _replicated(changing))
    dead = _primary_of(changing, "k0")
    here = [key for key in KEYS if _primary_of(changing, key) is dead]
    there = [key for key in KEYS if key not in here]
    async with await connect_with_retries(changing.url, queue_timeout=1) as valkey, within_time_limit():
        await valkey.batch([["GET", key] for key in KEYS])
        news: list[Any] = []
        valkey.on_invalidate(news.append)
        dead.stop(signal.SIGKILL)

        assert await valkey.batch([["GET", key] for key in there]) == there  # other nodes are not affected
        with pytest.raises(ConnectionLost):
            await valkey.call("GET", "k0")
        with pytest.raises(ConnectionLost) as alone:
            await valkey.call("GET", "k0")
        with pytest.raises(ConnectionLost) as together:
            await valkey.batch([["GET", "k0"], ["GET", there[0]]])
        assert not alone.value.may_have_run
        assert together.value.may_have_run  # its other part ran

        for node in changing.nodes:  # until here no node considers it dead, however slow the test is
            if node is not dead:
                _ask(node, "CONFIG", "SET", "cluster-node-timeout", 1000)
        assert await _eventually(lambda: valkey.call("GET", "k0")) == "k0"
        assert await valkey.batch([["GET", key] for key in KEYS]) == KEYS
        assert len(valkey.primaries()) == 3
        assert None in news  # tracked keys may have changed meanwhile
    dead.start()
    for node in changing.nodes:
        _ask(node, "CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MS)
    await _until(lambda: _replicated(changing))


@settings(max_examples=20)
@given(st.lists(st.sampled_from(KEYS), max_size=60))
def test_any_batch_returns_its_replies_in_order(session_cluster: Cluster, keys: list[str]) -> None:
    async def scenario() -> None:
        valkey = await connect_for_test(session_cluster.url)
        try:
            commands = [["SET", key, f"{key}={i}", "GET"] for i, key in enumerate(keys)]
            await valkey.batch([["DEL", key] for key in KEYS])
            last: dict[str, str] = {}
            expected = [(last.get(key), last.update({key: f"{key}={i}"}))[0] for i, key in enumerate(keys)]
            assert await valkey.batch(commands) == expected
        finally:
            await valkey.close()

    asyncio.run(scenario())


async def test_an_unreachable_cluster_fails_at_once() -> None:
    with pytest.raises(ConnectionLost, match=r"No node of the Valkey cluster at 127.0.0.1:1, 127.0.0.1:2 answers\."):
        await connect("valkey+cluster://127.0.0.1:1,127.0.0.1:2", queue_timeout=0.2)


class Moved:
    """Moves the slot of a key to the next primary, and back at the end."""

    def __init__(self, cluster: Cluster, key: str) -> None:
        self.cluster = cluster
        self.slot = key_slot(key)
        self.source = _primary_of(cluster, key)
        primaries = _primaries(cluster)
        self.target = primaries[(primaries.index(self.source) + 1) % 3]

    def __enter__(self) -> Moved:
        self._between(self.source, self.target)
        return self

    def _between(self, source: Server, target: Server) -> None:
        _ask(target, "CLUSTER", "SETSLOT", self.slot, "IMPORTING", _ask(source, "CLUSTER", "MYID"))
        _ask(source, "CLUSTER", "SETSLOT", self.slot, "MIGRATING", _ask(target, "CLUSTER", "MYID"))

    def some(self, *keys: str) -> None:
        self._migrate(self.source, self.target, *keys)

    def all(self) -> None:
        self._finish(self.source, self.target)

    def __exit__(self, *error: object) -> None:
        if _primary_of(self.cluster, slot=self.slot) is self.source:
            self.all()
        self._between(self.target, self.source)
        self._finish(self.target, self.source)

    def _finish(self, source: Server, target: Server) -> None:
        keys = _ask(source, "CLUSTER", "GETKEYSINSLOT", self.slot, 100)
        self._migrate(source, target, *keys)
        owner = _ask(target, "CLUSTER", "MYID")
        for node in (target, source):
            _ask(node, "CLUSTER", "SETSLOT", self.slot, "NODE", owner)

    def _migrate(self, source: Server, target: Server, *keys: str) -> None:
        if keys:
            _ask(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)


def _ask(server: Server, *command: Any) -> Any:
    with server.redis_client() as client:
        return client.execute_command(*command)


def _primaries(cluster: Cluster) -> list[Server]:
    ports = {row[2][1] for row in _table(cluster)}
    return [node for node in cluster.nodes if node.port in ports]


def _primary_of(cluster: Cluster, key: str = "", slot: int | None = None) -> Server:
    slot = key_slot(key) if slot is None else slot
    [port] = [row[2][1] for row in _table(cluster) if row[0] <= slot <= row[1]]
    return next(node for node in cluster.nodes if node.port == port)


def _table(cluster: Cluster) -> Any:
    alive = next(node for node in cluster.nodes if node.process is not None and node.process.poll() is None)
    return _ask(alive, "CLUSTER", "SLOTS")


def _agreed(cluster: Cluster) -> bool:
    """Whether all nodes agree on the slots: they learn of a move a moment later."""
    tables = [sorted((row[0], row[1], row[2][1]) for row in _ask(node, "CLUSTER", "SLOTS")) for node in cluster.nodes]
    return all(table == tables[0] for table in tables)


def _replicated(cluster: Cluster) -> bool:
    """Whether every primary has an up-to-date replica."""
    infos = [_ask(node, "INFO", "replication") for node in _primaries(cluster)]
    return all(
        info["connected_slaves"] == 1
        and info["slave0"]["state"] == "online"
        and info["slave0"]["offset"] == info["master_repl_offset"]
        for info in infos
    )


async def _repeatedly(valkey: Valkey, *command: Any) -> None:
    while True:
        await valkey.call(*command)
        await asyncio.sleep(0.05)


async def _eventually(ask: Callable[[], Awaitable[Any]]) -> Any:
    while True:
        with contextlib.suppress(Unavailable, ReplyError):
            return await ask()
        await asyncio.sleep(0.05)
