"""`plaza demo`: a community of any size beside existing data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress

from plaza.app import Plaza
from plaza.core.errors import Invalid
from plaza.demo.keys import DEMO_RUNS
from plaza.demo.lifecycle import Demo
from plaza.demo.loader import LoadStage
from plaza.demo.progress_bars import ProgressBars
from plaza.social.accounts import Accounts
from plaza.social.model import Registration
from tests.databases import with_tables
from tests.demo.conftest import read_all_keys, without_changing_keys
from tests.processes import plaza as command
from tests.servers import Server
from tests.social.consistency import violations

on_one_server = pytest.mark.parametrize("place", ["server"], indirect=True)


async def test_a_generated_community_keeps_existing_users_and_a_second_run_changes_nothing(
    plaza: Plaza, demo: Demo, redis_client: Any
) -> None:
    await plaza.get(Accounts).register(Registration(username="ana", password="correct horse", bio="I was here."))
    progress: dict[str, int] = {}

    def on_progress(stage: Any, count: int, records: int) -> None:
        progress[stage.name] = progress.get(stage.name, 0) + count

    result = await demo.parts.loader.load_generated(7, 120, 300, on_progress)
    assert progress["posts"] == 300
    assert result.stages == progress
    found = await read_all_keys(redis_client)
    assert violations(found, plaza.core.clock.now_ms()) == []
    assert len(found["explore_feed"][()]) == 300
    assert len(found["user"]) == 121
    assert found["user"]["ana",]["bio"] == "I was here."

    assert not (await demo.parts.loader.load_generated(7, 120, 300)).stages
    await redis_client.delete(DEMO_RUNS())
    await demo.parts.loader.load_generated(7, 120, 300)
    assert without_changing_keys(await read_all_keys(redis_client)) == without_changing_keys(found)


@on_one_server
async def test_two_seeds_are_two_communities(plaza: Plaza, demo: Demo, redis_client: Any) -> None:
    await demo.parts.loader.load_generated(1, 30, 40)
    await demo.parts.loader.load_generated(2, 30, 40)
    found = await read_all_keys(redis_client)
    assert violations(found, plaza.core.clock.now_ms()) == []
    assert len(found["user"]) == 60
    assert len(found["explore_feed"][()]) == 80


@on_one_server
@pytest.mark.parametrize(("seed", "users", "posts"), [(-1, 10, 10), (1, 1, 10), (1, 10, -1)])
async def test_invalid_sizes_are_refused(demo: Demo, seed: int, users: int, posts: int) -> None:
    with pytest.raises(Invalid):
        await demo.parts.loader.load_generated(seed, users, posts)


def test_the_command_prints_a_summary_and_the_rate(server: Server, tmp_path: Path) -> None:
    arguments = ("demo", "--users", "30", "--posts", "40", "--seed", "5")
    first = command(with_tables(tmp_path), *arguments, PLAZA_VALKEY_URL=server.url)
    assert first.returncode == 0, first.stderr
    assert "30 users, 40 posts, 30 follows" in first.stdout
    assert "per second" in first.stdout
    assert "posts" in first.stderr
    assert "records/s" in first.stderr


def test_the_rate_includes_the_first_batch() -> None:
    async def load(batch: int, size: int) -> int:
        return 0

    times = iter([0.0, 2.0, 4.0, 9.0])
    bar = Progress()
    bars = ProgressBars(bar, lambda: next(times))
    for name, records in (("people", 100), ("people", 300), ("items", 50)):
        bars.advance(LoadStage(name, 2, 1, load), 1, records)
    assert [task.fields["rate"] for task in bar.tasks] == [100.0, 10.0]
