"""One odd value at a time, in every field, score and member of every documented key, breaks no request and no audit.

`ODD_FIELDS=all` tries every change; otherwise a sample that is the same in every run.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from plaza.keyspace.audit import REPAIR, Audits
from tests.other_services.every_route import RunningPlaza, documented_key

VALUES: list[Any] = [b"nan", b"inf", b"-inf", b"0x10", b"1e400", b"", b"x" * 100_000, b"\xff\x00\x80"]
SCORES = ["inf", "-inf", "0", "-1", "0.5", "1e300"]
WRONG_TYPE = "type"

# Changes made before the routes are read once. They are of different families, so that none hides another.
CHANGES_AT_ONCE = 12
SAMPLED_ROUNDS = 3


@dataclass(frozen=True)
class OddChange:
    """Something that another service does to one key, as plain commands."""

    family: str
    what: str
    commands: tuple[tuple[Any, ...], ...]

    def __str__(self) -> str:
        return f"{self.family} {self.what}: " + "; ".join(
            " ".join(repr(part)[:40] for part in command) for command in self.commands
        )


async def changes_of_key(client: Any, family: str, type: str, key: bytes, fields: list[str]) -> list[OddChange]:
    """Return every change of one key."""
    commands: list[tuple[str, tuple[Any, ...]]] = [("missing", ("DEL", key))]
    if type == "hash":
        present = await client.hkeys(key)
        named = [field.encode() for field in fields] or present[:1]
        commands += [("field " + field.decode(), ("HSET", key, field, value)) for field in named for value in VALUES]
        commands += [("no field " + field.decode(), ("HDEL", key, field)) for field in present]
        commands += [("other field", ("HSET", key, value, "1")) for value in VALUES]
    elif type == "zset":
        for member in {*(await client.zrange(key, 0, 0)), *(await client.zrange(key, -1, -1))}:
            commands += [("score", ("ZADD", key, score, member)) for score in SCORES]
            commands += [("no member", ("ZREM", key, member))]
        commands += [("member", ("ZADD", key, "1700000000000", value)) for value in VALUES]
    elif type == "set":
        commands += [("member", ("SADD", key, value)) for value in VALUES]
        commands += [("no member", ("SPOP", key))]
    elif type == "list":
        commands += [("member", ("RPUSH", key, value)) for value in VALUES]
        commands += [("no member", ("LPOP", key))]
    else:
        commands += [("value", ("SET", key, value, "KEEPTTL")) for value in VALUES]
    other = ("SADD", key, "another type") if type == "string" else ("SET", key, "another type")
    return [
        *(OddChange(family, what, (command,)) for what, command in commands),
        OddChange(family, WRONG_TYPE, (("DEL", key), other)),
    ]


async def all_changes(running: RunningPlaza) -> list[OddChange]:
    """Return every change of one key of each documented family: the key that has most routes."""
    found: dict[str, tuple[bytes, str, list[str]]] = {}
    for key in sorted(await running.redis.keys("*")):
        declared = documented_key(key.decode())
        if declared is not None and (declared.pattern not in found or running.community.token.encode() in key):
            found[declared.pattern] = key, declared.type, [field.name for field in declared.fields]
    assert len(found) > 40, sorted(found)
    return [
        change
        for family, (key, type, fields) in found.items()
        for change in await changes_of_key(running.redis, family, type, key, fields)
    ]


def rounds(changes: list[OddChange], dice: random.Random) -> Iterator[list[OddChange]]:
    """Combine changes of different families, in a random order, until each was made once."""
    left = dice.sample(changes, len(changes))
    while left:
        chosen: dict[str, OddChange] = {}
        for change in left:
            if len(chosen) < CHANGES_AT_ONCE:
                chosen.setdefault(change.family, change)
        yield [*chosen.values()]
        left = [change for change in left if chosen.get(change.family) is not change]


@pytest.mark.usefixtures("audit_at_full_speed")
async def test_one_odd_value_of_any_field_breaks_nothing(running: RunningPlaza) -> None:
    client, reads = running.redis, running.reads()
    world = {key: (max(await client.pttl(key), 0), await client.dump(key)) for key in await client.keys("*")}
    planned = rounds(await all_changes(running), random.Random(1))
    for changes in planned if os.environ.get("ODD_FIELDS") == "all" else itertools.islice(planned, SAMPLED_ROUNDS):
        done = "\n".join(map(str, changes))
        print(done)  # for the report, if the repair fails
        for command in (command for change in changes for command in change.commands):
            await client.execute_command(*command)
        assert await running.failures([*reads, *running.writes()]) == [], done
        await running.plaza.get(Audits).run(REPAIR)
        assert await running.failures(reads[::10]) == [], done
        await client.flushall()
        for key, (lifetime_ms, value) in world.items():
            if value is not None:  # it had not expired
                await client.restore(key, lifetime_ms, value, replace=True)
