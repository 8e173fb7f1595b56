"""Pictures of the shop's items."""

from __future__ import annotations

import pytest

from plaza.app import Plaza
from tests.http_servers import is_problem
from tests.media.conftest import PictureUser

LAMP = {"name": "Lamp", "description": "Warm light.", "price": "19.90", "qty": 3}

# One Valkey and one store: `test_post_pictures.py` shows that the others make no difference.
pytestmark = pytest.mark.parametrize("place", ["server"], indirect=True)


@pytest.fixture
def rita(plaza: Plaza, ana: PictureUser) -> PictureUser:
    """An admin."""
    return PictureUser(ana.http, "rita", {"authorization": f"Bearer {plaza.core.auth.issue('rita', 'admin')}"})


async def test_an_item_has_its_pictures(rita: PictureUser, guest: PictureUser) -> None:
    one, two = await rita.upload(alt="On"), await rita.upload(alt="Off")
    item = await rita.json("POST", "/shop/items", 201, **LAMP, media=[one["id"], two["id"]])
    assert item["media"] == [one, two]
    assert (await guest.json("GET", f"/shop/items/{item['id']}"))["media"] == [one, two]
    assert [await guest.sees(each["id"]) for each in (one, two)] == [True, True]
    changed = await rita.json("PATCH", f"/shop/items/{item['id']}", media=[two["id"]])
    assert changed["media"] == [two]
    assert [await guest.sees(each["id"]) for each in (one, two)] == [False, True]
    assert (await rita.json("PATCH", f"/shop/items/{item['id']}", price="9.00"))["media"] == [two]
    assert "media" not in await rita.json("PATCH", f"/shop/items/{item['id']}", media=[])
    assert not await guest.sees(two["id"])


async def test_an_items_picture_stays_when_the_admin_leaves(rita: PictureUser, guest: PictureUser) -> None:
    id = (await rita.upload())["id"]
    await rita.json("POST", "/shop/items", 201, **LAMP, media=[id])
    exported = await rita.json("GET", "/users/me/export")
    assert exported["media"]["pictures"] == []
    assert await guest.sees(id)


async def test_the_api_key_uses_any_picture_and_a_user_none(
    ana: PictureUser, rita: PictureUser, api: PictureUser
) -> None:
    id = (await ana.upload())["id"]
    is_problem(await rita.call("POST", "/shop/items", 422, json={**LAMP, "media": [id]}), 422, "invalid")
    assert (await api.json("GET", "/shop/items"))["items"] == []
    assert (await api.json("POST", "/shop/items", 201, **LAMP, media=[id]))["media"][0]["id"] == id


async def test_deleting_the_picture_removes_it_from_the_item(rita: PictureUser, guest: PictureUser) -> None:
    id = (await rita.upload())["id"]
    item = (await rita.json("POST", "/shop/items", 201, **LAMP, media=[id]))["id"]
    await rita.call("DELETE", f"/media/{id}")
    assert "media" not in await guest.json("GET", f"/shop/items/{item}")
