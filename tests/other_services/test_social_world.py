"""A social network that another service wrote by the document alone."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.core.passwords import HASHER
from plaza.social.jobs import SocialJobs
from tests.other_services.running import PlazaBesideOthers, assert_kept, assert_unchanged
from tests.other_services.social_service import HOUR_MS, PRIVATE_FIELDS, SocialService

pytestmark = pytest.mark.usefixtures("audit_at_full_speed")


PASSWORD = "correct horse battery"
# The document allows them in the profile.
PASSWORD_FIELDS = {"password": PASSWORD, "password_hash": HASHER.hash(PASSWORD)}


class SocialWorld:
    """Three users, a model and an admin; four posts, one of them banned and one older than two weeks."""

    def __init__(self, service: SocialService) -> None:
        self.service = service
        self.posts: dict[str, str] = {}

    async def write(self) -> None:
        service, now = self.service, self.service.now()
        links, avatar = "https://alice.example, https://social.example/alice", "https://img.example/alice.png"
        public = {"display_name": "Alice Smith", "bio": "Software developer", "links": links, "avatar": avatar}
        await service.register("alice", created=now - 90 * HOUR_MS, **public, **PRIVATE_FIELDS, **PASSWORD_FIELDS)
        await service.register("bob", created=now - 80 * HOUR_MS)
        await service.register("mona", "model", created=now - 70 * HOUR_MS)
        await service.register("Alice", created=now - 60 * HOUR_MS)  # names are case-sensitive
        await service.register("root", "admin", created=now - 50 * HOUR_MS)
        media = "https://img.example/1.png"
        post = service.create_post
        self.posts["hello"] = await post(
            "alice", "Hello world! #Travel", ["travel"], now - 3 * HOUR_MS, media_url=media
        )
        self.posts["paris"] = await post("mona", "#Paris #été!", ["paris", "été"], now - 2 * HOUR_MS)
        self.posts["banned"] = await post("mona", "#spam", [], now - HOUR_MS)
        await self._ban(self.posts["banned"], now)
        self.posts["old"] = await post("bob", "#travel once", ["travel"], now - 400 * HOUR_MS)
        for name, target in (("alice", "mona"), ("alice", "bob"), ("bob", "alice"), ("Alice", "mona")):
            await service.follow(name, target)
        for name in ("alice", "bob", "Alice"):
            await service.like(name, self.posts["paris"], ["paris", "été"])
        await service.bookmark("bob", self.posts["hello"], ["travel"], now - 2)
        await service.bookmark("bob", self.posts["paris"], ["paris", "été"], now - 1)
        for n, name in enumerate(("bob", "alice", "bob")):
            await service.comment(name, self.posts["hello"], f"comment {n}", ["travel"], now - 10 + n)
        await service.build_home("alice", ["mona", "bob"])

    async def _ban(self, id: str, now: int) -> None:
        mapping = {"banned": "true", "banned_at": now, "banned_by": "root"}
        await self.service.client.hset(f"post:{self.service.owned(id)}", mapping=mapping)
        await self.service.client.zrem("explore:feed", id)


@pytest.fixture
async def world(beside: PlazaBesideOthers) -> SocialWorld:
    world = SocialWorld(SocialService(beside))
    await world.write()
    return world


def ids(page: Any) -> list[str]:
    return [item["post"]["id"] for item in page["posts"]]


def names(page: Any) -> set[str]:
    return {user["id"] for user in page["users"]}


async def assert_shown(beside: PlazaBesideOthers, world: SocialWorld) -> None:
    """Read the whole network through Plaza's routes."""
    hello, paris, banned, old = (world.posts[name] for name in ("hello", "paris", "banned", "old"))
    now = world.service.now()
    alice = await beside.get("/users/me", "alice")
    assert {name: alice[name] for name in PRIVATE_FIELDS} == PRIVATE_FIELDS
    public = await beside.get("/users/alice", "bob")
    assert (public["display_name"], public["bio"], public["role"]) == ("Alice Smith", "Software developer", "user")
    assert (public["postCount"], public["followerCount"], public["followingCount"]) == (1, 1, 2)
    assert (public["avatar"], public["links"][:21]) == ("https://img.example/alice.png", "https://alice.example")
    assert now - 91 * HOUR_MS < public["created_at"] < now - 89 * HOUR_MS
    assert PRIVATE_FIELDS.keys().isdisjoint(public)
    assert PASSWORD_FIELDS.keys().isdisjoint({**alice, **public})
    post = await beside.get(f"/posts/{hello}", "bob")
    assert (post["content"], post["media_url"], post["hashtags"]) == (
        "Hello world! #Travel",
        "https://img.example/1.png",
        ["travel"],
    )
    assert (post["username"], post["display_name"], post["avatar"]) == ("alice", "Alice Smith", public["avatar"])
    assert (post["bookmarksCount"], post["isBookmarked"], post["isLiked"]) == (1, True, False)
    comments = (await beside.get(f"/posts/{hello}/comments", "bob"))["comments"]
    assert [comment["content"] for comment in comments] == ["comment 0", "comment 1", "comment 2"]
    assert (comments[1]["username"], post["commentsCount"]) == ("alice", 3)
    explored = await beside.get("/feed/explore", "bob")
    assert ids(explored) == [paris, hello, old]
    assert [item["post"]["isLiked"] for item in explored["posts"]] == [True, False, False]
    assert [item["post"]["likesCount"] for item in explored["posts"]] == [3, 0, 0]
    assert [item["user"]["id"] for item in explored["posts"]] == ["mona", "alice", "bob"]
    assert ids(await beside.get("/feed/following", "alice")) == [paris, old]
    assert ids(await beside.get("/feed/hashtag/travel", "bob")) == [hello, old]
    assert ids(await beside.get("/feed/hashtag/travel/ranked", "bob")) == [hello]
    assert ids(await beside.get("/feed/hashtag/été", "bob")) == [paris]
    assert ids(await beside.get("/users/mona/posts", "bob")) == [paris]
    assert ids(await beside.get("/users/me/bookmarked", "bob")) == [paris, hello]
    assert names(await beside.get(f"/posts/{paris}/likes", "bob")) == {"alice", "bob", "Alice"}
    assert names(await beside.get("/users/mona/followers", "bob")) == {"alice", "Alice"}
    assert names(await beside.get("/users/alice/following", "bob")) == {"mona", "bob"}
    assert names(await beside.get("/search/users/newest?role=user", "bob")) == {"alice", "bob", "Alice"}
    assert names(await beside.get("/search/users/newest?role=model", "bob")) == {"mona"}
    top = await beside.get("/search/models/top", "bob")
    assert [(user["id"], user["engagement"]) for user in top["users"]] == [("mona", 13)]
    tags = (await beside.get("/search/hashtags/top-posts?hashtags=travel,paris", "bob"))["hashtags"]
    assert [(tag["hashtag"], ids(tag)) for tag in tags] == [("travel", [hello]), ("paris", [paris])]
    answer = await beside.http.get(f"/posts/{banned}", headers=beside.headers("bob"))
    assert answer.status_code == 404
    answer = await beside.http.get(f"/posts/{banned}", headers=beside.headers("root", "admin"))
    assert (answer.json()["banned"], answer.json()["banned_by"]) == (True, "root")


@pytest.mark.parametrize("read_first", [True, False])
async def test_a_social_network_of_another_service_is_shown_and_kept(
    beside: PlazaBesideOthers, world: SocialWorld, read_first: bool
) -> None:
    written = await beside.documented_keys()
    if read_first:
        await assert_shown(beside, world)
    before = await beside.documented_keys()
    assert_kept(before, written)
    report = await beside.repair()
    await beside.plaza.get(SocialJobs).rescore()
    assert_unchanged(await beside.documented_keys(), before)
    # The password in the profile is reported and stays; the hash is completed in Plaza's own key.
    assert [(group.family, group.rule) for group in report.left] == [("user:<username>", "secret")]
    await assert_shown(beside, world)
    login = await beside.http.post("/auth/login", json={"username": "alice", "password": PASSWORD})
    assert (login.status_code, login.json()["user"]["id"]) == (200, "alice")
    second = await beside.repair()
    assert (second.repaired, second.findings) == (0, 1), second.groups
    assert_unchanged(await beside.documented_keys(), before)


async def test_a_user_without_a_time_and_a_post_without_an_author_are_shown_synced_and_kept(
    beside: PlazaBesideOthers,
) -> None:
    service = SocialService(beside)
    await service.register("ana")
    await service.register("lea")
    lost = await service.create_post("lea", "Whose? #tea", ["tea"])
    kept = await service.create_post("ana", "Mine #tea", ["tea"])
    await beside.client.hdel(f"user:{beside.owned('lea')}", "created_at", "display_name", "role")
    await beside.client.hdel(f"post:{beside.owned(lost)}", "user_id", "username")
    before = await beside.documented_keys()
    batch = [{"username": "lea", "bio": "Hello"}, {"username": "max"}]
    synced = await beside.http.post("/sync/users", json=batch, headers=beside.api_key)
    assert [result["status"] for result in synced.json()["results"]] == ["updated", "created"]
    report = await beside.repair()
    assert {("post:<post>", "field"), ("user:<username>", "field")} <= {
        (group.family, group.rule) for group in report.left
    }, report.left
    assert (await beside.get("/users/lea", "ana"))["bio"] == "Hello"
    assert kept in ids(await beside.get("/feed/explore", "ana"))
    assert names(await beside.get("/search/users/newest?limit=100", "ana")) == {"ana", "lea", "max"}
    after = await beside.documented_keys()
    assert after[f"post:{beside.owned(lost)}"] == before[f"post:{beside.owned(lost)}"]
    assert after["explore:feed"] == before["explore:feed"]
