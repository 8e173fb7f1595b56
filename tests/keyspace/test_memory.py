"""`plaza keys --memory` reports what Valkey measures key by key."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from plaza.app import catalogues
from plaza.cli import main
from plaza.core.valkey import Valkey
from plaza.keyspace import memory_chart
from plaza.keyspace.memory import UNKNOWN, FamilyUsage, MemoryScan
from plaza.social import keys as social
from tests.databases import with_tables
from tests.keyspace.sample_keys import families, write_all
from tests.servers import Server

SAMPLES = 20


@pytest.fixture
async def posts(valkey: Valkey) -> int:
    """Posts of very different lengths, a third with an expiry; one very large key; one undeclared key."""
    commands: list[tuple[Any, ...]] = []
    for i in range(3_000):
        name = social.POST(f"{i:08x}-0000-4000-8000-000000000000")
        commands.append(("HSET", name, "id", i, "content", "x" * (10 + 37 * (i % 100))))
        if i % 3 == 0:
            commands.append(("EXPIRE", name, 1000))
    commands.append(("ZADD", social.EXPLORE_FEED(), *(part for i in range(5_000) for part in (i, f"post{i}"))))
    await valkey.batch(commands)
    await valkey.call("SET", "what is this", "?")
    return 3_000


async def test_a_complete_scan_equals_the_sum_of_memory_usage(valkey: Valkey, redis_client: Any, posts: int) -> None:
    steps: list[tuple[int, int]] = []
    memory = await MemoryScan(valkey, catalogues()).run(lambda done, total: steps.append((done, total)))
    found = {usage.pattern: usage for usage in memory.usages}
    assert memory.complete
    assert memory.error == 0
    assert found["post:<post>"].keys == posts
    assert found[UNKNOWN].keys == 1
    assert steps[-1] == (posts + 2, posts + 2)
    total = sum(
        [await redis_client.memory_usage(name, samples=20) async for name in redis_client.scan_iter(count=1000)]
    )
    assert memory.bytes == total
    assert found["post:<post>"].share_without_expiry == pytest.approx(2 / 3)
    assert found["explore:feed"].biggest[0][1] == social.EXPLORE_FEED()
    assert memory.usages[0].bytes >= memory.usages[-1].bytes


async def test_a_sample_is_within_its_stated_error(valkey: Valkey, posts: int) -> None:
    complete = await MemoryScan(valkey, catalogues()).run()
    squares = []
    for seed in range(SAMPLES):
        sampled = await MemoryScan(valkey, catalogues(), sample=200, seed=seed).run()
        assert not sampled.complete
        assert sampled.keys == complete.keys  # counted, not estimated
        assert sum(usage.measured for usage in sampled.usages) < 400
        assert 0 < sampled.error < complete.bytes * 0.1
        squares.append(((sampled.bytes - complete.bytes) / sampled.error) ** 2)
    # The stated error is 1.96 standard deviations, so the mean is about 0.26; with half the right error it is above 1.
    # Valkey scans in another order each time, which moves the mean by 0.1.
    assert sum(squares) / SAMPLES < 0.8


async def test_every_sample_contains_the_one_popular_user(valkey: Valkey) -> None:
    """Random sampling alone would miss a user who has more followers than all others together."""
    commands = [("SADD", social.USER_FOLLOWERS(f"user{i}"), "ana", "bob") for i in range(2_000)]
    fans = [f"fan{i}" for i in range(20_000)]
    await valkey.batch([*commands, ("SADD", social.USER_FOLLOWERS("star"), *fans)])
    complete = await MemoryScan(valkey, catalogues()).run()
    for seed in range(20):
        sampled = await MemoryScan(valkey, catalogues(), sample=100, seed=seed).run()
        assert abs(sampled.bytes - complete.bytes) < complete.bytes * 0.02
        assert max(sampled.usages[0].biggest)[1] == social.USER_FOLLOWERS("star")


async def test_every_family_is_recognised_and_secrets_are_not_shown(valkey: Valkey, redis_client: Any) -> None:
    await write_all(redis_client)
    memory = await MemoryScan(valkey, catalogues()).run()
    assert {usage.pattern for usage in memory.usages} == {key.pattern for key in families()}
    screen = StringIO()
    memory_chart.show(memory, Console(file=screen, width=160))
    output = screen.getvalue() + str(memory.record())
    assert "EB9382CA" not in output  # a session token
    assert "social" in output
    assert "models:top:engagement" in screen.getvalue()
    assert all(len(bar.plain) == 100 for bar in memory_chart.bars(memory, 100))


async def test_key_names_cannot_send_terminal_control_codes(valkey: Valkey) -> None:
    await valkey.call("SET", "[red]\x1b[2Jname\n", "?")
    screen = StringIO()
    memory_chart.show(await MemoryScan(valkey, catalogues()).run(), Console(file=screen, width=160))
    assert r"[red]\x1b[2Jname\n" in screen.getvalue()


def test_the_memory_of_a_family_usage_does_not_grow_with_its_keys() -> None:
    usage = FamilyUsage("p", "d")
    for i in range(10_000):
        statistics = usage.count(large=i % 7 == 0, sample=lambda: True)
        assert statistics is not None
        usage.add(f"k{i}", i, statistics, expires=False)
    assert sorted(usage.biggest) == [(9_997, "k9997"), (9_998, "k9998"), (9_999, "k9999")]
    assert usage.bytes == sum(range(10_000))


def test_the_command_prints_tables_and_json(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLAZA_VALKEY_URL", server.url)
    monkeypatch.setenv("PLAZA_DATA_DIR", str(with_tables(tmp_path)))
    with server.redis_client() as client:
        client.zadd("explore:feed", {f"post{i}": i for i in range(500)})
    assert main(["keys", "--memory", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["complete"], report["keys"]) == (True, 1)
    assert report["families"][0]["biggest"][0]["key"] == "explore:feed"
    assert main(["keys", "--memory", "--sample", "10"]) == 0
    assert "explore:feed" in capsys.readouterr().out
    assert main(["keys", "--memory", "--sample", "0"]) == 1
    assert main(["keys", "--acl"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "plaza-service",
        "plaza-worker",
        "plaza-reader",
    ]
