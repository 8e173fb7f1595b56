"""Delivery: caching, formats, ranges, security headers; from a folder, and from S3 by streaming or redirect."""

from __future__ import annotations

import io
from dataclasses import replace

import httpx
import pytest
from PIL import Image

from plaza.app import Plaza, running
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from plaza.media.object_store import CHUNK_BYTES, MediaStore
from tests.http_servers import client_of, is_problem
from tests.media.conftest import PictureUser, register, stored_files
from tests.media.images import encoded, picture


@pytest.fixture
async def public(ana: PictureUser, guest: PictureUser) -> str:
    """The address of a picture that everyone may see."""
    id = (await ana.upload(picture(300, 200, "JPEG"), "a.jpg"))["id"]
    await ana.json("PUT", "/users/me/avatar", media=id)
    return f"/media/{id}/large"


async def test_a_picture_has_the_headers_of_an_immutable_harmless_file(guest: PictureUser, public: str) -> None:
    shown = await guest.call("GET", public)
    assert shown.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert shown.headers["content-security-policy"] == "default-src 'none'; sandbox; frame-ancestors 'none'"
    assert shown.headers["vary"] == "accept"
    assert shown.headers["accept-ranges"] == "bytes"
    assert shown.headers["content-type"] == "image/webp"
    assert Image.open(io.BytesIO(shown.content)).format == "WEBP"


async def test_a_picture_that_the_client_has_is_not_sent_again(guest: PictureUser, public: str) -> None:
    etag = (await guest.call("GET", public)).headers["etag"]
    for condition in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        known = await guest.call("GET", public, 304, headers={"if-none-match": condition})
        assert (known.content, known.headers["etag"]) == (b"", etag)
        assert "immutable" in known.headers["cache-control"]
    await guest.call("GET", public, 200, headers={"if-none-match": '"other"'})


async def test_a_hidden_picture_is_not_confirmed_by_its_etag(ana: PictureUser, guest: PictureUser, public: str) -> None:
    etag = (await guest.call("GET", public)).headers["etag"]
    await ana.json("DELETE", "/users/me/avatar")
    gone = await guest.call("GET", public, 404, headers={"if-none-match": etag})
    assert gone.headers["cache-control"] == "no-store"


async def test_the_format_follows_accept(guest: PictureUser, public: str) -> None:
    for accept, expected in (
        ("image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8", "image/webp"),
        ("*/*", "image/webp"),
        ("image/*", "image/webp"),
        ("image/jpeg", "image/jpeg"),
        ("image/jpeg,image/png;q=0.5", "image/jpeg"),
        ("image/webp;q=0.3,image/jpeg;q=0.9", "image/jpeg"),
        ("image/webp;q=0, */*", "image/jpeg"),
        ("image/png", "image/webp"),
        ("nonsense;q=x;;,", "image/webp"),
    ):
        shown = await guest.call("GET", public, headers={"accept": accept})
        assert shown.headers["content-type"] == expected, accept
        assert shown.content[:2] == (b"RI" if expected == "image/webp" else b"\xff\xd8")
    etags = {
        (await guest.call("GET", public, headers={"accept": f"image/{kind}"})).headers["etag"]
        for kind in ("webp", "jpeg")
    }
    assert len(etags) == 2


async def test_parts_of_a_picture_are_sent(guest: PictureUser, public: str) -> None:
    whole = await guest.call("GET", public)
    size, etag = len(whole.content), whole.headers["etag"]
    for wanted, start, end in (
        ("bytes=0-9", 0, 10),
        ("bytes=10-", 10, size),
        ("bytes=-7", size - 7, size),
        (f"bytes=5-{size + 100}", 5, size),
        (f"bytes=-{size + 100}", 0, size),
    ):
        part = await guest.call("GET", public, None, headers={"range": wanted})
        assert part.content == whole.content[start:end], wanted
        if end - start < size:
            assert part.status_code == 206
            assert part.headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
    for ignored in ("bytes=0-1,5-6", "lines=1-2", "bytes=", "bytes=x-y"):
        assert (await guest.call("GET", public, 200, headers={"range": ignored})).content == whole.content
    beyond = await guest.call("GET", public, 416, headers={"range": f"bytes={size}-"})
    assert beyond.headers["content-range"] == f"bytes */{size}"
    unchanged = {"range": "bytes=0-1", "if-range": etag}
    assert (await guest.call("GET", public, 206, headers=unchanged)).content == whole.content[:2]
    changed = {"range": "bytes=0-1", "if-range": '"other"'}
    assert (await guest.call("GET", public, 200, headers=changed)).content == whole.content


async def test_head_answers_the_size_without_the_picture(guest: PictureUser, public: str) -> None:
    whole, head = await guest.call("GET", public), await guest.call("HEAD", public)
    assert (head.content, head.headers["content-length"]) == (b"", str(len(whole.content)))


async def test_a_large_file_is_sent_in_chunks(ana: PictureUser, guest: PictureUser) -> None:
    noise = encoded(Image.effect_noise((900, 700), 80), "JPEG")
    id = (await ana.upload(noise, "a.jpg"))["id"]
    await ana.json("PUT", "/users/me/avatar", media=id)
    headers = {"accept": "image/jpeg"}
    whole = (await guest.call("GET", f"/media/{id}/large", headers=headers)).content
    assert len(whole) > 2 * CHUNK_BYTES
    assert Image.open(io.BytesIO(whole)).size == (900, 700)
    head = await guest.call("HEAD", f"/media/{id}/large", headers=headers)
    assert head.headers["content-length"] == str(len(whole))


async def test_a_missing_file_is_not_found(plaza: Plaza, guest: PictureUser, public: str) -> None:
    await MediaStore.open(plaza.core.settings).delete(await stored_files(plaza))
    is_problem(await guest.call("GET", public, 404), 404, "not_found")


async def test_other_paths_are_not_found(guest: PictureUser) -> None:
    missing = "00000000-0000-4000-8000-000000000000"
    for path, status in (
        (f"/media/{missing}/small", 404),
        (f"/media/{missing}/huge", 422),
        ("/media/..%2F..%2Fapi-key/small", 422),
        (f"/media/{missing.upper()}x/small", 422),
    ):
        assert (await guest.call("GET", path, None)).status_code == status


async def test_a_bucket_can_send_pictures_itself(bucket: str, settings: Settings) -> None:
    redirecting = replace(settings, media_url=bucket, media_serving="redirect")
    async with running(redirecting) as plaza, client_of(plaza.app) as http:
        ana, guest = await register(plaza, http, "ana"), PictureUser(http, "", {})
        id = (await ana.upload())["id"]
        await ana.call("GET", f"/media/{id}/small", 200)  # before use, Plaza sends it itself
        await ana.json("PUT", "/users/me/avatar", media=id)
        answer = await guest.call("GET", f"/media/{id}/small", 302)
        assert answer.headers["cache-control"] == "private, max-age=30"
        async with httpx.AsyncClient(verify=False) as client:
            assert Image.open(io.BytesIO((await client.get(answer.headers["location"])).content)).size == (64, 48)
        await ana.json("DELETE", "/users/me/avatar")
        await guest.call("GET", f"/media/{id}/small", 404)
    use_layout(Layout.PLAIN)
