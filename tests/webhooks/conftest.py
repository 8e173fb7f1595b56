"""Plaza on one server and on a cluster, with receivers of webhooks on loopback."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from tests.databases import with_tables
from tests.http_servers import client_of
from tests.servers import Cluster, Server
from tests.webhooks.receiver import Receiver, receiving

API_KEY = "k" * 32


@pytest.fixture
async def plaza(place: Server | Cluster, tmp_path: Path) -> AsyncIterator[Plaza]:
    settings = Settings(
        data_dir=with_tables(tmp_path),
        valkey_url=place.url,
        rate_limits=False,
        api_key=API_KEY,
        webhooks_private=True,
    )
    async with running(settings) as plaza:
        yield plaza
    use_layout(Layout.PLAIN)


@pytest.fixture
async def http(plaza: Plaza) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(plaza.app) as client:
        client.headers["x-api-key"] = API_KEY
        yield client


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@contextlib.asynccontextmanager
async def running_worker(plaza: Plaza) -> AsyncIterator[None]:
    """Run the worker of a Plaza."""
    working = asyncio.create_task(plaza.worker.run())
    try:
        yield
    finally:
        working.cancel()
        await asyncio.wait([working])


@dataclass
class WebhookAdmin:
    """Calls the routes of webhooks as an admin."""

    http: httpx.AsyncClient

    async def call(self, method: str, path: str, status: int = 200, **body: Any) -> Any:
        response = await self.http.request(method, f"/webhooks{path}", json=body or None)
        assert response.status_code == status, response.text
        return response.json() if response.content else None

    async def create(self, url: str, *types: str, **fields: Any) -> Any:
        return await self.call("POST", "", 201, url=url, types=list(types) or ["*"], **fields)


@pytest.fixture
def admin(http: httpx.AsyncClient) -> WebhookAdmin:
    return WebhookAdmin(http)
