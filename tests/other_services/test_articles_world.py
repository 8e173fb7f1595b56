"""Articles that another service wrote by the document alone."""

from __future__ import annotations

import time
from typing import Any

import pytest

from plaza.articles.jobs import discover_groups
from plaza.articles.service import Articles
from tests.other_services.articles_service import VOTE_SECONDS, ArticlesService
from tests.other_services.running import PlazaBesideOthers, assert_kept, assert_unchanged

pytestmark = pytest.mark.usefixtures("audit_at_full_speed")

GROUPS = ("programming", "C++", "Machine learning", "Größe: alle", "a,b")


class ArticlesWorld:
    """Three articles, one of them from 1970 as in the document's example, in groups with any names."""

    def __init__(self, service: ArticlesService) -> None:
        self.service = service
        self.ids: list[int] = []
        self.now = time.time()

    async def write(self) -> None:
        service = self.service
        await service.client.set("article:", 92616)
        self.ids = [
            await service.post("user:83123", "title", "link.com", 1723.123),
            await service.post("user:ana", "Second", "https://example.com/2", self.now - 7200.5),
            await service.post("user:ben", "Third", "https://example.com/3", self.now - 3600.25),
        ]
        first, second, third = self.ids
        for user in ("user:1", "user:2", "user:ana"):
            await service.vote(user, third, 1)
        await service.vote("user:3", second, -1)
        await service.vote("user:ben", second, -1)
        await service.vote("user:1", second, 1)
        await service.vote("user:1", second, -1)
        for group in GROUPS:
            await service.add_to_group(third, group)
        await service.add_to_group(first, "programming")
        await service.build_group_ranking("programming")


@pytest.fixture
async def world(beside: PlazaBesideOthers) -> ArticlesWorld:
    world = ArticlesWorld(ArticlesService(beside))
    await world.write()
    return world


def ids(page: Any) -> list[int]:
    return [article["id"] for article in page["articles"]]


async def assert_shown(beside: PlazaBesideOthers, world: ArticlesWorld) -> None:
    first, second, third = world.ids
    assert first == 92617
    shown = await beside.get(f"/articles/{first}")
    assert (shown["title"], shown["link"], shown["author"]) == ("title", "link.com", "user:83123")
    assert (shown["time"], shown["votes"], shown["score"]) == (1723.123, 1, 1723.123 + VOTE_SECONDS)
    voted = await beside.get(f"/articles/{second}", "ben")
    assert (voted["votes"], voted["vote"]) == (-2, "down")
    assert (await beside.get(f"/articles/{third}", "ana"))["vote"] == "up"
    assert ids(await beside.get("/articles?order=score")) == [third, second, first]
    assert ids(await beside.get("/articles?order=time")) == [third, second, first]
    for group in GROUPS:
        expected = [third, first] if group == "programming" else [third]
        for order in ("score", "time"):
            page = await beside.get(f"/groups/{quote(group)}/articles?order={order}")
            assert ids(page) == expected, (group, order)
    assert (await beside.get(f"/articles/{third}"))["groups"] == sorted(GROUPS)
    assert (await beside.get(f"/articles/{first}"))["groups"] == ["programming"]
    listed = (await beside.get("/groups"))["groups"]
    assert {group["name"]: group["size"] for group in listed} == {**dict.fromkeys(GROUPS, 1), "programming": 2}


def quote(group: str) -> str:
    return group.replace("+", "%2B").replace(" ", "%20").replace(",", "%2C")


@pytest.mark.parametrize("read_first", [True, False])
async def test_articles_of_another_service_are_shown_and_kept(
    beside: PlazaBesideOthers, world: ArticlesWorld, read_first: bool
) -> None:
    written = await beside.documented_keys()
    if read_first:
        await assert_shown(beside, world)
    before = await beside.documented_keys()
    assert_kept(before, written)
    report = await beside.repair()
    assert report.clean, report.left
    assert_unchanged(await beside.documented_keys(), before)
    assert (await beside.audit()).clean
    await assert_shown(beside, world)


async def test_a_job_finds_groups_that_no_one_has_read(beside: PlazaBesideOthers, world: ArticlesWorld) -> None:
    assert await discover_groups(beside.plaza.get(Articles)) == len(GROUPS)
    assert {group["name"] for group in (await beside.get("/groups"))["groups"]} == set(GROUPS)
    assert await discover_groups(beside.plaza.get(Articles)) == 0
