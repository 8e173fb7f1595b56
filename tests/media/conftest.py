"""Plaza with pictures in a folder on one server, and in S3 on a cluster."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.media.object_store import MediaStore
from plaza.media.processor import ImageProcessor, ProcessedImage
from tests.databases import with_tables
from tests.http_servers import client_of
from tests.media.images import picture
from tests.servers import Cluster, Server

MAX_PIXELS = 40_000_000
API_KEY = "the api key of the media tests"


async def process(content: bytes, filename: str = "", max_pixels: int = MAX_PIXELS) -> ProcessedImage:
    """Process a file as an upload."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        return await ImageProcessor(max_pixels, 2).process(file, filename)


@pytest.fixture(params=["folder", "s3"])
def media_url(request: pytest.FixtureRequest) -> str:
    """Where pictures are: a folder, then S3."""
    return "" if request.param == "folder" else str(request.getfixturevalue("bucket"))


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with an empty database. To copy it is much cheaper than to migrate a new one."""
    folder = tmp_path_factory.mktemp("migrated")

    async def migrate() -> None:
        await (await Sql.open(Settings(data_dir=folder))).close()

    asyncio.run(migrate())
    return folder


@pytest.fixture
def settings(place: Server | Cluster, migrated: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    for file in migrated.glob("plaza.sqlite*"):
        shutil.copy(file, tmp_path)
    url = str(request.getfixturevalue("bucket")) if isinstance(place, Cluster) else ""
    return Settings(
        data_dir=with_tables(tmp_path), valkey_url=place.url, api_key=API_KEY, rate_limits=False, media_url=url
    )


@pytest.fixture
async def plaza(settings: Settings) -> AsyncIterator[Plaza]:
    async with running(settings) as plaza:
        yield plaza
    use_layout(Layout.PLAIN)


@dataclass
class PictureUser:
    """A user with a client."""

    http: httpx.AsyncClient
    name: str
    headers: dict[str, str]

    async def call(self, method: str, path: str, status: int | None = 200, **options: Any) -> httpx.Response:
        headers = {**self.headers, **options.pop("headers", {})}
        response = await self.http.request(method, path, headers=headers, **options)
        assert status is None or response.status_code == status, response.text
        return response

    async def json(self, method: str, path: str, status: int = 200, **body: Any) -> Any:
        return (await self.call(method, path, status, json=body)).json()

    async def send(
        self, content: bytes | None = None, filename: str = "a.png", alt: str = "", **headers: str
    ) -> httpx.Response:
        """Upload a picture; by default one that no one else has."""
        body = picture(seed=uuid.uuid4().int) if content is None else content
        return await self.call(
            "POST", "/media", None, files={"file": (filename, body)}, data={"alt": alt}, headers=headers
        )

    async def upload(self, content: bytes | None = None, filename: str = "a.png", alt: str = "") -> Any:
        response = await self.send(content, filename, alt)
        assert response.status_code == 201, response.text
        return response.json()

    async def sees(self, id: str, variant: str = "small") -> bool:
        status = (await self.call("GET", f"/media/{id}/{variant}", None)).status_code
        assert status in (200, 404)
        return status == 200


@pytest.fixture
async def http(plaza: Plaza) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(plaza.app) as client:
        yield client


async def register(plaza: Plaza, http: httpx.AsyncClient, name: str) -> PictureUser:
    response = await http.post("/auth/register", json={"username": name, "password": "correct horse battery"})
    assert response.status_code == 201, response.text
    return PictureUser(http, name, {"authorization": f"Bearer {response.json()['access_token']}"})


@pytest.fixture
async def ana(plaza: Plaza, http: httpx.AsyncClient) -> PictureUser:
    return await register(plaza, http, "ana")


@pytest.fixture
async def ben(plaza: Plaza, http: httpx.AsyncClient) -> PictureUser:
    return await register(plaza, http, "ben")


@pytest.fixture
def guest(http: httpx.AsyncClient) -> PictureUser:
    return PictureUser(http, "", {})


@pytest.fixture
def api(http: httpx.AsyncClient) -> PictureUser:
    """A server with the API key."""
    return PictureUser(http, "", {"x-api-key": API_KEY})


async def stored_files(plaza: Plaza) -> list[str]:
    """The paths of all files in the store."""
    store = MediaStore.open(plaza.core.settings)
    return sorted([file.path async for page in store.list() for file in page])


async def many(*calls: Any) -> list[Any]:
    return list(await asyncio.gather(*calls))
