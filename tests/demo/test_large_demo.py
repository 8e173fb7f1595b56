"""`plaza demo`: a community of any size, on top of what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress

from plaza.app import Plaza
from plaza.core.errors import Invalid
from plaza.demo.keys import DEMO_RUNS
from plaza.demo.loader import LoadStage
from plaza.demo.progress_bars import ProgressBars
from plaza.demo.service import Demo
from plaza.social.accounts import Accounts
from plaza.social.model import Registration
from tests.demo.conftest import everything, lasting
from tests.processes import plaza as command
from tests.servers import Server
from tests.social.consistency import faults

on_one_server = pytest.mark.parametrize("place", ["server"], indirect=True)


async def test_a_crowd_joins_those_who_are_there_and_a_second_run_changes_nothing(
    plaza: Plaza, demo: Demo, redis_client: Any
) -> None:
    await plaza.get(Accounts).register(Registration(username="ana", password="correct horse", bio="I was here."))
    told: dict[str, int] = {}

    def note(stage: Any, things: int, records: int) -> None:
        told[stage.name] = told.get(stage.name, 0) + things

    made = await demo.loader.crowd(7, 120, 300, note)
    assert told["posts"] == 300
    assert made.stages == told
    facts = await everything(redis_client)
    assert faults(facts, plaza.core.clock.now_ms()) == []
    assert len(facts["explore_feed"][()]) == 300
    assert len(facts["user"]) == 121
    assert facts["user"]["ana",]["bio"] == "I was here."

    assert not (await demo.loader.crowd(7, 120, 300)).stages
    await redis_client.delete(DEMO_RUNS())
    await demo.loader.crowd(7, 120, 300)
    assert lasting(await everything(redis_client)) == lasting(facts)


@on_one_server
async def test_two_seeds_are_two_communities(plaza: Plaza, demo: Demo, redis_client: Any) -> None:
    await demo.loader.crowd(1, 30, 40)
    await demo.loader.crowd(2, 30, 40)
    facts = await everything(redis_client)
    assert faults(facts, plaza.core.clock.now_ms()) == []
    assert len(facts["user"]) == 60
    assert len(facts["explore_feed"][()]) == 80


@on_one_server
@pytest.mark.parametrize(("seed", "users", "posts"), [(-1, 10, 10), (1, 1, 10), (1, 10, -1)])
async def test_what_cannot_be_made_is_refused(demo: Demo, seed: int, users: int, posts: int) -> None:
    with pytest.raises(Invalid):
        await demo.loader.crowd(seed, users, posts)


def test_the_command_says_what_it_made_and_how_fast(server: Server, tmp_path: Path) -> None:
    arguments = ("demo", "--users", "30", "--posts", "40", "--seed", "5")
    first = command(tmp_path, *arguments, PLAZA_VALKEY_URL=server.url)
    assert first.returncode == 0, first.stderr
    assert "30 people, 40 posts, 30 follows" in first.stdout
    assert "a second" in first.stdout
    assert "posts" in first.stderr
    assert "records/s" in first.stderr


def test_a_rate_counts_the_first_batch_too() -> None:
    async def load(batch: int, size: int) -> int:
        return 0

    moments = iter([0.0, 2.0, 4.0, 9.0])
    bar = Progress()
    bars = ProgressBars(bar, lambda: next(moments))
    for name, records in (("people", 100), ("people", 300), ("items", 50)):
        bars.advance(LoadStage(name, 2, 1, load), 1, records)
    assert [task.fields["rate"] for task in bar.tasks] == [100.0, 10.0]
