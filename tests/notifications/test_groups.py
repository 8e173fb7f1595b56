"""Activities are grouped by type and subject until they are read, and follow the source data exactly."""

from __future__ import annotations

import pytest

from plaza.core.event_hub import TooManyListeners
from plaza.notifications import unread_counts
from plaza.notifications.unread_counts import UnreadCounts
from tests.notifications.conftest import NotifiedCommunity, on_one_server


async def test_activities_are_told_to_whom_they_concern(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    post = await community.post("ana")
    await community.like(post, "ben")
    await community.like(post, "cid", "ana")
    first = await community.comment(post, "ben")
    await community.comment(post, "cid", "I agree", reply_to=first)
    await community.request("POST", "/users/ana/follow", "ben")
    await community.tell()
    assert await community.told_about("ana") == [
        ("follow", "ana", ["ben"], 1),
        ("comment", post, ["cid", "ben"], 2),
        ("like", post, ["cid", "ben"], 2),
    ]
    assert await community.told_about("ben") == [("reply", first, ["cid"], 1)]
    assert await community.told_about("cid") == []
    assert await community.unread("ana") == 3
    (reply,) = await community.told("ben")
    assert reply["subject"] == {
        "kind": "comment",
        "id": first,
        "text": "Well said",
        "url": f"/app/posts/{post}?thread={first}",
    }


async def test_undone_activities_disappear(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    post = await community.post("ana")
    await community.like(post, "ben", "cid")
    first, second = await community.comment(post, "ben"), await community.comment(post, "ben", "Once more")
    reply = await community.comment(post, "cid", reply_to=first)
    await community.request("POST", "/users/ana/follow", "ben")
    await community.tell()
    await community.unlike(post, "ben")
    await community.request("DELETE", f"/comments/{second}", "ben")
    await community.request("DELETE", f"/comments/{reply}", "cid")
    await community.request("DELETE", "/users/ana/follow", "ben")
    await community.tell()
    assert sorted(await community.told_about("ana")) == [("comment", post, ["ben"], 1), ("like", post, ["cid"], 1)]
    assert await community.told_about("ben") == []
    await community.request("DELETE", f"/comments/{first}", "ben")
    await community.unlike(post, "cid")
    await community.tell()
    assert await community.told_about("ana") == []
    assert await community.unread("ana") == 0


async def test_what_is_read_stays_and_new_actors_make_a_new_group(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    post = await community.post("ana")
    await community.like(post, "ben")
    await community.tell()
    (group,) = await community.told("ana")
    read = await community.request("POST", "/notifications/read", "ana", {"ids": [group["id"]]})
    assert read == {"read": 1, "unread": 0}
    await community.like(post, "cid")
    await community.tell()
    assert [(each["actors"], each["read"]) for each in await community.told("ana")] == [
        (["cid"], False),
        (["ben"], True),
    ]
    assert [each["actors"] for each in await community.told("ana", "unread")] == [["cid"]]
    await community.unlike(post, "ben")
    await community.tell()
    assert [each["actors"] for each in await community.told("ana")] == [["cid"]]


async def test_replayed_events_change_nothing(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    post, other = await community.post("ana"), await community.post("ana", "Second thoughts of @cid")
    await community.like(post, "ben")
    await community.comment(post, "ben")
    await community.tell()
    before = (await community.told("ana"))[0]["updated_at"]
    await community.request("POST", "/notifications/read", "ana", {"before": before})
    await community.comment(post, "ben", "Again, for @ana")
    await community.like(other, "ben", "cid")
    await community.tell()
    (dismissed,) = [each for each in await community.told("ana") if each["subject"]["id"] == other]
    await community.request("DELETE", f"/notifications/{dismissed['id']}", "ana", status=204)
    await community.request("DELETE", f"/notifications/{dismissed['id']}", "ana", status=404)
    expected, mentioned = await community.told("ana"), await community.told("cid")
    assert [each["type"] for each in mentioned] == ["mention"]
    await community.tell(replay=True)
    assert await community.told("ana") == expected
    assert await community.told("cid") == mentioned
    await community.unlike(other, "ben")
    await community.like(other, "ben")
    await community.tell()
    assert (await community.told_about("ana"))[0] == ("like", other, ["ben"], 1)


async def test_listeners_hear_each_new_number(community: NotifiedCommunity) -> None:
    await community.users("ana", "ben", "cid")
    post = await community.post("ana")
    counts = community.plaza.get(UnreadCounts)
    numbers = counts.changes("ana")
    assert await anext(numbers) == 0
    await community.like(post, "ben")
    await community.tell()
    assert await anext(numbers) == await counts.get("ana") == 1
    await community.request("POST", "/users/ben/block", "ana")
    assert await anext(numbers) == await community.unread("ana") == 0
    assert await community.told_about("ana") == []
    await community.request("DELETE", "/users/ben/block", "ana")
    assert await anext(numbers) == 1
    await numbers.aclose()


@on_one_server
async def test_a_stream_ends_after_a_while_and_a_user_has_few(
    community: NotifiedCommunity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client connects again, and its access is checked again."""
    await community.users("ana")
    monkeypatch.setattr(unread_counts, "MAX_LISTENING_SECONDS", 0.01)
    counts = community.plaza.get(UnreadCounts)
    assert [number async for number in counts.changes("ana")] == [0]
    open_streams = [counts.changes("ana") for _ in range(unread_counts.MAX_PER_USER)]
    for numbers in open_streams:
        await anext(numbers)
    with pytest.raises(TooManyListeners):
        counts.changes("ana")
    for numbers in open_streams:
        await numbers.aclose()
