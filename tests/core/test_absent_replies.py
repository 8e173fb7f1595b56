"""A request that only reads takes a key of the wrong type as absent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from plaza.core.valkey import ReplyError, Valkey
from plaza.core.valkey.calls import REQUEST_USAGE, RequestUsage

ABSENT, STRING, SET = "{damaged}:absent", "{damaged}:string", "{damaged}:set"

# Every read that the services use: its name, and the words after the key.
READS: list[tuple[str, ...]] = [
    ("GET",), ("STRLEN",), ("HGET", "f"), ("HMGET", "f", "g"), ("HGETALL",), ("HEXISTS", "f"), ("HLEN",), ("HKEYS",),
    ("HVALS",), ("HSCAN", "0"), ("LLEN",), ("LRANGE", "0", "-1"), ("LINDEX", "0"), ("LPOS", "a"), ("SCARD",),
    ("SMEMBERS",), ("SISMEMBER", "a"), ("SMISMEMBER", "a", "b"), ("SSCAN", "0"), ("SRANDMEMBER", "9"), ("ZCARD",),
    ("ZSCORE", "a"), ("ZMSCORE", "a", "b"), ("ZRANK", "a"), ("ZREVRANK", "a"), ("ZCOUNT", "-inf", "+inf"),
    ("ZLEXCOUNT", "-", "+"), ("ZRANGE", "0", "-1"), ("ZREVRANGE", "0", "-1"), ("ZRANGEBYSCORE", "-inf", "+inf"),
    ("ZRANGEBYLEX", "-", "+"), ("ZSCAN", "0"),
]  # fmt: skip


def command(read: tuple[str, ...], key: str) -> tuple[str, ...]:
    return read[0], key, *read[1:]


def damaged_key(read: tuple[str, ...]) -> str:
    return SET if read[0] in ("GET", "STRLEN") else STRING


@contextlib.contextmanager
def request(*, only_reads: bool) -> Iterator[RequestUsage]:
    usage = RequestUsage(only_reads=only_reads)
    token = REQUEST_USAGE.set(usage)
    yield usage
    REQUEST_USAGE.reset(token)


@pytest.fixture(autouse=True)
async def damaged_keys(valkey: Valkey) -> None:
    await valkey.call("SET", STRING, "text")
    await valkey.call("SADD", SET, "member")


async def test_every_read_gives_the_reply_for_an_absent_key(valkey: Valkey) -> None:
    damaged = [command(read, damaged_key(read)) for read in READS]
    with request(only_reads=True) as usage:
        absent = [await valkey.call(*command(read, ABSENT)) for read in READS]
        assert usage.damaged is None
        assert [await valkey.call(*each) for each in damaged] == absent
        assert usage.damaged is not None
        assert await valkey.batch(damaged) == absent
        assert await valkey.batch([("HGETALL", STRING), ("HGETALL", ABSENT), ("SCARD", SET)]) == [{}, {}, 1]
        assert await valkey.tracked("GET", SET) is None


async def test_writes_and_requests_that_may_write_fail(valkey: Valkey) -> None:
    with request(only_reads=True):
        with pytest.raises(ReplyError, match="WRONGTYPE"):
            await valkey.call("HSET", STRING, "f", "1")
        with pytest.raises(ReplyError, match="WRONGTYPE"):
            await valkey.batch([("GET", STRING), ("SADD", STRING, "a")])
    with request(only_reads=False):
        with pytest.raises(ReplyError, match="WRONGTYPE"):
            await valkey.call("HGET", STRING, "f")
        with pytest.raises(ReplyError, match="WRONGTYPE"):
            await valkey.batch([("GET", STRING), ("HGET", STRING, "f")])
