"""The audit reports every corruption with its invariant, and repairs derived data from source data."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.app import Plaza
from plaza.challenges import invariants
from plaza.keyspace.audit import DRY_RUN, REPAIR, Audits, recheck, throttle
from plaza.shop.keys import CART
from plaza.social.jobs import SocialJobs
from plaza.social.keys import AUTH_USER, POST, POST_LIKES, USER, USER_LIKED, USER_VERSION
from tests.keyspace.audit.corruptions import CORRUPTIONS
from tests.keyspace.audit.dump import assert_same, dump
from tests.keyspace.audit.sample_community import SampleCommunity

# Each batch holds corruptions that are far apart in the list, so that they do not affect each other.
BATCHES = 12


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other client writes during these audits, so rechecks need no pause."""
    monkeypatch.setattr(recheck, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(recheck, "SHORT_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(recheck, "REPAIR_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(invariants, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(throttle, "TRAFFIC_PER_SECOND", 1_000_000)
    monkeypatch.setattr(throttle, "WINDOW_SECONDS", 0.0)


def test_more_than_forty_corruptions_are_tested() -> None:
    assert len(CORRUPTIONS) > 40


async def test_every_corruption_is_reported_and_repaired(
    audits: Audits, community: SampleCommunity, redis_client: Any
) -> None:
    before = await dump(redis_client)
    repaired = [corruption for corruption in CORRUPTIONS if not corruption.kept]
    for first in range(BATCHES):
        batch = repaired[first::BATCHES]
        for corruption in batch:
            await corruption.corrupt(redis_client, community)
        found = {(group.family, group.rule) for group in (await audits.run()).groups}
        assert {corruption.name for corruption in batch if corruption.finding not in found} == set(), found
        report = await audits.run(REPAIR)
        assert report.clean, report.left
        assert report.repaired
        assert_same(await dump(redis_client), before)
    assert (await audits.run()).clean


async def test_what_another_service_may_have_written_is_reported_and_kept(
    audits: Audits, community: SampleCommunity, redis_client: Any
) -> None:
    kept = [corruption for corruption in CORRUPTIONS if corruption.kept]
    for corruption in kept:
        await corruption.corrupt(redis_client, community)
    likes, carts = POST_LIKES(community.posts[0]), CART(community.guest)
    before = await redis_client.smembers(likes), await redis_client.hgetall(carts)
    report = await audits.run(REPAIR)
    assert {(group.family, group.rule) for group in report.left} == {corruption.finding for corruption in kept}
    assert (await redis_client.smembers(likes), await redis_client.hgetall(carts)) == before
    assert await redis_client.hget(POST(community.posts[0]), "likesCount") == str(len(before[0]))
    assert await redis_client.hget(USER("ana"), "password") == "hunter2"


async def test_a_dry_run_describes_repairs_and_changes_nothing(
    audits: Audits, community: SampleCommunity, redis_client: Any
) -> None:
    corruptions = [corruption for corruption in CORRUPTIONS if not corruption.kept][::7]
    for corruption in corruptions:
        await corruption.corrupt(redis_client, community)
    before = await dump(redis_client)
    report = await audits.run(DRY_RUN)
    plans = [finding.repair for group in report.groups for finding in group.examples]
    assert len(plans) >= len(corruptions)
    assert all(plans), report.groups
    assert not report.clean
    assert_same(await dump(redis_client), before)


async def test_a_post_with_a_newer_version_than_its_author_follows_the_profile_again(
    plaza: Plaza, audits: Audits, community: SampleCommunity, redis_client: Any
) -> None:
    post = POST(community.posts[0])
    await redis_client.hset(post, mapping={"user_version": 99, "display_name": "Other name"})
    assert (await audits.run(REPAIR)).clean
    await plaza.get(SocialJobs).restyle()
    assert await redis_client.hget(post, "display_name") == "Ana"
    assert await redis_client.hget(post, "user_version") == await redis_client.get(USER_VERSION("ana"))
    assert (await audits.run()).clean


async def test_the_remains_of_a_lost_profile_are_deleted(
    plaza: Plaza, audits: Audits, community: SampleCommunity, redis_client: Any
) -> None:
    await redis_client.delete(USER("ben"))
    found = {(group.family, group.rule) for group in (await audits.run()).groups}
    assert {("user:<username>:posts", "orphan"), ("post:<post>", "reference")} <= found
    assert (await audits.run(REPAIR)).clean
    await plaza.get(SocialJobs).continue_deletions()
    assert (await audits.run()).clean
    assert not [name for name in await dump(redis_client) if name.startswith(("user:ben", "user:{ben"))]


async def test_the_deletion_of_a_lost_profile_leaves_no_version_or_credentials(
    plaza: Plaza, audits: Audits, community: SampleCommunity, redis_client: Any
) -> None:
    await redis_client.delete(USER("ben"))
    # The audit scans in any order. Here it meets the posts first, so the account is marked before the rest is seen.
    await plaza.core.functions.run("social_repair_gone", [USER("ben")], plaza.core.clock.now_ms(), "ben")
    await plaza.get(SocialJobs).continue_deletions()
    assert (await audits.run()).clean
    assert not await redis_client.exists(AUTH_USER("ben"))
    assert not await redis_client.exists(USER_VERSION("ben"))


async def test_unreadable_source_data_is_deleted_and_derived_data_follows(
    audits: Audits, community: SampleCommunity, redis_client: Any
) -> None:
    likes = POST_LIKES(community.posts[0])
    await redis_client.delete(likes)
    await redis_client.set(likes, "ana, ben, cleo")
    report = await audits.run(REPAIR)
    assert report.clean, report.left
    assert await redis_client.hget(POST(community.posts[0]), "likesCount") == "0"
    assert await redis_client.zscore(USER_LIKED("ana"), community.posts[0]) is None
