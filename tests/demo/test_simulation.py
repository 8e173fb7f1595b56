"""The simulation of the demo, its switch and its accounts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from msgspec import structs

from plaza.app import Plaza, running
from plaza.articles.keys import ARTICLES_BY_TIME
from plaza.caching.keys import ITEM_VIEWS
from plaza.core.errors import NotFound
from plaza.core.settings import DemoMode, Settings
from plaza.demo.generator import SMALL_COMMUNITY, CommunityPlan
from plaza.demo.keys import DEMO
from plaza.demo.lifecycle import CHECK_SECONDS, Demo, may_load_demo
from plaza.demo.loader import COMMUNITY_POSTS
from plaza.demo.loaders.live import EVENT
from plaza.demo.simulation import DemoSimulation
from plaza.demo.users import CommunityUsers
from plaza.live.statistics import AudienceFigures
from plaza.social.accounts import Accounts
from plaza.social.inbound_sync import InboundSync
from plaza.social.model import PasswordLogin, WrongPassword
from plaza.social.password_changes import PasswordChanges
from tests.demo.conftest import read_all_keys
from tests.social.consistency import violations

HERE = "127.0.0.1:8000"

pytestmark = pytest.mark.parametrize("place", ["server"], indirect=True)


@pytest.fixture
async def plaza_with_users(plaza: Plaza, redis_client: Any) -> Plaza:
    """Plaza with the users of the demo and no other data."""
    now = plaza.core.clock.now_ms()
    await plaza.get(InboundSync).apply(
        "user", CommunityPlan("community", CommunityUsers(), 0, now, SMALL_COMMUNITY).generate_users(0, 99)
    )
    await redis_client.hset(DEMO(), mapping={"state": "loaded", "since": now, "on": 1})
    return plaza


async def test_the_simulation_keeps_every_invariant(plaza: Plaza, demo: Demo, redis_client: Any) -> None:
    await demo.parts.loader.load_community(plaza.core.clock.now_ms())
    simulation = DemoSimulation(plaza.core, plaza.services, Random(3))
    before = await read_all_keys(redis_client)
    done = " ".join([await simulation.step() for _ in range(120)])
    for act in ("beats", "like", "post", "comment", "vote", "view", "reaction"):
        assert act in done
    after = await read_all_keys(redis_client)
    assert violations(after, plaza.core.clock.now_ms()) == []
    assert len(after["explore_feed"][()]) > COMMUNITY_POSTS
    assert after["article_up"] != before["article_up"]
    assert await plaza.get(AudienceFigures).alive(EVENT) > 15


async def test_members_that_other_services_add_do_not_stop_the_simulation(
    plaza_with_users: Plaza, redis_client: Any
) -> None:
    await redis_client.zadd(ITEM_VIEWS(), {"item1": -3})  # the document's own example
    await redis_client.zadd(ARTICLES_BY_TIME(), {"article:news": 1})
    simulation = DemoSimulation(plaza_with_users.core, plaza_with_users.services, Random(3))
    for _ in range(20):
        await simulation.step()


async def test_one_of_many_workers_simulates(plaza_with_users: Plaza, redis_client: Any, settings: Settings) -> None:
    async with running(settings) as other:
        demos = [plaza.get(Demo) for plaza in (plaza_with_users, other)]
        for demo in demos:
            demo._timer = structs.replace(
                demo._timer, every_seconds=600
            )  # on a slow machine the next step could be due
        for _ in range(3):
            await asyncio.gather(*(demo.turn() for demo in demos for _ in range(3)))
    job = await redis_client.hgetall("job:demo.simulate")
    assert job["state"] == "done"
    assert int(job["runs"]) == 1


async def test_the_switch_stops_the_simulation_and_closes_the_accounts(
    plaza_with_users: Plaza, demo: Demo, redis_client: Any
) -> None:
    assert "mira" in {account.username for account in await demo.accounts(HERE)}
    await demo.switch(False)
    assert await demo.turn() == CHECK_SECONDS
    assert not await redis_client.exists("job:demo.simulate")
    assert await demo.accounts(HERE) == []
    await demo.switch(True)
    assert len(await demo.accounts(HERE)) >= 4


async def test_accounts_open_only_where_no_other_machine_can_connect(
    plaza_with_users: Plaza, demo: Demo, settings: Settings, redis_client: Any
) -> None:
    modes: list[tuple[DemoMode, str, bool]] = [
        ("auto", "127.0.0.1", True), ("auto", "::1", True), ("auto", "localhost", True), ("auto", "0.0.0.0", False),
        ("auto", "192.168.1.7", False), ("auto", "::", False), ("auto", "plaza.example", False),
        ("on", "0.0.0.0", True), ("off", "127.0.0.1", False),
    ]  # fmt: skip
    for mode, host, opens in modes:
        changed = replace(settings, demo=mode, host=host)
        demo._settings = changed
        assert bool(await demo.accounts(HERE)) is opens, (mode, host)
        fresh = replace(changed, valkey_url="", data_dir=settings.data_dir / "new")
        assert may_load_demo(fresh) is opens
        assert not may_load_demo(replace(fresh, valkey_url="valkey://db.internal"))
        assert not may_load_demo(replace(fresh, database_url="postgresql://db.internal/plaza"))
        assert not may_load_demo(replace(fresh, data_dir=settings.data_dir)), "a database exists"
    for host in ("127.0.0.1:8000", "localhost:8000", "[::1]:8000", "localhost"):
        demo._settings = settings
        assert await demo.accounts(host), host
    for host in ("evil.example:8000", "evil.example", "127.0.0.1.evil.example", "", "[::1", "192.168.1.7:8000"):
        assert await demo.accounts(host) == [], host
    demo._settings = replace(settings, demo="on", host="0.0.0.0")
    assert await demo.accounts("plaza.example")
    assert not may_load_demo(
        replace(settings, valkey_url="", data_dir=settings.data_dir / "new", trusted_proxies=("10.0.0.1",))
    )
    # There is no password that could be guessed.
    assert not await redis_client.exists("auth:robin")
    with pytest.raises(WrongPassword):
        await plaza_with_users.get(Accounts).login(PasswordLogin("robin", "robin"))
    # An account with a password is not offered: a user may have taken the name after it was deleted.
    demo._settings = settings
    await plaza_with_users.get(PasswordChanges).set("robin", "correct horse")
    assert "robin" not in {account.username for account in await demo.accounts(HERE)}


async def test_a_server_without_a_demo_has_nothing_to_switch(demo: Demo) -> None:
    with pytest.raises(NotFound):
        await demo.switch(True)
    assert await demo.accounts(HERE) == []
