"""Export, deletion and renaming of a user's pictures."""

from __future__ import annotations

import asyncio
import io
import json
from zipfile import ZipFile

import pytest
from PIL import Image

from plaza.app import Plaza
from plaza.media import personal_data
from plaza.media.contents import WrittenContent
from plaza.media.processor import ProcessedImage
from plaza.media.uploads import Uploads
from plaza.social.account_renaming import AccountRenaming
from tests.http_servers import is_problem
from tests.media.conftest import PictureUser, many, stored_files
from tests.media.images import encoded, picture

PASSWORD = {"password": "correct horse battery"}


async def test_the_export_lists_ones_pictures(ana: PictureUser, ben: PictureUser) -> None:
    mine = [await ana.upload(alt="one"), await ana.upload(alt="two")]
    await ben.upload()
    exported = (await ana.json("GET", "/users/me/export"))["media"]["pictures"]
    assert [each["picture"] for each in exported] == mine
    assert all(each["bytes"] > 100 and each["created_at"] > 1_000_000_000_000 for each in exported)


async def test_the_archive_has_the_data_and_the_files_of_ones_pictures(
    ana: PictureUser, ben: PictureUser, guest: PictureUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(personal_data, "_OF_OWNER", personal_data._OF_OWNER.limit(2))
    monkeypatch.setattr(personal_data, "BATCH", 2)
    noise = encoded(Image.effect_noise((900, 700), 80), "JPEG")  # more than a chunk
    mine = [await ana.upload(noise, "a.jpg"), *[await ana.upload() for _ in range(3)]]
    await ben.upload()
    is_problem(await guest.call("GET", "/users/me/export.zip", 401), 401, "unauthenticated")
    response = await ana.call("GET", "/users/me/export.zip")
    assert response.headers["content-type"] == "application/zip"
    assert "content-length" not in response.headers  # a stream
    archive = ZipFile(io.BytesIO(response.content))
    assert archive.testzip() is None
    data = json.loads(archive.read("data.json"))
    assert [each["picture"] for each in data["media"]["pictures"]] == mine
    assert len(archive.namelist()) == 1 + len(mine)
    for each in mine:
        shown = await ana.call("GET", each["variants"]["large"]["url"], headers={"accept": "image/webp,*/*"})
        extension = shown.headers["content-type"].removeprefix("image/")
        assert archive.read(f"media/{each['id']}.{extension}") == shown.content


async def test_deleting_an_account_deletes_its_pictures_and_no_others(
    plaza: Plaza, ana: PictureUser, ben: PictureUser
) -> None:
    shared = picture(seed=1)
    await many(ana.upload(shared), ana.upload(), ana.upload())
    kept = await ben.upload(shared)
    await ana.call("DELETE", "/users/me", json=PASSWORD)
    assert len(await stored_files(plaza)) == 6
    assert await ben.sees(kept["id"], "large")


async def test_no_upload_outlives_its_account(plaza: Plaza, ana: PictureUser, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload that is still being processed while its account is deleted is refused, and leaves no file."""
    arrived, go_on = asyncio.Event(), asyncio.Event()
    contents = plaza.get(Uploads)._contents
    write = contents.write

    async def write_later(image: ProcessedImage) -> WrittenContent:
        written = await write(image)
        arrived.set()
        await go_on.wait()
        return written

    monkeypatch.setattr(contents, "write", write_later)
    sending = asyncio.create_task(ana.send())
    await arrived.wait()
    await ana.call("DELETE", "/users/me", json=PASSWORD)
    go_on.set()
    is_problem(await sending, 401, "unauthenticated")
    assert await stored_files(plaza) == []


async def test_a_renamed_user_keeps_their_pictures(plaza: Plaza, ana: PictureUser) -> None:
    uploaded = await ana.upload()
    await plaza.get(AccountRenaming).rename("ana", "anna")
    login = await ana.http.post("/auth/login", json={"username": "anna", **PASSWORD})
    anna = PictureUser(ana.http, "anna", {"authorization": f"Bearer {login.json()['access_token']}"})
    assert await anna.sees(uploaded["id"])
    assert (await anna.json("GET", "/users/me/export"))["media"]["pictures"][0]["picture"] == uploaded
    await anna.call("DELETE", f"/media/{uploaded['id']}")
