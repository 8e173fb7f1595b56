"""Plaza with a small community to search, on one server with SQLite and on a cluster with PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import Plaza
from plaza.search.rebuild import IndexRebuild
from tests.communities import CommunityClient, plaza_at
from tests.databases import database_with_tables
from tests.http_servers import client_of
from tests.servers import Cluster, Server


@pytest.fixture
async def database_url(request: pytest.FixtureRequest, place: Server | Cluster) -> AsyncIterator[str]:
    if isinstance(place, Server):
        yield ""
        return
    async with database_with_tables(request.getfixturevalue("postgres")) as url:
        yield url


@pytest.fixture
async def plaza(place: Server | Cluster, database_url: str, tmp_path: Path) -> AsyncIterator[Plaza]:
    async with plaza_at(place, tmp_path, database_url=database_url) as plaza:
        yield plaza


@dataclass
class SearchCommunity(CommunityClient):
    """A client that acts as users, and reads the search."""

    async def index(self) -> None:
        """Index everything, as the consumers of events would."""
        await self.plaza.get(IndexRebuild).run()

    async def find(self, q: str, by: str = "", **parameters: Any) -> dict[str, list[str]]:
        """Search, and return the ids of the results by kind."""
        query = httpx.QueryParams({"q": q, **parameters})
        found = await self.request("GET", f"/search?{query}", by)
        return {kind: [hit["id"] for hit in hits] for kind, hits in found.items() if isinstance(hits, list) and hits}

    async def find_all(self, q: str, by: str = "", *, limit: int) -> list[str]:
        """Search posts page by page, and return their ids."""
        found: list[str] = []
        more: dict[str, str] = {}
        while True:
            query = httpx.QueryParams({"q": q, "type": "posts", "limit": limit, **more})
            page = await self.request("GET", f"/search?{query}", by)
            assert page["pagination"]["count"] == len(page["posts"])
            found += [hit["id"] for hit in page["posts"]]
            if page["pagination"]["next_cursor"] is None:
                return found
            more = {"cursor": page["pagination"]["next_cursor"]}


@pytest.fixture
async def community(plaza: Plaza) -> AsyncIterator[SearchCommunity]:
    async with client_of(plaza.app) as client:
        yield SearchCommunity(plaza, client)
