"""Odd values that another service writes to documented keys break no route, job or repair."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from plaza.core.keys import JOB
from plaza.keyspace.audit import REPAIR, Audits
from tests.other_services.every_route import RunningPlaza, documented_key
from tests.waiting import eventually

TEXTS = [
    "", "abc", "nan", "inf", "-inf", "-1", "0", "1.5", "1700000000000.25", "1e400", "99999999999999999999999", "true",
    "null", "[]", "{", "\x00", "é", "🦄", "user:", ":", "#", "a b", "../x", "<b>", "9" * 400,
]  # fmt: skip
BYTES = [b"\xff\xfe", b"\x80abc"]
SCORES = [float("inf"), float("-inf"), -1.0, 0.0, 0.5, 1.5e9 + 0.25, 1.7e12 + 0.5, 1e300, -1e300, 2.0**63]
# Each of these has found an error once. Add the seed of any new one.
SEEDS = (0, 3, 13, 28)


async def write_odd_values(running: RunningPlaza, dice: random.Random) -> list[str]:
    """Change about a third of the elements of every documented key. Returns the commands, for the report."""
    written: list[str] = []

    async def run(*command: Any) -> None:
        await running.redis.execute_command(*command)
        written.append(" ".join(map(repr, command)))

    for raw in sorted(await running.redis.keys("*")):
        name = raw.decode(errors="replace")
        key = documented_key(name)
        if key is None:
            continue
        odd = [*TEXTS, *BYTES]
        if key.type == "hash":
            for field in await running.redis.hkeys(raw):
                if dice.random() < 0.4:
                    await run("HSET", raw, field, dice.choice(odd))
                elif dice.random() < 0.1:
                    await run("HDEL", raw, field)
            await run("HSET", raw, dice.choice(odd), dice.choice(odd))
        elif key.type == "zset":
            for member in (await running.redis.zrange(raw, 0, -1))[:20]:
                if dice.random() < 0.4:
                    await run("ZADD", raw, dice.choice(SCORES), member)
            await run("ZADD", raw, dice.choice(SCORES), dice.choice(odd))
        elif key.type == "set":
            await run("SADD", raw, dice.choice(odd))
        elif key.type == "list":
            await run("RPUSH", raw, dice.choice(odd))
        elif key.type == "string" and dice.random() < 0.5:
            await run("SET", raw, dice.choice(odd), "KEEPTTL")
    return written


async def failed_jobs(running: RunningPlaza) -> list[str]:
    """Let a worker run every job once. Returns the errors."""
    worker = asyncio.create_task(running.plaza.worker.run())
    names = running.plaza.worker.timers

    async def states() -> list[list[bytes]] | None:
        found = [await running.redis.hmget(JOB(name), "state", "error") for name in names]
        return found if all(state in (b"done", b"failed") for state, _ in found) else None

    try:
        ended = await eventually(states)
    finally:
        worker.cancel()
        await asyncio.wait([worker])
    return [f"{name}: {error}" for name, (state, error) in zip(names, ended, strict=True) if state == b"failed"]


@pytest.mark.usefixtures("audit_at_full_speed")
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_request_job_or_repair_fails(running: RunningPlaza, seed: int) -> None:
    written = await write_odd_values(running, random.Random(seed))
    assert len(written) > 100
    assert await running.failures([*running.reads(), *running.writes()]) == []
    assert await failed_jobs(running) == []
    await running.plaza.get(Audits).run(REPAIR)
    assert await running.failures(running.reads()) == []
