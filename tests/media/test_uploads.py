"""Uploads over HTTP: what they answer, what they store, what they refuse."""

from __future__ import annotations

import asyncio
import io
import tracemalloc
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from sqlalchemy import delete, text

from plaza.app import Plaza, running
from plaza.core.auth import Actor
from plaza.core.pictures import StoredPicture
from plaza.core.settings import Settings
from plaza.media.tables import PICTURES
from plaza.media.uploads import Uploads
from tests.http_servers import client_of, is_problem
from tests.media.conftest import PictureUser, many, process, register, stored_files
from tests.media.images import HTML, hostile_files, photo_with_location, picture
from tests.servers import Server
from tests.waiting import eventually

FILES = 6  # three variants, each as WebP and JPEG


async def test_an_upload_answers_the_picture_with_its_variants(ana: PictureUser) -> None:
    uploaded = await ana.upload(picture(1000, 500, "JPEG"), "a.jpg", "A red square")
    id = uploaded["id"]
    assert uploaded == {
        "id": id,
        "width": 1000,
        "height": 500,
        "blurhash": uploaded["blurhash"],
        "alt": "A red square",
        "variants": {
            "small": {"url": f"/media/{id}/small", "width": 320, "height": 160},
            "medium": {"url": f"/media/{id}/medium", "width": 960, "height": 480},
            "large": {"url": f"/media/{id}/large", "width": 1000, "height": 500},
        },
    }
    assert len(uploaded["blurhash"]) == 28
    for variant in uploaded["variants"].values():
        shown = Image.open(io.BytesIO((await ana.call("GET", variant["url"])).content))
        assert shown.size == (variant["width"], variant["height"])


async def test_the_same_file_of_two_users_is_stored_once(plaza: Plaza, ana: PictureUser, ben: PictureUser) -> None:
    content = picture(seed=1)
    one, other = await many(ana.upload(content), ben.upload(content))
    assert one["id"] != other["id"]
    assert len(await stored_files(plaza)) == FILES
    await ana.call("DELETE", f"/media/{one['id']}")
    assert len(await stored_files(plaza)) == FILES
    assert await ben.sees(other["id"])
    await ben.call("DELETE", f"/media/{other['id']}")
    assert await stored_files(plaza) == []


async def test_many_uploads_and_deletions_of_the_same_file_at_once_end_with_its_files_or_none(
    plaza: Plaza, ana: PictureUser, ben: PictureUser
) -> None:
    content = picture(seed=2)

    async def come_and_go(user: PictureUser) -> None:
        for _ in range(3):
            await user.call("DELETE", f"/media/{(await user.upload(content))['id']}")

    await many(*(come_and_go(user) for user in (ana, ben, ana, ben)))
    assert await stored_files(plaza) == []
    kept = await ana.upload(content)
    assert await ana.sees(kept["id"], "large")


async def test_an_unused_picture_is_visible_to_its_owner_and_admins_only(
    ana: PictureUser, ben: PictureUser, guest: PictureUser, api: PictureUser
) -> None:
    id = (await ana.upload())["id"]
    assert [await user.sees(id) for user in (ana, api, ben, guest)] == [True, True, False, False]
    private = await ana.call("GET", f"/media/{id}/small")
    assert private.headers["cache-control"] == "no-store"


async def test_only_its_owner_or_an_admin_deletes_a_picture(
    ana: PictureUser, ben: PictureUser, api: PictureUser
) -> None:
    one, other = (await ana.upload())["id"], (await ana.upload())["id"]
    is_problem(await ben.call("DELETE", f"/media/{one}", 403), 403, "forbidden")
    assert (await ana.call("DELETE", f"/media/{one}")).json() == {"id": one, "deleted": True}
    assert (await api.call("DELETE", f"/media/{other}")).json() == {"id": other, "deleted": True}
    is_problem(await ana.call("DELETE", f"/media/{one}", 404), 404, "not_found")


async def test_an_idempotency_key_uploads_once_whatever_the_boundary(plaza: Plaza, ana: PictureUser) -> None:
    content = picture(seed=3)
    answers = [await ana.send(content, **{"idempotency-key": "one"}) for _ in range(2)]  # with other boundaries
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    changed = await ana.send(picture(seed=4), **{"idempotency-key": "one"})
    is_problem(changed, 422, "idempotency_key_reused")
    assert len(await stored_files(plaza)) == FILES


async def test_refused_files_leave_nothing_behind(plaza: Plaza, ana: PictureUser) -> None:
    files = hostile_files()
    for what in ("SVG", "a page in a GIF's comment", "50,000 × 50,000 pixels", "10,000 frames", "JPEG cut in half"):
        filename, content = files[what]
        answer = await ana.send(content, filename)
        assert is_problem(answer, 422, "bad_image")["field"] == "file"
    assert await stored_files(plaza) == []
    assert (await ana.call("GET", "/healthz")).status_code == 200
    assert (await ana.upload())["width"] == 64


async def test_the_location_of_a_photo_is_not_stored(plaza: Plaza, ana: PictureUser) -> None:
    uploaded = await ana.upload(photo_with_location(orientation=6), "a.jpg")
    assert (uploaded["width"], uploaded["height"]) == (48, 64)
    for variant in uploaded["variants"].values():
        for accept in ("image/webp", "image/jpeg"):
            body = (await ana.call("GET", variant["url"], headers={"accept": accept})).content
            assert b"Exif" not in body
            assert b"secret" not in body.lower()


WRONG_FORMS: list[tuple[dict[str, Any], int, str]] = [
    ({"files": {"picture": ("a.png", b"x")}}, 422, "invalid"),
    ({"files": [("file", ("a.png", b"x")), ("file", ("b.png", b"x"))]}, 422, "invalid"),
    ({"data": {"alt": "x"}, "files": {"other": (None, "x")}}, 422, "invalid"),
    ({"files": {"file": ("a.png", b"x")}, "data": {"title": "x"}}, 422, "invalid"),
    ({"files": {"file": ("a.png", b"x")}, "data": {"alt": "x" * 1001}}, 422, "invalid"),
    ({"files": {"file": ("a.png", b"x")}, "data": {"alt": "a\0b"}}, 422, "invalid"),
    ({"json": {"file": "x"}}, 415, "unsupported_media_type"),
    ({"content": HTML, "headers": {"content-type": "multipart/form-data"}}, 415, "unsupported_media_type"),
    ({"content": b"--x\r\n", "headers": {"content-type": "multipart/form-data; boundary=x"}}, 400, "bad_request"),
    ({"content": b"", "headers": {"content-type": "multipart/form-data; boundary=x"}}, 400, "bad_request"),
]


async def test_a_wrong_form_is_refused(ana: PictureUser) -> None:
    for body, status, code in WRONG_FORMS:
        is_problem(await ana.call("POST", "/media", None, **body), status, code)


async def test_an_upload_needs_a_user(guest: PictureUser, api: PictureUser) -> None:
    is_problem(await guest.send(), 401, "unauthenticated")
    is_problem(await api.send(), 403, "forbidden")


async def test_an_upload_larger_than_the_setting_is_refused_before_it_is_sent(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url, rate_limits=False, media_max_bytes=1_000)
    async with running(settings) as plaza, client_of(plaza.app) as http:
        ana = await register(plaza, http, "ana")
        problem = is_problem(await ana.send(b"x" * 1_001), 413, "too_large")
        assert "0.001 MB" in problem["detail"]
        assert is_problem(await ana.send(b"x" * 2_000_000), 413, "too_large")["limit"] > 1_000


async def test_an_upload_is_never_whole_in_memory(server: Server, tmp_path: Path) -> None:
    """What arrives goes to a file without a name in the data directory, in blocks."""
    settings = Settings(data_dir=tmp_path, valkey_url=server.url, rate_limits=False, media_max_bytes=50_000_000)
    async with running(settings) as plaza, client_of(plaza.app) as http:
        ana = await register(plaza, http, "ana")

        async def parts() -> object:
            yield b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
            for _ in range(400):
                yield b"\0" * 100_000
            yield b"\r\n--x--\r\n"

        tracemalloc.start()
        try:
            headers = {"content-type": "multipart/form-data; boundary=x"}
            answer = await ana.call("POST", "/media", None, content=parts(), headers=headers)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        is_problem(answer, 422, "bad_image")
        assert peak < 5_000_000


async def limited(server: Server, tmp_path: Path, **limits: int) -> Settings:
    return Settings(data_dir=tmp_path, valkey_url=server.url, **limits)  # type: ignore[arg-type]


async def test_the_number_of_uploads_in_a_day_is_limited(server: Server, tmp_path: Path) -> None:
    async with (
        running(await limited(server, tmp_path, media_daily_uploads=2)) as plaza,
        client_of(plaza.app) as http,
    ):
        ana, ben = await register(plaza, http, "ana"), await register(plaza, http, "ben")
        await ana.upload()
        is_problem(await ana.send(b"not a picture"), 422, "bad_image")  # costs as much as a picture
        refused = await ana.send()
        assert "2 pictures" in is_problem(refused, 429, "daily_uploads_used")["detail"]
        assert 40_000 < int(refused.headers["retry-after"]) <= 43_200  # half of the quota comes back in half a day
        await ben.upload()


async def test_the_bytes_of_uploads_in_a_day_are_limited(server: Server, tmp_path: Path) -> None:
    async with (
        running(await limited(server, tmp_path, media_daily_bytes=30_000)) as plaza,
        client_of(plaza.app) as http,
    ):
        ana = await register(plaza, http, "ana")
        assert is_problem(await ana.send(b""), 422, "bad_image")["detail"].startswith("It is empty.")
        is_problem(await ana.send(b"x" * 20_000), 422, "bad_image")
        is_problem(await ana.send(b"x" * 20_000), 429, "daily_uploads_used")
        is_problem(await ana.send(b"x" * 5_000), 422, "bad_image")


async def test_the_stored_bytes_of_a_user_never_exceed_the_quota(
    server: Server, sql_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if many uploads, all processed, are stored at once."""
    image = await process(picture(seed=5))
    size = sum(file.bytes for file, _ in image.files)
    settings = replace(sql_settings, valkey_url=server.url, rate_limits=False, media_quota_bytes=2 * size + 1)
    async with running(settings) as plaza, client_of(plaza.app) as http:
        uploads, ana = plaza.get(Uploads), await register(plaza, http, "ana")
        actor = Actor("ana", "user", since_ms=plaza.core.clock.now_ms())
        stored = [uploads.store(image, str(uuid.uuid4()), actor, "") for _ in range(8)]
        results = await asyncio.gather(*stored, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["QuotaUsed"] * 6 + ["StoredPicture"] * 2
        monkeypatch.setattr(uploads, "_settings", replace(settings, media_quota_bytes=size))
        assert "Delete some" in is_problem(await ana.send(), 409, "quota_used")["detail"]  # before it is processed
        kept = [result.id for result in results if isinstance(result, StoredPicture)]
        for id in kept:
            await ana.call("DELETE", f"/media/{id}")
        await ana.upload(picture(seed=5))


@pytest.mark.parametrize("sql_settings", ["postgresql"], indirect=True)
async def test_a_picture_that_is_being_deleted_cannot_be_posted(server: Server, sql_settings: Settings) -> None:
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with running(replace(sql_settings, valkey_url=server.url)) as plaza, client_of(plaza.app) as http:
        ana, sql = await register(plaza, http, "ana"), plaza.core.sql
        id = (await ana.upload())["id"]
        async with sql.begin() as tx:
            await tx.execute(delete(PICTURES).where(PICTURES.c.id == id))
            posting = asyncio.create_task(ana.call("POST", "/posts", None, json={"content": "Look", "media": [id]}))
            await eventually(lambda: sql.fetch_all(text(waiting)))
        assert is_problem(await posting, 422, "invalid")["field"] == "media[0]"
