"""Operators declare and edit events and find all of them, and find the keys of a user, a post or an item."""

from __future__ import annotations

import msgspec
import pytest

from plaza.app import Plaza
from plaza.core.auth import API
from plaza.live.heartbeats import LiveService
from plaza.live.model import EventDeclaration
from plaza.shop.items import Items
from plaza.shop.model import NewItem
from plaza.social.users import Users
from tests.pages.conftest import PageClient

LIVE = "/app/operator/live"


@pytest.fixture
async def admin(plaza: Plaza, ana: PageClient) -> PageClient:
    await plaza.get(Users).set_role(API, "ana", "admin")
    return ana


async def test_an_operator_declares_and_edits_an_event_without_typing_an_id(plaza: Plaza, admin: PageClient) -> None:
    new = {"title": "The <fair>", "starts": "2027-01-02T18:30", "description": "Music.", "sessions": "stage, hall"}
    form = {**await admin.hidden_fields(LIVE), **new}
    places = {(await admin.post(LIVE, data=form)).headers["location"] for _ in range(2)}
    (place,) = places
    event = place.partition("event=")[2]
    assert event.startswith("the-fair-")
    declared = await plaza.get(LiveService).get_event(event)
    assert (declared.title, declared.description, sorted(declared.sessions)) == (
        "The <fair>",
        "Music.",
        ["hall", "stage"],
    )
    assert declared.starts_at == 1_798_914_600_000
    page = (await admin.get(LIVE)).text
    assert f'href="{place}"' in page
    assert 'value="2027-01-02T18:30"' in page
    await admin.submit(place, page=place, title="The fair", starts="", description="")
    edited = await plaza.get(LiveService).get_event(event)
    assert (edited.title, edited.starts_at, edited.description) == ("The fair", None, None), "all but the title emptied"
    refused = await admin.submit(LIVE, page=LIVE, title="x" * 501)
    assert (refused.status_code, "Title must have at most 500 characters." in refused.text) == (422, True)
    for starts in ("tomorrow", "0001-01-01T00:00", "9999-12-31T23:59", "2027-01-02T18:30+05:00"):
        refused = await admin.submit(LIVE, page=LIVE, title="Fair", starts=starts)
        assert (refused.status_code, "Use a date and a time in UTC" in refused.text) == (422, True), starts


async def test_an_operator_changes_only_what_they_edited_of_an_event(plaza: Plaza, admin: PageClient) -> None:
    live = plaza.get(LiveService)
    old = {"title": "The fiar", "description": "Music.\r\nFood."}
    await live.declare("fair", msgspec.convert({**old, "starts_at": 1_798_914_612_345}, EventDeclaration))
    place = f"{LIVE}?event=fair"
    shown = {**old, "starts": "2027-01-02T18:30", "sessions": ""}
    late = {**await admin.hidden_fields(place, place.replace("&", "&amp;")), **shown, "title": "The fair"}
    await live.declare("fair", EventDeclaration(starts_at=1_800_000_000_000, description="Cancelled."))
    refused = await admin.post(place, data={**late, "title": ""})
    assert (refused.status_code, "Title is required." in refused.text) == (422, True)
    assert 'value="2027-01-15T08:00"' in refused.text, "what another operator has changed is shown"
    assert (await admin.post(place, data=late)).status_code == 303
    edited = await live.get_event("fair")
    assert (edited.title, edited.starts_at, edited.description) == ("The fair", 1_800_000_000_000, "Cancelled.")


async def test_an_undeclared_event_with_viewers_is_listed_and_can_be_declared(plaza: Plaza, admin: PageClient) -> None:
    guest = await admin.post("/analytics/viewer-token")
    beat = {"location": "web"}
    token = {"authorization": f"Bearer {guest.json()['token']}"}
    sent = await admin.post("/analytics/events/surprise/heartbeat", json=beat, headers=token)
    assert sent.status_code == 200, sent.text
    page = (await admin.get(LIVE)).text
    assert "not declared" in page
    await admin.submit(f"{LIVE}?event=surprise", page=LIVE, title="A surprise")
    assert "not declared" not in (await admin.get(LIVE)).text


async def test_an_operator_opens_the_keys_of_a_user_a_post_and_an_item(plaza: Plaza, admin: PageClient) -> None:
    created = await admin.submit("/app/posts", page="/app", next="", content="Hi")
    post = created.headers["location"].rpartition("/")[2]
    item = (await plaza.get(Items).create(NewItem("Lamp", "", "1.00", 1), "one")).id
    assert f"keys?of=post&amp;id={post}" in (await admin.get(f"/app/posts/{post}")).text
    for of, id, key in (("user", "ana", "user:ana"), ("post", post, f"post:{post}"), ("item", item, f"inv:{item}")):
        page = (await admin.get("/app/operator/keys", params={"of": of, "id": str(id)})).text
        assert f">{key}</code>" in page
        assert "auth:" not in page, "no secrets"
    found = (await admin.get("/app/operator/keys", params={"q": "user:ana"})).text
    assert "/app/operator/keys/user/key?name=user" in found
    hostile = await admin.get("/app/operator/keys", params={"of": "user", "id": "<b>\u0000x"})
    assert (hostile.status_code, "<b>" in hostile.text.partition("<h1")[2]) == (200, False)
