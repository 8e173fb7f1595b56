"""Each type of notification: who is told of what, and that it ends with its cause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import update

from plaza.challenges.reminders import ChallengeReminders
from plaza.challenges.tables import MEMBER
from plaza.core import event_progress
from plaza.core.auth import Actor
from plaza.core.event_progress import EventProgress
from plaza.core.invariants import NOT_COMPARED
from plaza.keyspace.audit import REPAIR, Audits
from plaza.notifications.invariants import NotificationInspector
from plaza.notifications.jobs import GROUP
from plaza.notifications.keys import NOTIFICATION_ACTORS, NOTIFICATIONS, NOTIFICATIONS_UNREAD, NOTIFIED
from plaza.reports.service import Reports
from plaza.social.account_renaming import AccountRenaming
from plaza.social.keys import COMMENT, POST, POST_COMMENTS_RECENT, POST_LIKES_RECENT
from tests.communities import API_KEY
from tests.notifications.conftest import NotifiedCommunity, on_one_server
from tests.round_trips import count_round_trips
from tests.steady_events import create_groups, handle_all, one_event_behind
from tests.waiting import eventually


@pytest.fixture
async def working(community: NotifiedCommunity) -> AsyncIterator[None]:
    """A worker that consumes events."""
    worker = asyncio.create_task(community.plaza.worker.run())
    yield
    worker.cancel()
    await asyncio.wait([worker])


async def test_mentions_are_told_once_and_follow_edits(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid", "dora")
    post = await community.post("ana", "With @ben and @nobody-here, mail ana@cid.example")
    comment = await community.comment(post, "ben", "Ask @ana and @cid")
    reply = await community.comment(post, "dora", "@ben, I did", reply_to=comment)
    await community.tell()
    assert await community.told_about("ben") == [("reply", comment, ["dora"], 1), ("mention", post, ["ana"], 1)]
    assert await community.told_about("ana") == [("comment", post, ["dora", "ben"], 2)]
    assert await community.told_about("cid") == [("mention", comment, ["ben"], 1)]
    await community.request("PATCH", f"/posts/{post}", "ana", {"content": "With @dora"})
    await community.request("PATCH", f"/comments/{comment}", "ben", {"content": "Ask @dora and @ana"})
    await community.tell()
    assert await community.unread("cid") == 0
    assert {each[:2] for each in await community.told_about("dora")} == {("mention", comment), ("mention", post)}
    await community.request("DELETE", f"/comments/{reply}", "dora")
    await community.request("DELETE", f"/comments/{comment}", "ben")
    await community.tell()
    assert await community.told_about("ben") == []
    assert await community.unread("dora") == 1
    assert await community.told_about("dora") == [("mention", post, ["ana"], 1)]
    await community.tell(replay=True)
    assert await community.told_about("dora") == [("mention", post, ["ana"], 1)]


async def test_what_is_below_a_post_of_a_blocking_user_is_hidden(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    post = await community.post("ana")
    await community.request("POST", "/users/cid/block", "ana")
    comment = await community.comment(post, "ben", "A secret for @cid")
    await community.tell()
    assert await community.told_about("cid") == []
    assert await community.unread("cid") == 0
    await community.plaza.get(AccountRenaming).rename("ana", "anouk")
    await community.tell()
    assert (await community.told_about("cid"), await community.unread("cid")) == ([], 0)
    await community.request("DELETE", "/users/cid/block", "anouk")
    assert await community.told_about("cid") == [("mention", comment, ["ben"], 1)]


async def test_nothing_below_a_banned_or_deleted_post_is_unread(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    post = await community.post("ana", "With @ben")
    comment = await community.comment(post, "cid", "For @ben")
    await community.comment(post, "ben", "Thanks", reply_to=comment)
    await community.tell()
    assert (await community.unread("ben"), await community.unread("cid")) == (2, 1)
    await community.plaza.get(AccountRenaming).rename("ben", "bernd")
    await community.request("PATCH", f"/posts/{post}/ban", "root")
    await community.tell()
    assert (await community.unread("bernd"), await community.unread("cid")) == (0, 0)
    await community.request("DELETE", f"/posts/{post}/ban", "root")
    await community.tell()
    assert (await community.unread("bernd"), await community.unread("cid")) == (2, 1)
    await community.request("DELETE", f"/posts/{post}", "ana")
    await community.tell()
    assert (await community.unread("bernd"), await community.unread("cid")) == (0, 0)
    for root in (f"post:{post}", f"comment:{post}"):
        assert not await community.redis.exists(NOTIFIED(root))


async def test_mentions_follow_several_edits_at_once(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben")
    post = await community.post("ana", "With @ben")
    await community.tell()
    for text in ("Alone", "Still alone"):
        await community.request("PATCH", f"/posts/{post}", "ana", {"content": text})
    await community.tell()
    assert await community.told_about("ben") == []


@on_one_server
async def test_a_text_that_follows_its_event_is_read(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    post = await community.post("ana")
    comment = await community.comment(post, "ben", "For @cid")
    stored = await community.redis.hgetall(COMMENT(comment))
    await community.redis.delete(COMMENT(comment))
    telling = asyncio.create_task(community.tell())
    await community.redis.hset(COMMENT(comment), mapping=stored)
    await telling
    assert await community.told_about("cid") == [("mention", comment, ["ben"], 1)]


async def test_discussions_of_articles_are_told(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    article = {"title": "Lighthouses", "link": "https://light.example"}
    id = (await community.request("POST", "/articles", "ana", article, 201))["id"]
    path = f"/articles/{id}/comments"
    first = (await community.request("POST", path, "ben", {"content": "For @cid"}, 201))["id"]
    second = (await community.request("POST", path, "cid", {"content": "Thanks", "reply_to": first}, 201))["id"]
    await community.tell()
    assert await community.told_about("ana") == [("article_comment", str(id), ["cid", "ben"], 2)]
    assert await community.told_about("ben") == [("reply", first, ["cid"], 1)]
    assert await community.told_about("cid") == [("mention", first, ["ben"], 1)]
    for text in ("For all", "For @cid"):
        await community.request("PATCH", f"/article-comments/{first}", "ben", {"content": text})
        await community.tell()
        assert await community.unread("cid") == int("@" in text)
    await community.tell(replay=True)
    assert await community.told_about("ana") == [("article_comment", str(id), ["cid", "ben"], 2)]
    await community.request("DELETE", f"/article-comments/{second}", "cid")
    await community.tell()
    assert await community.told_about("ana") == [("article_comment", str(id), ["ben"], 1)]
    assert await community.told_about("ben") == []
    await community.request("DELETE", f"/articles/{id}", "ana")
    await community.tell()
    assert await community.unread("cid") == 0
    assert await community.told_about("ana") == await community.told_about("cid") == []


@on_one_server
async def test_reactions_in_challenges_are_told(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    challenge = {"title": "Walk", "category": 1, "is_public": True, "duration": 30}
    id = (await community.request("POST", "/challenges", "ana", challenge, 201))["id"]
    await community.request("POST", f"/challenges/{id}/join", "ana", status=201)
    text = {"text": "Ten kilometres with @cid"}
    post = (await community.request("POST", f"/challenges/{id}/posts", "ana", text, 201))["id"]
    await community.request("PUT", f"/challenges/posts/{post}/reaction", "ben")
    await community.told_soon("ana", ("challenge_reaction", str(post), ["ben"], 1))
    assert await community.told_about("cid") == [("mention", str(post), ["ana"], 1)]
    await community.request("DELETE", f"/challenges/posts/{post}/reaction", "ben")
    await community.told_soon("ana")
    await community.request("PUT", f"/challenges/posts/{post}/reaction", "ben")
    await community.told_soon("ana", ("challenge_reaction", str(post), ["ben"], 1))
    new = {"subject": "challenge_post", "id": str(post), "reason": "Too far"}
    number = (await community.request("POST", "/reports", "ben", new, 201))["id"]
    reports = community.plaza.get(Reports)
    await reports.remove_thing(Actor("root", "admin"), await reports.get(number))
    await community.told_soon("ana")
    assert (await community.unread("ana"), await community.unread("cid")) == (0, 0)
    await community.request("PUT", f"/challenges/posts/{post}/reaction", "ben", status=404)


@on_one_server
async def test_members_are_told_of_changes_of_a_challenge(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    challenge = {"title": "Walk", "category": 1, "is_public": True, "duration": 30}
    id = (await community.request("POST", "/challenges", "ana", challenge, 201))["id"]
    for name in ("ana", "ben"):
        await community.request("POST", f"/challenges/{id}/join", name, status=201)
    post = (await community.request("POST", f"/challenges/{id}/posts", "ben", {"text": "With @cid"}, 201))["id"]
    await community.request("PATCH", f"/challenges/{id}", "ana", {"title": "Walk far"})
    await community.told_soon("ben", ("challenge", str(id), [], 1))
    await community.told_soon("cid", ("mention", str(post), ["ben"], 1))
    await community.request("PATCH", f"/challenges/posts/{post}", "ben", {"text": "Alone"})
    await community.told_soon("cid")
    await community.request("DELETE", f"/challenges/{id}", "ana")

    async def is_told_of_deletion() -> bool:
        await community.tell()
        (told,) = await community.told("ben")
        return (told["action"], told["count"], told["subject"].get("url")) == ("deleted", 1, "")

    await eventually(is_told_of_deletion)
    assert await community.told_about("ana") == []


@on_one_server
async def test_comments_on_challenge_posts_are_told_until_they_are_deleted(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    challenge = {"title": "Knit", "category": 1, "is_public": True, "duration": 30}
    id = (await community.request("POST", "/challenges", "ana", challenge, 201))["id"]
    await community.request("POST", f"/challenges/{id}/join", "ana", status=201)
    post = (await community.request("POST", f"/challenges/{id}/posts", "ana", {"text": "Done."}, 201))["id"]
    path = f"/challenges/posts/{post}/comments"
    first, second = [
        (await community.request("POST", path, name, {"content": "Nice"}, 201))["id"] for name in ("ben", "cid")
    ]
    await community.request("POST", path, "ana", {"content": "Thanks", "reply_to": first}, 201)
    await community.told_soon("ana", ("comment", str(post), ["cid", "ben"], 2))
    await community.plaza.get(AccountRenaming).rename("cid", "cleo")
    await community.told_soon("ana", ("comment", str(post), ["cleo", "ben"], 2))
    await community.request("DELETE", f"/challenge-comments/{second}", "cleo")
    await community.told_soon("ana", ("comment", str(post), ["ben"], 1))
    await community.request("POST", "/users/ana/block", "ben")
    await community.request("POST", path, "ben", {"content": "Nice"}, 404)
    await community.request("GET", path, "ben", status=404)
    await community.request("DELETE", f"/challenges/posts/{post}", "ana")
    await community.told_soon("ana")


@on_one_server
async def test_replies_and_mentions_in_comments_of_challenges_are_told(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    challenge = {"title": "Knit", "category": 1, "is_public": True, "duration": 30}
    id = (await community.request("POST", "/challenges", "ana", challenge, 201))["id"]
    await community.request("POST", f"/challenges/{id}/join", "ana", status=201)
    post = (await community.request("POST", f"/challenges/{id}/posts", "ana", {"text": "Done."}, 201))["id"]
    path = f"/challenges/posts/{post}/comments"
    first = (await community.request("POST", path, "ben", {"content": "With @ana and @cid"}, 201))["id"]
    reply = (await community.request("POST", path, "cid", {"content": "@ben, yes", "reply_to": first}, 201))["id"]
    await community.told_soon("ana", ("comment", str(post), ["cid", "ben"], 2))
    await community.told_soon("ben", ("reply", str(first), ["cid"], 1))
    await community.told_soon("cid", ("mention", str(first), ["ben"], 1))
    assert (await community.told("ben"))[0]["subject"] == {
        "kind": "challenge_comment",
        "id": str(first),
        "text": "With @ana and @cid",
        "url": f"/app/challenges/posts/{post}#comment-{first}",
    }
    await community.plaza.get(AccountRenaming).rename("cid", "cleo")
    await community.told_soon("ben", ("reply", str(first), ["cleo"], 1))
    await community.request("PATCH", f"/challenge-comments/{first}", "ben", {"content": "With @dora"})
    await community.told_soon("cleo")
    await community.request("PATCH", f"/challenge-comments/{first}", "ben", {"content": "With @cleo"})
    await community.told_soon("cleo", ("mention", str(first), ["ben"], 1))
    await community.request("POST", "/users/cleo/block", "ana")
    assert await community.told_about("cleo") == [], "it is below a post of a user who blocks"
    await community.request("DELETE", "/users/cleo/block", "ana")
    await community.request("DELETE", f"/challenge-comments/{reply}", "cleo")
    await community.told_soon("ben")
    await community.request("DELETE", f"/challenges/posts/{post}", "ana")
    await community.told_soon("cleo")
    assert await community.redis.zcard(NOTIFIED(f"challenge_comment:{post}")) == 0


@on_one_server
async def test_what_is_written_in_a_private_challenge_is_shown_to_members_only(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    challenge = {"title": "Knit", "category": 1, "is_public": False, "duration": 30}
    id = (await community.request("POST", "/challenges", "ana", challenge, 201))["id"]
    await community.request("PUT", f"/challenges/{id}/invitations/ben", "ana")
    for name in ("ana", "ben"):
        await community.request("POST", f"/challenges/{id}/join", name, status=201)
    text = {"text": "With @ben and @cid"}
    post = (await community.request("POST", f"/challenges/{id}/posts", "ana", text, 201))["id"]
    path = f"/challenges/posts/{post}/comments"
    comment = (await community.request("POST", path, "ana", {"content": "@ben and @cid?"}, 201))["id"]
    told = [("mention", str(comment), ["ana"], 1), ("mention", str(post), ["ana"], 1)]
    await community.told_soon("ben", *told)
    assert {each["subject"]["text"] for each in await community.told("ben")} == {text["text"], "@ben and @cid?"}
    assert await community.told_about("cid") == []
    mine = (await community.request("POST", f"/challenges/{id}/posts", "ben", {"text": "Done."}, 201))["id"]
    await community.request("PUT", f"/challenges/posts/{mine}/reaction", "ana")
    await community.request("PATCH", f"/challenges/{id}", "ana", {"title": "Knit more"})
    reaction = ("challenge_reaction", str(mine), ["ana"], 1)
    await community.told_soon("ben", ("challenge", str(id), [], 1), reaction, *told)
    await community.request("DELETE", f"/challenges/{id}/join", "ben")
    await community.told_soon("ben", reaction)
    subject = (await community.told("ben"))[0]["subject"]
    assert (subject["text"], subject["url"]) == ("", "")
    assert [str(group) for group in (await community.plaza.get(Audits).run()).groups] == []


@on_one_server
async def test_invitations_to_challenges_are_told_until_they_end(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben")
    challenge = {"title": "Knit", "category": 1, "is_public": False, "duration": 30}
    id = (await community.request("POST", "/challenges", "ana", challenge, 201))["id"]
    path = f"/challenges/{id}/invitations/ben"
    await community.request("POST", f"/challenges/{id}/join", "ben", status=403)
    await community.request("PUT", f"/challenges/{id}/invitations/nobody-here", "ana", status=404)
    await community.request("PUT", path, "ana")
    await community.told_soon("ben", ("challenge_invitation", str(id), ["ana"], 1))
    await community.request("DELETE", path, "ben")
    await community.told_soon("ben")
    await community.request("PUT", path, "ana")
    await community.told_soon("ben", ("challenge_invitation", str(id), ["ana"], 1))
    await community.request("POST", f"/challenges/{id}/join", "ben", status=201)
    await community.told_soon("ben")


@on_one_server
async def test_reminders_are_told_until_the_day_is_tracked(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben")
    challenge = {"title": "Knit", "category": 1, "is_public": True, "duration": 30}
    id = (await community.request("POST", "/challenges", "ana", challenge, 201))["id"]
    path, reminder = f"/challenges/{id}", {"hour": 18, "time_zone": "Europe/Berlin"}
    await community.request("PUT", f"{path}/reminder", "ben", reminder, 403)
    await community.request("POST", f"{path}/join", "ben", status=201)
    for wrong in ({"hour": 24}, {"hour": -1}, {"hour": 7.5}, {"hour": 18, "time_zone": "Mars/Base"}):
        problem = await community.request("PUT", f"{path}/reminder", "ben", wrong, 422)
        assert problem["field"] == list(wrong)[-1]
    assert (await community.request("GET", f"{path}/progress", "ben"))["reminder"] is None
    saved = await community.request("PUT", f"{path}/reminder", "ben", reminder)
    assert reminder.items() <= saved["reminder"].items()
    reminders, sql = community.plaza.get(ChallengeReminders), community.plaza.core.sql

    async def is_reminded() -> bool:
        async with sql.begin() as tx:  # again each time, in case midnight passes
            now = community.plaza.core.clock.now_ms()
            await tx.execute(update(MEMBER).values(reminder_due_ms=now, reminded_ms=None))
        assert await reminders.send_due(1) <= 1
        await community.tell()
        return [(each["type"], each["action"]) for each in await community.told("ben")] == [
            ("challenge_reminder", "untracked")
        ]

    await eventually(is_reminded)
    assert [str(group) for group in (await community.plaza.get(Audits).run()).groups] == []
    for _ in range(2):
        await community.request("POST", f"{path}/track", "ben", status=201)
        await community.told_soon("ben")
        await community.request("DELETE", f"{path}/track", "ben")
        await community.told_soon("ben", ("challenge_reminder", str(id), [], 1))
    await community.tell(replay=True)
    await community.told_soon("ben", ("challenge_reminder", str(id), [], 1))
    await community.request("DELETE", f"{path}/join", "ben")
    await community.told_soon("ben")
    await community.request("POST", f"{path}/join", "ben", status=201)
    await community.request("PUT", f"{path}/reminder", "ben", reminder)
    await eventually(is_reminded)
    await community.request("DELETE", path, "ana")
    await community.told_soon("ben", ("challenge", str(id), [], 1))


@on_one_server
async def test_moderation_names_no_admin(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben")
    post = await community.post("ana")
    await community.like(post, "ben")
    report = {"subject": "post", "id": post, "reason": "Too bright"}
    number = (await community.request("POST", "/reports", "ben", report, 201))["id"]
    await community.request("PATCH", f"/posts/{post}/ban", "root")
    await community.request("PATCH", f"/reports/{number}", "root", {"state": "resolved", "note": "Banned."})
    await community.request("PUT", "/users/ben/suspension", "root")
    await community.told_soon("ben", ("moderation", "ben", [], 1), ("moderation", str(number), [], 1))
    (banned,) = await community.told("ana")
    assert (banned["type"], banned["action"], banned["actors"]) == ("moderation", "banned", [])
    assert banned["subject"] == {"kind": "post", "id": post, "text": "First light", "url": ""}
    assert await community.unread("ana") == 1
    await community.request("DELETE", f"/posts/{post}/ban", "root")
    await community.request("DELETE", "/users/ben/suspension", "root")
    await community.tell()
    assert {(each["type"], each.get("action")) for each in await community.told("ana")} == {
        ("moderation", "unbanned"),
        ("like", None),
    }
    assert {each["action"] for each in await community.told("ben")} == {"unsuspended", "resolved"}
    await community.request("PATCH", f"/reports/{number}", "root", {"state": "open"})
    await community.told_soon("ben", ("moderation", "ben", [], 1))


@on_one_server
async def test_customers_are_told_of_orders(community: NotifiedCommunity) -> None:
    account = {"username": "ana", "password": "correct horse battery staple"}
    await community.request("POST", "/auth/register", body=account, status=201)
    item = {"name": "Lamp", "description": "A lamp", "price": "19.90", "qty": 3}
    made = await community.http.post("/shop/items", json=item, headers={"x-api-key": API_KEY})
    await community.request("POST", "/shop/login", body=account)
    await community.request("PUT", f"/shop/cart/items/{made.json()['id']}", body={"qty": 2})
    order = (await community.request("POST", "/shop/checkout", status=201))["id"]
    await community.told_soon("ana", ("order", str(order), [], 1))
    (told,) = await community.told("ana")
    assert (told["action"], told["subject"]["text"]) == ("placed", f"Order {order}: €39.80")
    key = {"x-api-key": API_KEY}
    await community.request("POST", "/notifications/read", "ana", {"ids": [told["id"]]})
    await community.http.patch(f"/admin/orders/{order}", json={"state": "paid"}, headers=key)
    await community.told_soon("ana", ("order", str(order), [], 1), ("order", str(order), [], 1))
    assert [each["action"] for each in await community.told("ana")] == ["paid", "placed"]


async def test_the_audit_repairs_what_differs_from_source_data(community: NotifiedCommunity, working: None) -> None:
    await community.users("ana", "ben", "cid")
    post = await community.post("ana")
    await community.like(post, "ben")
    await community.comment(post, "cid")
    audits, id = community.plaza.get(Audits), f"like:post:{post}:1"

    async def is_told() -> bool:
        return await community.unread("ana") == 2

    await eventually(is_told)
    expected = await community.told("ana")
    assert [str(group) for group in (await audits.run()).groups] == []
    await community.redis.zadd(NOTIFICATION_ACTORS("ana", id), {"cid": 5})
    await community.redis.zadd(NOTIFICATIONS("ana"), {id: 1, "follow:user:7": 9})
    await community.redis.zadd(NOTIFICATIONS_UNREAD("ana"), {"follow:user:9": 9})
    await community.redis.zadd(NOTIFICATION_ACTORS("ana", "follow:user:8"), {"cid": 5})
    repaired = await audits.run(REPAIR)
    assert {group.rule for group in repaired.groups} >= {"group", "listed", "grouped", "source"}
    assert [str(group) for group in (await audits.run()).groups] == []
    assert await community.told("ana") == expected


@on_one_server
async def test_the_audit_compares_all_groups_at_once(community: NotifiedCommunity) -> None:
    """After a failover thousands may differ, and each is read again until no event waits."""
    await community.users("ana", "ben")
    posts = [await community.post("ana") for _ in range(6)]
    for post in posts:
        await community.like(post, "ben")
    auditor = community.plaza.get(Audits).auditor
    (inspector,) = [each for each in auditor.inspectors if isinstance(each, NotificationInspector)]
    progress = EventProgress(community.plaza.core.valkey, streams_of(community), GROUP)
    worker = asyncio.create_task(community.plaza.worker.run())

    async def is_told() -> bool:
        return await community.unread("ana") == 6 and await progress.has_caught_up()

    await eventually(is_told)
    worker.cancel()
    await asyncio.wait([worker])
    wrong: list[str] = []

    async def inspect() -> None:
        wrong[:] = [violation.member async for violation in inspector.inspect()]

    rounds = []
    for count in (1, 6):
        for post in posts[:count]:
            await community.redis.zadd(NOTIFICATION_ACTORS("ana", f"like:post:{post}:1"), {"cid": 5})
        rounds.append(await count_round_trips(community.plaza.core.valkey, inspect()))
        assert len(wrong) == count
    assert rounds[0] == rounds[1]


def streams_of(community: NotifiedCommunity) -> list[str]:
    return sorted({source.stream for source in community.recorder.sources})


@on_one_server
async def test_the_audit_compares_groups_also_if_some_event_always_waits(
    community: NotifiedCommunity, monkeypatch: pytest.MonkeyPatch
) -> None:
    await community.users("ana", "ben")
    post = await community.post("ana")
    await community.like(post, "ben")
    await community.tell()
    id, valkey = f"like:post:{post}:1", community.plaza.core.valkey
    await community.redis.zadd(NOTIFICATION_ACTORS("ana", id), {"cid": 5})
    inspector = NotificationInspector(valkey, community.recorder)

    async def found() -> list[tuple[str, str]]:
        return [(violation.rule, violation.member) async for violation in inspector.inspect()]

    assert await found() == [], "no worker has told anyone anything yet"
    async with one_event_behind(valkey, streams_of(community), GROUP):
        assert await found() == [("source", id)]
    monkeypatch.setattr(event_progress, "MAX_IDLE_SECONDS", 0)
    assert await found() == [(NOT_COMPARED, "")]


@on_one_server
async def test_the_audit_compares_groups_beside_odd_data_of_other_services(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben")
    damaged = await community.post("ben", "With @ana")
    post = await community.post("ana")
    await community.like(post, "ben")
    comment = await community.comment(post, "ben")
    await community.comment(post, "ana", "Thanks", reply_to=comment)
    await community.tell()
    valkey, redis = community.plaza.core.valkey, community.redis
    await create_groups(valkey, streams_of(community), GROUP)
    await handle_all(valkey, streams_of(community), GROUP)
    inspector = NotificationInspector(valkey, community.recorder)

    async def found() -> set[tuple[str, str]]:
        return {(violation.rule, violation.member) async for violation in inspector.inspect()}

    assert await found() == set()
    await redis.delete(POST(damaged))
    await redis.set(POST(damaged), "x")
    assert await redis.exists(NOTIFICATION_ACTORS("ana", f"mention:post:{damaged}:1"))
    assert await found() == set(), "the post is a finding of its own; it has to be repaired first"
    like, below = f"like:post:{post}:1", f"comment:post:{post}:1"
    await redis.zadd(NOTIFICATION_ACTORS("ana", like), {"ben": "inf"})
    await redis.zadd(POST_COMMENTS_RECENT(post), {comment: "inf"})
    assert await found() == {("source", like), ("source", below)}
    await redis.zadd(POST_LIKES_RECENT(post), {"ben": "inf"})
    assert ("source", below) in await found()
