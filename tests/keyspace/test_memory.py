"""What `plaza keys --memory` says of a keyspace, against what Valkey says key by key."""

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
from plaza.keyspace.memory import UNKNOWN, Survey, Usage
from plaza.social import keys as social
from tests.keyspace.sample_keys import families, write_all
from tests.servers import Server


@pytest.fixture
async def posts(valkey: Valkey) -> int:
    """A few thousand posts of very different lengths, one of them enormous, a third with an expiry; one strange key."""
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


async def test_a_complete_survey_is_the_sum_of_what_valkey_says(valkey: Valkey, redis_client: Any, posts: int) -> None:
    steps: list[tuple[int, int]] = []
    memory = await Survey(valkey, catalogues()).run(lambda done, total: steps.append((done, total)))
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
    assert found["post:<post>"].share_lasting == pytest.approx(2 / 3)
    assert found["explore:feed"].biggest[0][1] == social.EXPLORE_FEED()
    assert memory.usages[0].bytes >= memory.usages[-1].bytes


async def test_a_sample_is_as_near_as_it_says(valkey: Valkey, posts: int) -> None:
    whole = await Survey(valkey, catalogues()).run()
    misses = 0
    for seed in range(20):
        some = await Survey(valkey, catalogues(), sample=200, seed=seed).run()
        assert not some.complete
        assert some.keys == whole.keys  # counted, not estimated
        assert sum(usage.measured for usage in some.usages) < 400
        assert 0 < some.error < whole.bytes * 0.1
        misses += abs(some.bytes - whole.bytes) > some.error
    assert (
        misses <= 4
    )  # 95 of 100 keep to it, so of 20 more than 4 miss once in a few hundred runs; the seeds are fixed


async def test_one_popular_person_among_thousands_is_in_every_sample(valkey: Valkey) -> None:
    """Where one has more than all others together, chance would miss it, or take all others for alike."""
    commands = [("SADD", social.USER_FOLLOWERS(f"user{i}"), "ana", "bob") for i in range(2_000)]
    fans = [f"fan{i}" for i in range(20_000)]
    await valkey.batch([*commands, ("SADD", social.USER_FOLLOWERS("star"), *fans)])
    whole = await Survey(valkey, catalogues()).run()
    for seed in range(20):
        some = await Survey(valkey, catalogues(), sample=100, seed=seed).run()
        assert abs(some.bytes - whole.bytes) < whole.bytes * 0.02
        assert max(some.usages[0].biggest)[1] == social.USER_FOLLOWERS("star")


async def test_every_family_is_recognised_and_no_secret_is_shown(valkey: Valkey, redis_client: Any) -> None:
    await write_all(redis_client)
    memory = await Survey(valkey, catalogues()).run()
    assert {usage.pattern for usage in memory.usages} == {key.pattern for key in families()}
    screen = StringIO()
    memory_chart.show(memory, Console(file=screen, width=160))
    told = screen.getvalue() + str(memory.record())
    assert "EB9382CA" not in told  # a session's token
    assert "social" in told
    assert "models:top:engagement" in screen.getvalue()
    assert all(len(bar.plain) == 100 for bar in memory_chart.flames(memory, 100))


async def test_a_strangers_key_cannot_steer_the_terminal(valkey: Valkey) -> None:
    await valkey.call("SET", "[red]\x1b[2Jname\n", "?")
    screen = StringIO()
    memory_chart.show(await Survey(valkey, catalogues()).run(), Console(file=screen, width=160))
    assert r"[red]\x1b[2Jname\n" in screen.getvalue()


def test_what_is_kept_of_a_family_does_not_grow() -> None:
    usage = Usage("p", "d")
    for i in range(10_000):
        spread = usage.see(long=i % 7 == 0, chance=lambda: True)
        assert spread is not None
        usage.add(f"k{i}", i, spread, lasting=True)
    assert sorted(usage.biggest) == [(9_997, "k9997"), (9_998, "k9998"), (9_999, "k9999")]
    assert usage.bytes == sum(range(10_000))


def test_the_command_prints_figures_for_people_and_for_programs(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLAZA_VALKEY_URL", server.url)
    monkeypatch.setenv("PLAZA_DATA_DIR", str(tmp_path))
    with server.redis_client() as client:
        client.zadd("explore:feed", {f"post{i}": i for i in range(500)})
    assert main(["keys", "--memory", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["complete"], told["keys"]) == (True, 1)
    assert told["families"][0]["biggest"][0]["key"] == "explore:feed"
    assert main(["keys", "--memory", "--sample", "10"]) == 0
    assert "explore:feed" in capsys.readouterr().out
    assert main(["keys", "--memory", "--sample", "0"]) == 1
    assert main(["keys", "--acl"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "plaza-service",
        "plaza-worker",
        "plaza-reader",
    ]
