"""Tracked reads: cached values are dropped when they change, and never stale."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from plaza.core.valkey import Valkey
from tests.core.relay import Relay
from tests.servers import Server
from tests.timeouts import connect_for_test, within_time_limit
from tests.waiting import eventually


class Cache:
    """A cache as in a service: filled by tracked reads, emptied by invalidations."""

    def __init__(self, valkey: Valkey) -> None:
        self.valkey = valkey
        self.cached: dict[str, Any] = {}
        self.news: list[list[str] | None] = []
        self.stop = valkey.on_invalidate(self.changed)

    def changed(self, keys: list[str] | None) -> None:
        self.news.append(keys)
        for key in list(self.cached) if keys is None else keys:
            self.cached.pop(key, None)

    async def get(self, key: str) -> Any:
        if key in self.cached:
            return self.cached[key]

        def keep(reply: Any) -> Any:
            self.cached[key] = reply
            return reply

        return await self.valkey.tracked("GET", key, store=keep)


@pytest.fixture
async def valkey(server: Server) -> AsyncIterator[Valkey]:
    async with await connect_for_test(server.url) as valkey, within_time_limit():
        yield valkey


async def test_a_cached_value_is_dropped_when_a_client_changes_it(valkey: Valkey, server: Server) -> None:
    cache = Cache(valkey)
    with server.redis_client() as redis_client:
        redis_client.set("k", "one")
        assert await cache.get("k") == "one"
        assert cache.cached == {"k": "one"}
        redis_client.set("k", "two")
        await valkey.call("PING")  # the invalidation arrives on the same connection, before this reply
        assert cache.cached == {}
        assert await cache.get("k") == "two"
        await valkey.call("SET", "k", "three")  # own changes are reported too
        assert cache.cached == {}


async def test_only_tracked_reads_are_tracked(valkey: Valkey) -> None:
    cache = Cache(valkey)
    await valkey.batch([["SET", "a", 1], ["SET", "b", 1]])
    await valkey.tracked("GET", "a")
    await valkey.call("GET", "b")
    await valkey.batch([["SET", "a", 2], ["SET", "b", 2]])
    assert cache.news == [["a"]]


async def test_a_change_right_after_a_read_leaves_nothing_stale(valkey: Valkey, server: Server) -> None:
    """Reads and changes race, also within one packet; the cached value is the stored one in the end."""
    cache = Cache(valkey)

    async def reader() -> None:
        for i in range(400):
            await cache.get(f"k{i % 7}")

    async def writer() -> None:
        for i in range(400):
            await other.call("SET", f"k{i % 7}", i)
            # On one connection the reply and the invalidation arrive in one packet.
            await asyncio.gather(cache.get(f"k{i % 7}"), valkey.call("INCR", f"k{i % 7}"))

    async with await connect_for_test(server.url) as other:
        await asyncio.gather(reader(), reader(), writer())
    await valkey.call("PING")
    assert cache.cached
    for key, value in cache.cached.items():
        assert value == await valkey.call("GET", key)


async def test_flushing_the_server_drops_everything(valkey: Valkey) -> None:
    cache = Cache(valkey)
    await valkey.call("SET", "k", 1)
    await cache.get("k")
    await valkey.call("FLUSHALL")
    assert cache.news == [None]
    assert cache.cached == {}


async def test_a_lost_connection_drops_everything_and_tracking_continues(server: Server) -> None:
    async with Relay(server.port) as relay, await connect_for_test(relay.url) as valkey, within_time_limit():
        cache = Cache(valkey)
        await valkey.call("SET", "k", 1)
        assert await cache.get("k") == "1"
        relay.cut()
        await eventually(lambda: cache.news == [None])
        assert await valkey.call("GET", "k") == "1"
        assert await cache.get("k") == "1"
        await valkey.call("SET", "k", 2)
        assert cache.news == [None, ["k"]]


async def test_a_failing_listener_does_not_stop_the_others(valkey: Valkey) -> None:
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))

    def broken(keys: list[str] | None) -> None:
        raise ZeroDivisionError

    valkey.on_invalidate(broken)
    cache = Cache(valkey)
    await valkey.call("SET", "k", 1)
    await cache.get("k")
    await valkey.call("SET", "k", 2)
    assert cache.cached == {}
    assert [type(failure) for failure in failures] == [ZeroDivisionError]


async def test_a_listener_can_be_removed(valkey: Valkey) -> None:
    cache = Cache(valkey)
    await valkey.call("SET", "k", 1)
    await cache.get("k")
    cache.stop()
    await valkey.call("SET", "k", 2)
    assert cache.news == []


async def test_a_failing_store_callback_fails_only_its_own_call(valkey: Valkey) -> None:
    def keep(reply: Any) -> Any:
        raise ZeroDivisionError

    broken = valkey.tracked("GET", "k", store=keep)
    fine = valkey.call("ECHO", "fine")
    with pytest.raises(ZeroDivisionError):
        await broken
    assert await fine == "fine"
