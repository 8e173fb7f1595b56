"""Killed processes, and concurrent changes of both sides of a relation."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

from plaza.core.auth import Actor
from plaza.core.errors import NotFound
from plaza.social import keys as k
from plaza.social.model import NewComment
from plaza.social.relations import follow_keys
from tests.event_reader import read_events
from tests.event_replay import ReplayModel
from tests.killed_processes import count_clients, recover_all, wait_for_disconnects
from tests.servers import Cluster, Server
from tests.social import random_writer_process
from tests.social.conftest import ADMIN, Social
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]


async def run_and_kill_writer(url: str, seed: int, seconds: float) -> None:
    """Run a process that writes random data and kill it after some seconds."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.social.random_writer_process",
        url,
        str(seed),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"go\n"
    await asyncio.sleep(seconds)
    process.kill()
    await process.wait()


async def test_counters_are_correct_after_processes_were_killed(
    social: Social, place: Server | Cluster, assert_consistent: Any, redis_client: Any
) -> None:
    for user in random_writer_process.USERS:
        await social.create_user(user.name, user.role)
    dice = random.Random(11)
    for seed in range(2):
        before = count_clients(place)
        await asyncio.gather(*(run_and_kill_writer(place.url, 2 * seed + i, dice.uniform(0.15, 0.4)) for i in range(2)))
        await wait_for_disconnects(place, before)
        if social.valkey.clustered:
            # Entries of killed processes can be recovered after the time limit of their projections.
            await asyncio.sleep(random_writer_process.PROJECTION_MS / 1000 + 0.1)
            await eventually(lambda: recover_all(social.functions))
        model = ReplayModel.of(await read_events(redis_client, "social"))
        await model.assert_is_source_data(redis_client, [user.name for user in random_writer_process.USERS])
        keyspace = await assert_consistent()
    assert keyspace["post"], "the processes wrote posts"
    assert keyspace["user_liked"]


async def run_concurrently(*works: Any) -> None:
    """Run all operations at once. Each may raise NotFound and no other exception."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        assert outcome is None or not isinstance(outcome, BaseException) or isinstance(outcome, NotFound), outcome


async def test_a_post_deleted_during_other_writes_leaves_no_data(
    social: Social, ana: Actor, assert_consistent: Any
) -> None:
    fans = [await social.create_user(f"fan{i}") for i in range(8)]
    before = await assert_consistent()
    for _ in range(8):
        post = await social.post(ana, "#tea")
        works = [
            work
            for fan in fans
            for work in (
                social.engagements.like(fan, post.id),
                social.engagements.bookmark(fan, post.id),
                social.comments.create(fan, post.id, NewComment("hi")),
            )
        ]
        works.insert(random.randrange(len(works)), social.posts.delete(ADMIN, post.id))  # type: ignore[arg-type]
        await run_concurrently(*works)
    assert await assert_consistent() == before


async def test_a_user_deleted_during_follows_leaves_no_data(social: Social, assert_consistent: Any) -> None:
    fans = [await social.create_user(f"fan{i}") for i in range(10)]
    before = await assert_consistent()
    for i in range(5):
        star = await social.create_user(f"star{i}", "model")
        works: list[Any] = [social.relations.follow(fan, star.name) for fan in fans]
        works += [social.relations.mute(fan, star.name) for fan in fans[:5]]
        works += [social.relations.block(fan, star.name) for fan in fans[5:]]
        works += [social.post(star, "#tea") for _ in range(3)]
        works.insert(random.randrange(len(works)), social.deletion.delete(ADMIN, star.name))
        await run_concurrently(*works)
        await social.deletion.finish(star.name)
    after = await assert_consistent()
    for keyspace in (before, after):
        keyspace.pop("token_cutoffs")
    assert after == before


async def test_a_write_to_a_deleted_other_side_is_withdrawn(
    social: Social, ana: Actor, bob: Actor, assert_consistent: Any
) -> None:
    """On a cluster the other side is a projection. Here the projection runs after the other side was deleted."""
    post = await social.post(bob)
    before = await assert_consistent()
    await social.posts.delete(bob, post.id)
    now = social.clock.now_ms()
    # These are the calls of a process that read the post before its deletion.
    if social.valkey.clustered:
        await social.functions.run("social_bookmark", [k.USER_BOOKMARKED("ana")], "ana", post.id, now, now)
        await social.functions.run(
            "social_follow",
            follow_keys("ana"),
            "ana", "missing", now,
        )  # fmt: skip
        style = ("1", "", "", "user")
        await social.functions.run(
            "social_create_post", [k.POST(post.id)], post.id, "missing", "x", "", "tea", now, now, *style
        )
    after = await assert_consistent()
    assert not after["user_bookmarked"]
    assert not after["user_following"]
    assert after["user"].keys() == before["user"].keys()
    assert not after["post"]
