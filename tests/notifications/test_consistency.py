"""Notifications match the source data: under many at once, beyond the limits, after renaming, deletion and rebuild."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from plaza.core.auth import Actor
from plaza.notifications.keys import (
    NOTIFICATION_ACTORS,
    NOTIFICATION_GROUPS,
    NOTIFICATIONS,
    NOTIFICATIONS_DISMISSED,
    NOTIFICATIONS_UNREAD,
    NOTIFIED,
)
from plaza.notifications.rebuild import NotificationRebuild
from plaza.social.account_deletion import AccountDeletion
from plaza.social.account_renaming import AccountRenaming
from plaza.social.engagements import Engagements
from plaza.social.keys import POST, POST_LIKES
from tests.notifications.conftest import NotifiedCommunity, at_most_ten, on_one_server


async def test_a_thousand_users_who_like_and_unlike_at_once_leave_what_the_likes_say(
    community: NotifiedCommunity,
) -> None:
    names = [f"fan{number}" for number in range(1_000)]
    await community.users("ana", *names[:900])
    await community.users(*names[900:])
    post = await community.post("ana")
    engagements, chance = community.plaza.get(Engagements), random.Random(7)

    async def change_mind(name: str) -> None:
        actor = Actor(name, "user")
        await engagements.like(actor, post)
        for _ in range(chance.randrange(3)):
            await engagements.unlike(actor, post)
            if chance.random() < 0.5:
                await engagements.like(actor, post)

    done = asyncio.Event()

    async def keep_telling() -> None:
        while not done.is_set():
            await asyncio.gather(community.tell(), community.tell(replay=True))

    telling = asyncio.create_task(keep_telling())
    await asyncio.gather(*map(change_mind, names))
    done.set()
    await telling
    await community.tell()
    likes = await community.redis.smembers(POST_LIKES(post))
    (told,) = await community.told("ana")
    assert told["count"] == len(likes)
    assert set(await community.redis.zrange(NOTIFICATION_ACTORS("ana", told["id"]), 0, -1)) == likes


@on_one_server
@at_most_ten
async def test_a_group_beyond_the_exact_actors_still_counts_all(community: NotifiedCommunity) -> None:
    names = [f"fan{number}" for number in range(14)]
    await community.users("ana", "ben", *names)
    await community.request("POST", "/users/ben/mute", "ana")
    post = await community.post("ana")
    engagements = community.plaza.get(Engagements)
    for name in (*names[:4], "ana", "ben"):
        await engagements.like(Actor(name, "user"), post)
    await asyncio.gather(*(engagements.like(Actor(name, "user"), post) for name in names[4:]))
    await community.tell()
    (told,) = await community.told("ana")
    actors = NOTIFICATION_ACTORS("ana", told["id"])
    assert (told["count"], await community.redis.zcard(actors)) == (14, 10)
    await community.tell(replay=True)
    assert (await community.told("ana"))[0]["count"] == 14
    await community.unlike(post, names[0])  # one of those that only count
    await community.unlike(post, *names[-6:])
    await community.tell()
    assert (await community.told("ana"))[0]["count"] == 7
    assert set(await community.redis.zrange(actors, 0, -1)) == {"ben", *names[1:-6]}


@on_one_server
@at_most_ten
async def test_of_too_many_groups_the_oldest_go_and_no_rebuild_tells_them_again(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben")
    posts = [await community.post("ana", f"Number {number}") for number in range(25)]
    for post in posts:
        await community.like(post, "ben")
    await community.tell()
    expected = await snapshot(community, "ana")
    assert len(expected) == 10
    assert set(expected) <= {f"like:post:{post}:1" for post in posts[-11:]}  # two likes may have the same time
    await community.plaza.get(NotificationRebuild).run_all()
    assert await snapshot(community, "ana") == expected
    assert await community.unread("ana") == 10


@on_one_server
async def test_a_user_has_a_limited_number_of_groups(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    post = await community.post("ana")
    for _ in range(22):
        await community.unlike(post, "ben")
        await community.like(post, "cid", "ben")
        await community.tell()
        await community.request("POST", "/notifications/read", "ana", {"before": 2**50})
        await community.unlike(post, "cid")
        await community.tell()
    assert len(await community.told("ana")) <= 20
    assert await community.unread("ana") == 0


@on_one_server
async def test_hidden_users_and_imports_are_not_told(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid", "dora")
    post = await community.post("ana")
    await community.request("POST", "/users/ben/mute", "ana")
    await community.like(post, "ben", "cid")
    await community.request("PUT", "/notifications/preferences", "ana", {"follow": False})
    await community.request("POST", "/users/ana/follow", "cid")
    await community.sync("likes", {"username": "dora", "post_id": post})
    await community.tell()
    assert await community.told_about("ana") == [("like", post, ["cid"], 1)]
    await community.request("POST", "/users/cid/mute", "ana")
    assert await community.told_about("ana") == []
    assert await community.unread("ana") == 0
    await community.request("DELETE", "/users/cid/mute", "ana")
    assert await community.unread("ana") == 1
    assert (await community.request("GET", "/notifications/preferences", "ana"))["follow"] is False


@on_one_server
async def test_a_rebuild_tells_nothing_that_was_refused(community: NotifiedCommunity) -> None:
    """What was turned off is never told; what hidden users did shows when they are not hidden any more."""
    await community.users("ana", "ben", "cid")
    post = await community.post("ana")
    await community.like(post, "ben")
    await community.comment(post, "cid")
    await community.tell()
    await community.request("PUT", "/notifications/preferences", "ana", {"like": False})
    await community.unlike(post, "ben")
    await community.like(post, "ben", "cid")
    await community.request("POST", "/users/cid/mute", "ana")
    await community.comment(post, "cid", "Once more")
    await community.tell()
    assert await community.told_about("ana") == []
    await community.request("PUT", "/notifications/preferences", "ana", {"like": True})
    await community.request("DELETE", "/users/cid/mute", "ana")
    assert await community.told_about("ana") == [("comment", post, ["cid"], 1)]
    assert await community.plaza.get(NotificationRebuild).run_all() == 0
    assert await community.told_about("ana") == [("comment", post, ["cid"], 1)]


async def snapshot(community: NotifiedCommunity, name: str) -> dict[str, Any]:
    """The stored groups of a user, without their ids."""
    groups = await community.redis.zrange(NOTIFICATIONS(name), 0, -1)
    return {
        id: dict(await community.redis.zrange(NOTIFICATION_ACTORS(name, id), 0, -1, withscores=True)) for id in groups
    }


async def test_a_rebuild_from_source_data_gives_the_same(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    post = await community.post("ana", "For @cid")
    await community.like(post, "ben", "cid")
    comment = await community.comment(post, "ben", "Yes, @cid")
    await community.comment(post, "cid", reply_to=comment)
    await community.request("POST", "/users/ana/follow", "ben")
    article = {"title": "Lighthouses", "link": "https://light.example"}
    id = (await community.request("POST", "/articles", "ana", article, 201))["id"]
    await community.request("POST", f"/articles/{id}/comments", "ben", {"content": "For @cid"}, 201)
    old = await community.post("ben", "Older than the stored events")
    await community.redis.hset(POST(old), "created_at", 1_000)
    await community.request("PATCH", f"/posts/{old}", "ben", {"content": "Edited now, for @cid"})
    await community.tell()
    names = ("ana", "ben", "cid")
    expected = [await snapshot(community, name) for name in names]
    assert [len(groups) for groups in expected] == [4, 1, 4]
    for name in names:
        ids = await community.redis.zrange(NOTIFICATIONS(name), 0, -1)
        for key in [NOTIFICATION_ACTORS(name, id) for id in ids]:
            await community.redis.delete(key)
        for key in (NOTIFICATIONS(name), NOTIFICATIONS_UNREAD(name), NOTIFICATION_GROUPS(name)):
            await community.redis.delete(key)
    rebuild = community.plaza.get(NotificationRebuild)
    await rebuild.run_all()
    assert [await snapshot(community, name) for name in names] == expected
    assert await rebuild.run_all() == 0


async def test_renamed_users_keep_their_notifications_and_their_place_in_those_of_others(
    community: NotifiedCommunity,
) -> None:
    await community.users("ana", "ben", "cid")
    post = await community.post("ana", "For @cid")
    await community.like(post, "ben")
    await community.comment(post, "ben", "Yes, @cid")
    await community.request("POST", "/users/ana/follow", "ben")
    await community.tell()
    await community.request("POST", "/notifications/read", "ana", {"before": 2**50})
    before, mentions = await community.told("ana"), await community.told("cid")
    renaming = community.plaza.get(AccountRenaming)
    await renaming.rename("ben", "bernd")
    await renaming.rename("ana", "anouk")
    await renaming.rename("cid", "cyd")
    await community.tell()
    after = await community.told("anouk")
    assert [(each["id"], each["count"], each["read"]) for each in after] == [
        (each["id"], each["count"], each["read"]) for each in before
    ]
    assert {name for each in after for name in each["actors"]} == {"bernd"}
    assert [each["subject"] for each in await community.told("cyd")] == [each["subject"] for each in mentions]
    for name in ("ana", "cid"):
        for key in (NOTIFICATIONS, NOTIFICATIONS_UNREAD, NOTIFICATION_GROUPS):
            assert not await community.redis.exists(key(name))


async def test_a_deleted_account_leaves_nothing(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    post, other = await community.post("ana"), await community.post("ben", "For @cid")
    mine = await community.post("cid", "For @ana")
    await community.like(post, "ben", "cid")
    await community.comment(other, "ana")
    await community.request("POST", "/users/ana/follow", "ben")
    await community.tell()
    assert await community.redis.zrange(NOTIFIED(f"post:{mine}"), 0, -1) == [f"post:{mine} mention ana"]
    for id in [each["id"] for each in await community.told("ana") if each["type"] in ("follow", "mention")]:
        await community.request("DELETE", f"/notifications/{id}", "ana", status=204)
    exported = await community.request("GET", "/users/me/export", "ana")
    assert [set(each["actors"]) for each in exported["notifications"]["notifications"]] == [{"ben", "cid"}]
    await community.plaza.get(AccountDeletion).delete(Actor("ben", "user"), "ben")
    await community.tell()
    assert await community.told_about("ana") == [("like", post, ["cid"], 1)]
    assert await community.told_about("cid") == []
    await community.plaza.get(AccountDeletion).delete(Actor("ana", "user"), "ana")
    await community.tell(replay=True)
    for key in (NOTIFICATIONS, NOTIFICATIONS_UNREAD, NOTIFICATION_GROUPS, NOTIFICATIONS_DISMISSED):
        for name in ("ana", "ben"):
            assert not await community.redis.exists(key(name))
    assert not await community.redis.exists(NOTIFIED(f"post:{mine}"))
