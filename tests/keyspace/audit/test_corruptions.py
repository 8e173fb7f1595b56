"""However a town is broken, the audit finds it, names it, and makes it whole again from the facts."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.app import Plaza
from plaza.challenges import invariants
from plaza.keyspace.audit import DRY_RUN, REPAIR, Audits, recheck, throttle
from plaza.social.jobs import Jobs
from plaza.social.keys import POST, POST_LIKES, USER, USER_LIKED
from tests.keyspace.audit.corruptions import BREAKS
from tests.keyspace.audit.dump import assert_same, dump
from tests.keyspace.audit.sample_community import Town

# Corruptions far apart in the list are done together: each is of another kind and another place.
ROUNDS = 12


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes here while the audit looks again, so it need not wait between looks, nor for others."""
    monkeypatch.setattr(recheck, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(recheck, "SHORT_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(invariants, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(throttle, "TRAFFIC", 1_000_000)
    monkeypatch.setattr(throttle, "BEGIN_SECONDS", 0.0)


def test_there_are_more_than_forty_ways() -> None:
    assert len(BREAKS) > 40


async def test_each_of_many_corruptions_is_found_named_and_mended(
    audits: Audits, town: Town, redis_client: Any
) -> None:
    before = await dump(redis_client)
    for first in range(ROUNDS):
        some = BREAKS[first::ROUNDS]
        for broken in some:
            await broken.how(redis_client, town)
        found = {(group.family, group.rule) for group in (await audits.run()).groups}
        assert {broken.name for broken in some if broken.finding not in found} == set(), found
        report = await audits.run(REPAIR)
        assert report.clean, report.left
        assert report.repaired
        assert_same(await dump(redis_client), before)
    assert (await audits.run()).clean


async def test_a_dry_run_says_what_it_would_do_and_does_nothing(audits: Audits, town: Town, redis_client: Any) -> None:
    for broken in BREAKS[::7]:
        await broken.how(redis_client, town)
    before = await dump(redis_client)
    report = await audits.run(DRY_RUN)
    plans = [finding.repair for group in report.groups for finding in group.examples]
    assert len(plans) >= len(BREAKS[::7])
    assert all(plans), report.groups
    assert not report.clean
    assert_same(await dump(redis_client), before)


async def test_a_post_that_is_ahead_of_its_author_follows_the_profile_again(
    plaza: Plaza, audits: Audits, town: Town, redis_client: Any
) -> None:
    post = POST(town.posts[0])
    await redis_client.hset(post, mapping={"user_version": 99, "display_name": "Somebody"})
    assert (await audits.run(REPAIR)).clean
    await plaza.get(Jobs).restyle()
    assert await redis_client.hget(post, "display_name") == "Ana"
    assert await redis_client.hget(post, "user_version") == await redis_client.hget(USER("ana"), "version")
    assert (await audits.run()).clean


async def test_what_a_lost_profile_left_behind_is_taken_away_as_if_its_owner_had_left(
    plaza: Plaza, audits: Audits, town: Town, redis_client: Any
) -> None:
    await redis_client.delete(USER("ben"))
    found = {(group.family, group.rule) for group in (await audits.run()).groups}
    assert {("user:<username>:posts", "orphan"), ("post:<post>", "reference")} <= found
    assert (await audits.run(REPAIR)).clean
    await plaza.get(Jobs).leave()
    assert (await audits.run()).clean
    assert not [name for name in await dump(redis_client) if name.startswith(("user:ben", "user:{ben"))]


async def test_a_fact_that_cannot_be_read_is_given_up_and_the_rest_follows(
    audits: Audits, town: Town, redis_client: Any
) -> None:
    likes = POST_LIKES(town.posts[0])
    await redis_client.delete(likes)
    await redis_client.set(likes, "ana, ben, cleo")
    report = await audits.run(REPAIR)
    assert report.clean, report.left
    assert await redis_client.hget(POST(town.posts[0]), "likesCount") == "0"
    assert await redis_client.zscore(USER_LIKED("ana"), town.posts[0]) is None
