"""The object store, on a folder and on a real S3 server: the same tests."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from plaza.core.errors import SettingError, Unavailable
from plaza.core.settings import Settings
from plaza.media.object_store import CHUNK_BYTES, MediaStore, MissingFile


@pytest.fixture
def store(media_url: str, tmp_path: Path) -> MediaStore:
    return MediaStore.open(Settings(data_dir=tmp_path, media_url=media_url))


async def read(store: MediaStore, path: str, start: int, end: int) -> list[bytes]:
    return [chunk async for chunk in store.read(path, start, end)]


async def test_a_file_is_read_in_chunks_as_it_was_written(store: MediaStore) -> None:
    content = bytes(range(256)) * 1_000
    await store.put("ab/one/small.webp", content)
    chunks = await read(store, "ab/one/small.webp", 0, len(content))
    assert b"".join(chunks) == content
    assert len(chunks) > 1
    assert max(map(len, chunks)) <= 4 * CHUNK_BYTES


async def test_a_part_of_a_file_is_read(store: MediaStore) -> None:
    await store.put("ab/one/small.webp", b"0123456789")
    assert b"".join(await read(store, "ab/one/small.webp", 3, 6)) == b"345"


async def test_files_are_listed_with_their_size(store: MediaStore) -> None:
    for path in ("ab/one/small.webp", "ab/one/large.jpeg", "cd/two/small.webp"):
        await store.put(path, b"x" * len(path))
    listed = {file.path: file.size async for page in store.list() for file in page}
    assert listed == {"ab/one/small.webp": 17, "ab/one/large.jpeg": 17, "cd/two/small.webp": 17}
    in_folder = {file.path async for page in store.list("ab/one") for file in page}
    assert in_folder == {"ab/one/small.webp", "ab/one/large.jpeg"}


async def test_a_deleted_file_is_gone_and_deleting_it_again_is_no_error(store: MediaStore) -> None:
    await store.put("ab/one/small.webp", b"x")
    for _ in range(2):
        await store.delete(["ab/one/small.webp", "ab/one/missing.webp"])
    with pytest.raises(MissingFile):
        await read(store, "ab/one/small.webp", 0, 1)


async def test_a_folder_leaves_no_empty_folders_behind(tmp_path: Path) -> None:
    store = MediaStore.open(Settings(data_dir=tmp_path))
    await store.put("ab/one/small.webp", b"x")
    assert (tmp_path / "media").stat().st_mode & 0o777 == 0o700
    await store.delete(["ab/one/small.webp"])
    assert not (tmp_path / "media/ab/one").exists()


async def test_a_signed_address_gives_the_file_to_everyone(bucket: str, tmp_path: Path) -> None:
    store = MediaStore.open(Settings(data_dir=tmp_path, media_url=bucket))
    await store.put("ab/one/small.webp", b"the picture")
    url = await store.signed_url("ab/one/small.webp")
    assert url is not None
    assert "X-Amz-Expires=60" in url
    assert "test secret" not in url
    async with httpx.AsyncClient(verify=False) as client:
        assert (await client.get(url)).content == b"the picture"


async def test_a_folder_has_no_addresses(tmp_path: Path) -> None:
    assert await MediaStore.open(Settings(data_dir=tmp_path)).signed_url("ab/one/small.webp") is None


async def test_google_cloud_and_azure_are_opened_and_sign_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither can be reached here. Addresses are signed without the network, with the bucket and the prefix."""
    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    account = {"private_key": key.decode(), "private_key_id": "1", "client_email": "plaza@plaza.example"}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "plaza")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"test secret").decode())
    for url, host in (("gs", "https://storage.googleapis.com"), ("az", "https://plaza.blob.core.windows.net")):
        store = MediaStore.open(Settings(data_dir=tmp_path, media_url=f"{url}://bucket/pictures"))
        address = await store.signed_url("ab/one/small.webp")
        assert str(address).startswith(f"{host}/bucket/pictures/ab/one/small.webp?")


async def test_an_unreachable_store_is_unavailable(bucket: str, tmp_path: Path) -> None:
    nowhere = "s3://plaza?endpoint=http://127.0.0.1:9&region=us-east-1&retry=0"
    with pytest.raises((Unavailable, SettingError)):
        await MediaStore.open(Settings(data_dir=tmp_path, media_url=nowhere)).put("a", b"x")


@pytest.mark.parametrize("options", ["allow_http=true", "endpoint=http://127.0.0.1:9&allow_http=true", "timeout=5s"])
def test_options_of_the_connection_are_accepted(options: str, tmp_path: Path) -> None:
    MediaStore.open(Settings(data_dir=tmp_path, media_url=f"s3://plaza?region=us-east-1&{options}"))


@pytest.mark.parametrize("option", ["endpont", "user_agent"])
def test_an_unknown_option_is_named(option: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=f"PLAZA_MEDIA_URL.*{option}") as refused:
        MediaStore.open(Settings(data_dir=tmp_path, media_url=f"s3://plaza?{option}=secret&region=us-east-1"))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["ftp://user:secret@host/x", "bucket", "s3://", "http://host/x"])
def test_another_address_is_refused_without_repeating_it(url: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="PLAZA_MEDIA_URL") as refused:
        MediaStore.open(Settings(data_dir=tmp_path, media_url=url))
    assert "secret" not in str(refused.value)
