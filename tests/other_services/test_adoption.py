"""`plaza adopt`: Plaza starts from keys that other services wrote by the documents, and changes none of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from plaza.adoption import adopt
from plaza.app import catalogues, running
from plaza.keyspace.audit import AuditReport, checkpoints, scanner
from plaza.keyspace.audit_keys import AUDIT_CHECKPOINT
from plaza.keyspace.document_guard import document_guard
from tests.event_reader import read_events
from tests.keyspace.sample_keys import families, parts_of
from tests.other_services.articles_service import ArticlesService
from tests.other_services.challenges_service import ChallengesService
from tests.other_services.live_service import AnalyticsService
from tests.other_services.running import PlazaBesideOthers, assert_unchanged, is_documented
from tests.other_services.shop_service import ShopService
from tests.other_services.social_service import SocialService
from tests.other_services.test_articles_world import ArticlesWorld
from tests.other_services.test_challenges_world import ChallengesWorld
from tests.other_services.test_live_world import LiveWorld
from tests.other_services.test_shop_world import ShopWorld
from tests.other_services.test_social_world import SocialWorld
from tests.processes import SimulatedCrash
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("audit_at_full_speed")

MISSING_POST = "99999999-9999-4999-8999-999999999999"


async def run_adopt(
    beside: PlazaBesideOthers, on_progress: Callable[[AuditReport], None] = lambda report: None
) -> AuditReport:
    """Run `plaza adopt`."""
    async with running(beside.plaza.core.settings, protects_documented=True) as plaza:
        return await adopt(plaza, on_progress)


async def lasting_keys(beside: PlazaBesideOthers) -> dict[str, Any]:
    """Return the documented keys that do not expire: cached rows, pages and group rankings go by themselves."""
    keys = await beside.documented_keys()
    return {name: content for name, content in keys.items() if await beside.client.pttl(name) == -1}


def interrupt(report: AuditReport) -> None:
    """Stop as soon as some keys are scanned."""
    if report.keys:
        raise SimulatedCrash


async def contradict(beside: PlazaBesideOthers, social: SocialWorld, articles: ArticlesWorld) -> None:
    """Write what the documents do not allow: wrong counters, an unknown post, one side of a follow, a wrong type."""
    client, owned = beside.client, beside.owned
    await client.hset(f"post:{owned(social.posts['paris'])}", "likesCount", 99)
    await client.zadd("explore:feed", {MISSING_POST: 1})
    await client.sadd(f"user:{owned('bob')}:followers", "mona")
    await client.set(f"hashtag:{owned('odd')}:posts", "a string")
    await client.hset(f"article:{owned(articles.ids[1])}", "votes", 1000)
    await client.zadd("score:", {f"article:{articles.ids[2]}": 1})


async def test_keys_of_other_services_are_completed_and_none_of_them_changes(beside: PlazaBesideOthers) -> None:
    social, articles = SocialWorld(SocialService(beside)), ArticlesWorld(ArticlesService(beside))
    live, shop = LiveWorld(AnalyticsService(beside)), ShopWorld(ShopService(beside))
    challenges = ChallengesWorld(ChallengesService(beside))
    for world in (social, articles, live, challenges):
        await world.write()
    await shop.write(beside)
    await contradict(beside, social, articles)
    before = await lasting_keys(beside)

    with pytest.raises(SimulatedCrash):
        await run_adopt(beside, interrupt)
    report = await run_adopt(beside)

    assert_unchanged(await lasting_keys(beside), before)
    client, owned = beside.client, beside.owned
    assert await client.zscore(f"user:{owned('bob')}:liked", social.posts["paris"]) is not None
    assert await client.exists(f"articles:{owned('ana')}:posted")
    assert await client.exists(f"{owned('launch')}#Event#Viewers")
    found = await beside.get("/search?q=hello&type=posts", "bob")
    assert [hit["id"] for hit in found["posts"]] == [social.posts["hello"]], "the search index is built too"
    left = {(group.family, group.rule) for group in report.left}
    assert left >= {
        ("post:<post>", "count"),
        ("explore:feed", "listed"),
        ("user:<username>:followers", "mirror"),
        ("hashtag:<tag>:posts", "type"),
        ("article:<article>", "votes"),
    }, left

    assert await read_events(client, "social") == [], "what is old is no news"

    again = await run_adopt(beside)
    # The audience of an event changes with time, also in a test.
    left_again = {(group.family, group.rule) for group in again.left if "#" not in group.family}
    assert left_again == {pair for pair in left if "#" not in pair[0]}, "a second run leaves the same"
    assert_unchanged(await lasting_keys(beside), before)
    fixed = {(group.family, group.rule) for group in (await beside.repair()).left}
    assert fixed.isdisjoint({("post:<post>", "count"), ("explore:feed", "listed"), ("article:<article>", "votes")})
    paris = f"post:{owned(social.posts['paris'])}"
    assert await client.hget(paris, "likesCount") == "3", "`plaza adopt --fix` repairs them"


async def test_an_interrupted_run_continues_where_it_stopped(
    beside: PlazaBesideOthers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "PAGE_KEYS", 10)
    monkeypatch.setattr(checkpoints, "STORE_SECONDS", 0.0)
    social = SocialWorld(SocialService(beside))
    await social.write()
    checkpoint, scanned = AUDIT_CHECKPOINT(), list[int]()

    def interrupt_after_some(report: AuditReport) -> None:
        if report.keys > 25:
            scanned.append(report.keys)
            raise SimulatedCrash

    with pytest.raises(SimulatedCrash):
        await run_adopt(beside, interrupt_after_some)
    stored = json.loads(await beside.client.get(checkpoint))
    reports: list[int] = []
    await run_adopt(beside, lambda report: reports.append(report.keys))
    assert next(filter(None, reports)) >= scanned[0], "it starts behind the keys that it has scanned"
    assert await beside.client.zscore(f"user:{beside.owned('bob')}:liked", social.posts["paris"]) is not None
    assert not await beside.client.exists(checkpoint), "the next run starts again"

    stored["scope"][-1] = "another server process"
    await beside.client.set(checkpoint, json.dumps(stored), ex=60)
    reports.clear()
    await run_adopt(beside, lambda report: reports.append(report.keys))
    assert next(filter(None, reports)) < scanned[0], "cursors of another server process mean nothing here"


def test_lua_cannot_write_documented_keys(server: Server) -> None:
    guard = document_guard(catalogues())
    with server.redis_client() as client:
        run: Any = client.register_script(guard + "return redis.call(ARGV[1], unpack(KEYS))")
        for key in families():
            name = key(*parts_of(key))
            client.set(name, "x")
            run(keys=[name], args=["DEL"])
            assert bool(client.exists(name)) == is_documented(name), name
            assert run(keys=[name], args=["EXISTS"]) == int(is_documented(name)), "reads are as usual"
        client.set("tmp:x", "x")
        run(keys=["tmp:x", "explore:feed"], args=["RENAME"])
        assert client.exists("tmp:x"), "it would replace a documented key"
