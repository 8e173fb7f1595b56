"""The shared connection on a real server: commands, replies and errors."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from plaza.core.errors import Unavailable
from plaza.core.valkey import REQUEST_USAGE, NotReady, ReplyError, RequestUsage, Valkey
from tests.servers import Server
from tests.timeouts import connect_for_test


@pytest.fixture
async def valkey(server: Server) -> AsyncIterator[Valkey]:
    async with await connect_for_test(server.url) as valkey:
        yield valkey


async def test_a_command_returns_text_in_resp3_types(valkey: Valkey) -> None:
    assert await valkey.call("HSET", "h", "a", 1, b"b", 2.5) == 2
    assert await valkey.call("HGETALL", "h") == {"a": "1", "b": "2.5"}
    assert await valkey.call("GET", "absent") is None
    assert await valkey.call("ZADD", "z", 1.5, "m") == 1
    assert await valkey.call("ZSCORE", "z", "m") == 1.5


async def test_raw_returns_bytes_in_resp2_types(valkey: Valkey) -> None:
    await valkey.call("HSET", "h", "a", b"\xff")
    await valkey.call("ZADD", "z", 1.5, "m")
    assert await valkey.call("HGETALL", "h", raw=True) == [b"a", b"\xff"]
    assert await valkey.call("ZSCORE", "z", "m", raw=True) == b"1.5"
    assert await valkey.batch([["PING"], ["ZRANGE", "z", 0, -1, "WITHSCORES"]], raw=True) == [b"PONG", [b"m", b"1.5"]]


async def test_invalid_utf8_never_breaks_a_reply(valkey: Valkey) -> None:
    await valkey.call("SET", "k", b"ok\xff\xfe")
    assert await valkey.call("GET", "k") == "ok\ufffd\ufffd"


async def test_an_error_reply_has_its_code(valkey: Valkey) -> None:
    await valkey.call("SET", "k", "v")
    with pytest.raises(ReplyError) as caught:
        await valkey.call("LPUSH", "k", "x")
    assert caught.value.code == "WRONGTYPE"
    assert caught.value.message.startswith("WRONGTYPE Operation")


async def test_a_command_that_cannot_be_packed_affects_no_other_call(valkey: Valkey) -> None:
    before = valkey.call("ECHO", "before")
    nothing: Any = None
    with pytest.raises(TypeError):
        valkey.call("SET", "k", nothing)
    with pytest.raises(UnicodeEncodeError):
        valkey.call("SET", "k", "\ud800")
    with pytest.raises(TypeError):
        valkey.batch([["SET", "k", "v"], ["SET", "k", nothing]])
    after = valkey.call("ECHO", "after")
    assert [await before, await after] == ["before", "after"]
    assert await valkey.call("EXISTS", "k") == 0


async def test_a_batch_returns_replies_in_order_in_one_round_trip(valkey: Valkey) -> None:
    used = RequestUsage()
    REQUEST_USAGE.set(used)
    answers = await valkey.batch([["SET", "k", "v"], ["GET", "k"], ["INCR", "n"], ["GET", "absent"]])
    assert answers == ["OK", "v", 1, None]
    assert used.trips == 1
    assert used.seconds > 0
    assert await valkey.batch([]) == []
    assert used.trips == 1


async def test_a_batch_raises_its_first_error_or_returns_all(valkey: Valkey) -> None:
    commands = [["SET", "k", "v"], ["LPUSH", "k", "x"], ["GET", "k"]]
    with pytest.raises(ReplyError, match="WRONGTYPE"):
        await valkey.batch(commands)
    first, second, third = await valkey.batch(commands, return_errors=True)
    assert (first, third) == ("OK", "v")
    assert isinstance(second, ReplyError)


async def test_multi_is_atomic_and_one_round_trip(valkey: Valkey) -> None:
    used = RequestUsage()
    REQUEST_USAGE.set(used)
    assert await valkey.multi([["SET", "k", 1], ["INCR", "k"], ["GET", "k"]]) == ["OK", 2, "2"]
    assert used.trips == 1
    with pytest.raises(ReplyError, match="unknown command"):
        await valkey.multi([["SET", "k", "changed"], ["NOSUCH"]])
    assert await valkey.call("GET", "k") == "2"


async def test_multi_raises_the_error_of_a_command_that_failed(valkey: Valkey) -> None:
    with pytest.raises(ReplyError, match="WRONGTYPE"):
        await valkey.multi([["SET", "k", 1], ["LPUSH", "k", "x"]])


async def test_functions_are_called_by_name(valkey: Valkey) -> None:
    code = (
        "#!lua name=t\n"
        "server.register_function{function_name='t_get', flags={'no-writes'},"
        " callback=function(keys, args) return {keys[1], args[1], redis.call('GET', keys[1])} end}"
    )
    await valkey.call("FUNCTION", "LOAD", "REPLACE", code)
    await valkey.call("SET", "k", "v")
    assert await valkey.fcall("t_get", ["k"], 7) == ["k", "7", "v"]
    assert await valkey.fcall("t_get", ["k"], 7, read_only=True) == ["k", "7", "v"]


async def test_commands_of_one_tick_share_one_write(valkey: Valkey, server: Server) -> None:
    async def one(i: int) -> Any:
        return await valkey.call("ECHO", i)

    reads = "total_reads_processed"
    with server.redis_client() as redis_client:
        before = redis_client.info("stats")[reads]
        assert await asyncio.gather(*(one(i) for i in range(500))) == [str(i) for i in range(500)]
        # 500 commands in few reads: one for them (or a few, by the socket's buffer), one for INFO.
        assert redis_client.info("stats")[reads] - before < 10


async def test_reads_of_the_same_moment_are_sent_once(valkey: Valkey, server: Server) -> None:
    await valkey.call("SET", "k", "1")
    with server.redis_client() as client:
        client.config_resetstat()
        usage = RequestUsage()
        token = REQUEST_USAGE.set(usage)
        first, cancelled, second = (asyncio.ensure_future(valkey.call("GET", "k", shared=True)) for _ in range(3))
        REQUEST_USAGE.reset(token)
        cancelled.cancel()
        assert (await first, await second) == ("1", "1")
        assert client.info("commandstats")["cmdstat_get"]["calls"] == 1
        assert (usage.trips, usage.seconds > 0) == (3, True), "each waited for it"
        await valkey.call("SET", "k", "2")
        assert await valkey.call("GET", "k", shared=True) == "2"


async def test_a_shared_read_of_raw_values_is_sent_for_itself(valkey: Valkey) -> None:
    await valkey.call("SET", "k", b"\xff")
    reads = [valkey.call("GET", "k", shared=True, raw=raw) for raw in (False, True)]
    assert await asyncio.gather(*reads) == ["\ufffd", b"\xff"]


async def test_no_reply_is_held_after_a_shared_read(valkey: Valkey) -> None:
    await valkey.call("RPUSH", "k", *range(10))
    for shared in (True, False):  # the read itself, and another of the same moment
        reply, _ = await asyncio.gather(
            valkey.call("LRANGE", "k", 0, -1, shared=shared), valkey.call("GET", "absent", shared=True)
        )
        await valkey.call("PING")
        assert [each for each in gc.get_referrers(reply) if isinstance(each, asyncio.Future)] == []


async def test_the_error_of_a_shared_read_reaches_all_its_callers(valkey: Valkey) -> None:
    await valkey.call("SET", "k", "v")
    reading, writing = RequestUsage(only_reads=True), RequestUsage()
    futures = []
    for usage in (reading, reading, writing, writing):
        token = REQUEST_USAGE.set(usage)
        futures.append(asyncio.ensure_future(valkey.call("SMEMBERS", "k", shared=True)))
        REQUEST_USAGE.reset(token)
    *absent, one, other = await asyncio.gather(*futures, return_exceptions=True)
    assert absent == [[], []], "a request that only reads takes a key of the wrong type as absent"
    assert reading.damaged is not None
    assert isinstance(one, ReplyError)
    assert isinstance(other, ReplyError)


async def test_a_cancelled_call_never_shifts_replies(valkey: Valkey) -> None:
    async def one(i: int) -> Any:
        return await valkey.call("ECHO", i)

    tasks = [asyncio.create_task(one(i)) for i in range(100)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    for i, answer in enumerate(answers):
        assert isinstance(answer, asyncio.CancelledError) if i % 3 == 0 else answer == str(i)
    assert await valkey.call("ECHO", "next") == "next"


async def test_a_call_on_a_closed_connection_fails_at_once(valkey: Valkey) -> None:
    await valkey.call("PING")
    await valkey.close()
    async with asyncio.timeout(1):  # much less than `queue_timeout`
        with pytest.raises(Unavailable, match="is closed"):
            await valkey.call("PING")


async def test_a_reply_larger_than_any_buffer_arrives_complete_and_in_order(valkey: Valkey) -> None:
    large = "0123456789" * 300_000
    await valkey.call("SET", "large", large)
    answers = await asyncio.gather(
        *(valkey.call("GET", "large") if i % 5 == 0 else valkey.call("ECHO", i) for i in range(25))
    )
    assert answers == [large if i % 5 == 0 else str(i) for i in range(25)]


async def test_batched_hashes_equal_single_reads(valkey: Valkey) -> None:
    for i in range(5):
        await valkey.call(
            "HSET", f"h{i}", *(part for j in range(i * 3 + 1) for part in (f"field {j}", f"välue\r\n {j}"))
        )
    await valkey.call("SET", "text", "x")
    await valkey.call("SADD", "set", "a")
    keys = [*(f"h{i}" for i in range(5)), "absent"]
    reads = [["HGETALL", key] for key in keys]
    mixed = [*reads, ["EXISTS", "h1"], ["HMGET", "h1", "field 0", "none"], ["SMEMBERS", "set"], ["GET", "absent"]]
    mixed += [["SISMEMBER", "set", "b"], ["SMISMEMBER", "set", "a", "b"], ["TYPE", "set"], ["TTL", "set"]]
    alone = [await valkey.call(*command) for command in mixed]
    assert alone[1] == {f"field {j}": f"välue\r\n {j}" for j in range(4)}
    assert await valkey.batch(reads) == alone[:6]
    assert await valkey.batch(mixed) == alone
    errors = await valkey.batch([*reads, ["HGETALL", "text"]], return_errors=True)
    assert errors[:6] == alone[:6]
    assert errors[6].code == "WRONGTYPE"
    with pytest.raises(ReplyError, match="WRONGTYPE"):
        await valkey.batch([["HGETALL", "text"], *reads])


async def test_a_reading_batch_sees_earlier_writes(valkey: Valkey) -> None:
    for i in range(200):
        await valkey.call("HSET", "h", "n", i)
        assert await valkey.batch([["HGETALL", "h"], ["HGETALL", "h"]]) == [{"n": str(i)}] * 2


async def test_usage_is_counted_per_request(valkey: Valkey) -> None:
    async def request(trips: int) -> RequestUsage:
        used = RequestUsage()
        REQUEST_USAGE.set(used)
        for _ in range(trips):
            await valkey.call("PING")
        return used

    used = await asyncio.gather(*(asyncio.create_task(request(trips)) for trips in (1, 2, 5)))
    assert [u.trips for u in used] == [1, 2, 5]
    assert all(u.seconds > 0 for u in used)
    assert used[0].seconds < used[2].seconds
    assert REQUEST_USAGE.get() is None


@pytest.mark.parametrize(
    "command",
    [
        ["SUBSCRIBE", "news"],
        ["Monitor"],
        [b"multi"],
        ["SELECT", 1],
        ["BLPOP", "k", 0],
        ["CLIENT", "reply", "OFF"],
        ["XREAD", "COUNT", 1, "block", 0, "STREAMS", "k", "$"],
        ["WAIT", 1, 0],
    ],
)
async def test_commands_forbidden_on_a_shared_connection_are_not_sent(valkey: Valkey, command: list[Any]) -> None:
    with pytest.raises(ReplyError, match="shared connection"):
        await valkey.call(*command)
    with pytest.raises(ReplyError, match="shared connection"):
        await valkey.call(*command, raw=True)
    with pytest.raises(ReplyError, match="shared connection"):
        await valkey.batch([["PING"], command])
    with pytest.raises(ReplyError, match="shared connection"):
        await valkey.multi([command])
    with pytest.raises(ReplyError, match="shared connection"):
        await valkey.tracked(*command)
    assert await valkey.call("ECHO", "still works") == "still works"
    assert "plaza" in await valkey.call("CLIENT", "INFO")  # other CLIENT commands are allowed


async def test_not_ready_has_its_reason_for_operators_only(valkey: Valkey, server: Server) -> None:
    with server.redis_client() as operator:
        operator.config_set("min-replicas-to-write", 1)
        try:
            with pytest.raises(NotReady) as caught:
                await valkey.call("SET", "a", "b")
        finally:
            operator.config_set("min-replicas-to-write", 0)
    assert str(caught.value) == "Valkey cannot serve now: NOREPLICAS Not enough good replicas to write."
    assert caught.value.detail == "Valkey is unavailable or busy."
