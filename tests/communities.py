"""Plaza with a client that acts as its users, on one server or on a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from plaza.app import Plaza, running
from plaza.core.domain import Domain
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from tests.databases import with_tables
from tests.servers import Cluster, Server

API_KEY = "a key for the tests of communities"


@asynccontextmanager
async def plaza_at(
    place: Server | Cluster, data_dir: Path, domains: Sequence[Domain] | None = None, *, database_url: str = ""
) -> AsyncIterator[Plaza]:
    """Plaza without rate limits, on a Valkey that runs, with SQLite unless another database is given."""
    folder = data_dir if database_url else with_tables(data_dir)
    settings = Settings(
        data_dir=folder, valkey_url=place.url, database_url=database_url, rate_limits=False, api_key=API_KEY
    )
    async with running(settings, domains) as plaza:
        yield plaza
    use_layout(Layout.PLAIN)


@dataclass
class CommunityClient:
    """A client that acts as users; `root` is an admin."""

    plaza: Plaza
    http: httpx.AsyncClient

    async def request(self, method: str, path: str, by: str = "", body: Any = None, status: int = 200) -> Any:
        headers = {}
        if by:
            token = self.plaza.core.auth.issue(by, "admin" if by == "root" else "user")
            headers["authorization"] = f"Bearer {token}"
        response = await self.http.request(method, path, json=body, headers=headers)
        assert response.status_code == status, response.text
        return response.json() if response.content else None

    async def sync(self, kind: str, *records: dict[str, Any]) -> None:
        response = await self.http.post(f"/sync/{kind}", json=records, headers={"x-api-key": API_KEY})
        assert response.status_code == 200, response.text
