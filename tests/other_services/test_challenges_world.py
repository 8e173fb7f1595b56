"""Challenges that another program wrote: the tables by SQL, the keys by the document."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.challenges.daily_job.runner import DailyJob
from tests.other_services.challenges_service import ChallengesService
from tests.other_services.running import PlazaBesideOthers, assert_unchanged

pytestmark = pytest.mark.usefixtures("audit_at_full_speed")


class ChallengesWorld:
    """Challenges in all categories, one private and one that has ended; posts, a break, reactions, tracked days."""

    def __init__(self, service: ChallengesService) -> None:
        self.service = service
        self.challenges: list[int] = []
        self.posts: dict[str, int] = {}

    async def write(self) -> None:
        service = self.service
        self.challenges = [service.challenge(f"Challenge {n}", n) for n in range(1, 6)]
        private, ended = service.challenge("Private", 1, is_public=False), service.challenge("Ended", 2, days=-1)
        first, second, *_ = self.challenges
        for challenge in (first, second, private, ended):
            for name in ("ana", "ben"):
                service.member(challenge, name)
        self.posts["new"] = service.post(first, "ben", "Done.")
        self.posts["old"] = service.post(second, "ben", "Done last week.", age=7)
        self.posts["older than the pool"] = service.post(second, "ben", "Long ago.", age=service.max_post_age)
        self.posts["break"] = service.post(first, "ben", "A break.", is_break=True)
        self.posts["private"] = service.post(private, "ben", "Hidden.")
        self.posts["ended"] = service.post(ended, "ben", "Over.", age=2)
        for name in ("new", "ended"):
            service.reaction(first if name == "new" else ended, self.posts[name], "cleo")
        service.reaction(first, self.posts["new"], "dora")
        for age in range(3):
            service.tracking(first, "ben", age=age)
        service.tracking(second, "ben", age=1)
        service.tracking(ended, "ana", age=3)
        await service.run_nightly_job()


@pytest.fixture
async def world(beside: PlazaBesideOthers) -> ChallengesWorld:
    world = ChallengesWorld(ChallengesService(beside))
    await world.write()
    return world


def post_ids(page: Any) -> list[int]:
    return [post["id"] for post in page["posts"]]


async def assert_shown(beside: PlazaBesideOthers, world: ChallengesWorld) -> None:
    first, second, *_ = world.challenges
    posts = world.posts
    listed = (await beside.get("/challenges", "dora"))["challenges"]
    assert {challenge["title"] for challenge in listed} == {*(f"Challenge {n}" for n in range(1, 6)), "Ended"}
    shown = await beside.get(f"/challenges/{first}", "dora")
    assert (shown["title"], shown["category"], shown["is_public"], shown["duration"]) == ("Challenge 1", 1, True, 21)
    assert post_ids(await beside.get(f"/challenges/{first}/posts", "dora")) == [posts["break"], posts["new"]]
    assert set(post_ids(await beside.get(f"/challenges/{second}/posts", "dora"))) == {
        posts["old"],
        posts["older than the pool"],
    }
    for name, expected in (("eli", {"new", "old"}), ("cleo", {"old"}), ("ben", set())):
        found = (await beside.get("/challenges/recommendations", name))["posts"]
        assert {each["post"]["id"] for each in found} == {posts[post] for post in expected}, name
    export = await beside.get("/users/me/export", "ben")
    assert len(str(export["challenges"])) > 100


async def test_challenges_of_another_program_are_shown_and_kept(
    beside: PlazaBesideOthers, world: ChallengesWorld
) -> None:
    before = await beside.documented_keys()
    await assert_shown(beside, world)
    report = await beside.repair()
    assert report.clean, report.left
    assert_unchanged(await beside.documented_keys(), before)
    rolled = await beside.plaza.get(DailyJob).run()
    assert rolled.db_len == {name: int(count) for name, count in before["db_len"].items()}
    assert_unchanged(await beside.documented_keys(), before)
    assert (await beside.repair()).clean
    assert_unchanged(await beside.documented_keys(), before)
    await assert_shown(beside, world)


async def test_keys_that_contradict_the_tables_are_reported_and_follow_them(
    beside: PlazaBesideOthers, world: ChallengesWorld
) -> None:
    await beside.plaza.get(DailyJob).run()
    before = await beside.documented_keys()
    await beside.client.hset("user_contribution", "ben", "9,9,9,9,9")
    await beside.client.hset("on_clg_info", str(world.challenges[0]), "5,0,1,2020-01-01")
    await beside.client.zadd("recent_posts_for_category5", {str(world.posts["old"]): 3})
    await beside.client.srem(f"{beside.owned('cleo')}_liked_posts", str(world.posts["new"]))
    report = await beside.repair()
    assert report.clean
    assert {(group.family, group.rule) for group in report.groups} == {
        ("user_contribution", "record"),
        ("on_clg_info", "record"),
        ("post_clg_pair", "record"),
        ("<username>_liked_posts", "record"),
    }
    assert_unchanged(await beside.documented_keys(), before)
