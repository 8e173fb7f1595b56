"""Reads all keys with a plain client, to compare the state before and after a repair."""

from __future__ import annotations

from typing import Any

import pytest

# These change without any request: queues, short-lived lists and the audit's own keys. Events stay as they are.
_IGNORED = (
    "events:",
    "published:",
    "audit:",
    "lease:",
    "fence:",
    "plaza:libraries",
    "challenges:turn:",
    "feeds:",
    "tmp:home:",
    "score:{",
    "score:news",
)


async def dump(redis_client: Any) -> dict[str, Any]:
    clustered = hasattr(redis_client, "get_primaries")
    names = await (redis_client.keys("*", target_nodes="primaries") if clustered else redis_client.keys("*"))
    values = {}
    for name in sorted(names):
        if not name.startswith(_IGNORED):
            values[name] = (await _value(redis_client, name), await redis_client.ttl(name) > 0)
    return values


async def _value(redis_client: Any, name: str) -> Any:
    kind = await redis_client.type(name)
    if kind == "hash":
        return await redis_client.hgetall(name)
    if kind == "set":
        return await redis_client.smembers(name)
    if kind == "list":
        return await redis_client.lrange(name, 0, -1)
    if kind == "zset":
        return dict(await redis_client.zrange(name, 0, -1, withscores=True))
    return await redis_client.dump(name)  # some are binary


def assert_same(found: dict[str, Any], before: dict[str, Any]) -> None:
    """Check that both dumps are equal, except for scores that depend on the time."""
    assert found.keys() == before.keys(), found.keys() ^ before.keys()
    for name, (value, expires) in before.items():
        if "ranked" in name or "ranking:due" in name or "schedule:" in name:
            value = pytest.approx(value, rel=0.01)
        elif name == "live:awake":
            value = pytest.approx(value, rel=1e-4)
        assert found[name] == (value, expires), name
