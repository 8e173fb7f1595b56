"""Plaza with a small community to search, on one server and on a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from plaza.search.rebuild import IndexRebuild
from tests.databases import with_tables
from tests.http_servers import client_of
from tests.servers import Cluster, Server

API_KEY = "a key for the tests of search"


@pytest.fixture
async def plaza(place: Server | Cluster, tmp_path: Path) -> AsyncIterator[Plaza]:
    settings = Settings(data_dir=with_tables(tmp_path), valkey_url=place.url, rate_limits=False, api_key=API_KEY)
    async with running(settings) as plaza:
        yield plaza
    use_layout(Layout.PLAIN)


@dataclass
class SearchCommunity:
    """A client that acts as users, and reads the search."""

    plaza: Plaza
    http: httpx.AsyncClient

    async def request(self, method: str, path: str, by: str = "", body: Any = None, status: int = 200) -> Any:
        auth = self.plaza.core.auth
        headers = {}
        if by:
            token = auth.issue(by, "admin") if by == "root" else auth.issue(by, "user")
            headers["authorization"] = f"Bearer {token}"
        response = await self.http.request(method, path, json=body, headers=headers)
        assert response.status_code == status, response.text
        return response.json()

    async def sync(self, kind: str, *records: dict[str, Any]) -> None:
        response = await self.http.post(f"/sync/{kind}", json=records, headers={"x-api-key": API_KEY})
        assert response.status_code == 200, response.text

    async def index(self) -> None:
        """Index everything, as the consumers of events would."""
        await self.plaza.get(IndexRebuild).run()

    async def find(self, q: str, by: str = "", **parameters: Any) -> dict[str, list[str]]:
        """Search, and return the ids of the results by kind."""
        query = httpx.QueryParams({"q": q, **parameters})
        found = await self.request("GET", f"/search?{query}", by)
        return {kind: [hit["id"] for hit in hits] for kind, hits in found.items() if isinstance(hits, list) and hits}


@pytest.fixture
async def community(plaza: Plaza) -> AsyncIterator[SearchCommunity]:
    async with client_of(plaza.app) as client:
        yield SearchCommunity(plaza, client)
