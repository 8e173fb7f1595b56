"""The cache in the process whose entries follow their keys in Valkey."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.core.errors import Unavailable
from plaza.core.tracking_cache import TrackingCache
from plaza.core.valkey import Valkey
from tests.waiting import eventually


async def test_a_value_is_cached_until_its_key_changes(valkey: Valkey, redis_client: Any) -> None:
    cache: TrackingCache[str] = TrackingCache(valkey, 10)
    await redis_client.set("key", "1")
    assert await cache.load("key", lambda: valkey.call("GET", "key")) == "1"
    assert cache.get("key") == "1"
    await redis_client.set("key", "2")
    await eventually(lambda: cache.get("key") is None)
    cache.close()


async def test_the_least_recently_used_value_is_dropped(valkey: Valkey) -> None:
    cache: TrackingCache[int] = TrackingCache(valkey, 2)
    for number in (1, 2):
        cache.put(f"key:{number}", number)
    assert cache.get("key:1") == 1
    cache.put("key:3", 3)
    assert [cache.get(f"key:{number}") for number in (1, 2, 3)] == [1, None, 3]
    cache.close()


async def test_large_values_leave_room_for_fewer(valkey: Valkey) -> None:
    cache: TrackingCache[str] = TrackingCache(valkey, 10, size_of=len)
    for key in ("one", "two", "three"):
        cache.put(key, "12345")
    assert [cache.get(key) for key in ("one", "two", "three")] == [None, "12345", "12345"]
    cache.put("three", "123")
    cache.put("four", "12")
    assert [cache.get(key) for key in ("two", "three", "four")] == ["12345", "123", "12"]
    cache.drop("two")
    cache.put("five", "54321")
    assert [cache.get(key) for key in ("three", "four", "five")] == ["123", "12", "54321"]
    cache.close()


async def test_reads_that_fail_leave_nothing_in_memory(valkey: Valkey) -> None:
    async def fail() -> str:
        raise Unavailable("down")

    cache: TrackingCache[str] = TrackingCache(valkey, 10)
    for number in range(20):
        with pytest.raises(Unavailable):
            await cache.load(f"key:{number}", fail)
    assert not cache._loading
    cache.close()


async def test_closing_twice_is_harmless(valkey: Valkey) -> None:
    """An application's shutdown and its owner may close the same cache at the same time."""
    caches: list[TrackingCache[str]] = [TrackingCache(valkey, 10) for _ in range(2)]
    caches[0].close()
    caches[0].close()
    caches[1].put("key", "1")
    valkey._listeners.notify(["key"])
    assert caches[1].get("key") is None  # the other one still listens
    caches[1].close()
