"""Plaza with users who do things to each other, on one server and on a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core.events import TypeFilter
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from plaza.notifications.jobs import BATCH_SIZE
from plaza.notifications.recorder import Recorder
from tests.databases import with_tables
from tests.event_reader import read_events
from tests.http_servers import client_of
from tests.servers import Cluster, Server
from tests.waiting import eventually

API_KEY = "a key for the tests of notifications"

# For a test that a cluster proves nothing more for.
on_one_server = pytest.mark.parametrize("place", ["server"], indirect=True)


@pytest.fixture
async def plaza(place: Server | Cluster, tmp_path: Path) -> AsyncIterator[Plaza]:
    settings = Settings(data_dir=with_tables(tmp_path), valkey_url=place.url, rate_limits=False, api_key=API_KEY)
    async with running(settings) as plaza:
        yield plaza
    use_layout(Layout.PLAIN)


@dataclass
class NotifiedCommunity:
    """A client that acts as users. `tell` handles the events so far, as the consumers do."""

    plaza: Plaza
    http: httpx.AsyncClient
    redis: Any
    handled: dict[str, set[str]] = field(default_factory=dict)

    @property
    def recorder(self) -> Recorder:
        return self.plaza.get(Recorder)

    async def request(self, method: str, path: str, by: str = "", body: Any = None, status: int = 200) -> Any:
        headers = {}
        if by:
            token = self.plaza.core.auth.issue(by, "admin" if by == "root" else "user")
            headers["authorization"] = f"Bearer {token}"
        response = await self.http.request(method, path, json=body, headers=headers)
        assert response.status_code == status, response.text
        return response.json() if response.content else None

    async def users(self, *names: str) -> None:
        records = [{"username": name} for name in names]
        response = await self.http.post("/sync/users", json=records, headers={"x-api-key": API_KEY})
        assert response.status_code == 200, response.text

    async def post(self, by: str, content: str = "First light") -> str:
        return str((await self.request("POST", "/posts", by, {"content": content}, 201))["id"])

    async def like(self, post: str, *names: str) -> None:
        await asyncio.gather(*(self.request("POST", f"/posts/{post}/like", name) for name in names))

    async def unlike(self, post: str, *names: str) -> None:
        await asyncio.gather(*(self.request("DELETE", f"/posts/{post}/like", name) for name in names))

    async def comment(self, post: str, by: str, content: str = "Well said", reply_to: str | None = None) -> str:
        body = {"content": content} | ({"reply_to": reply_to} if reply_to else {})
        return str((await self.request("POST", f"/posts/{post}/comments", by, body, 201))["id"])

    async def tell(self, *, replay: bool = False) -> None:
        """Handle the events since the last call; with `replay`, all events again."""
        for source in self.recorder.sources:
            known = self.handled.setdefault(source.stream, set())
            is_wanted = TypeFilter(source.event_types)
            events = [event for event in await read_events(self.redis, source.stream) if is_wanted(event.type)]
            new = [event for event in events if replay or event.id not in known]
            known.update(event.id for event in events)
            for start in range(0, len(new), BATCH_SIZE):
                await self.recorder.handle_batch(source, new[start : start + BATCH_SIZE])

    async def told(self, name: str, filter: str = "all") -> list[dict[str, Any]]:
        """Return a user's notifications."""
        found = await self.request("GET", f"/notifications?filter={filter}", name)
        notifications: list[dict[str, Any]] = found["notifications"]
        return notifications

    async def told_about(self, name: str) -> list[tuple[str, str, list[str], int]]:
        """Return type, subject, actors and count of a user's notifications."""
        return [(each["type"], each["subject"]["id"], each["actors"], each["count"]) for each in await self.told(name)]

    async def told_soon(self, name: str, *expected: tuple[str, str, list[str], int]) -> None:
        """Handle events until a user is told what is expected: events of SQL are relayed to their streams."""

        async def is_told() -> bool:
            await self.tell()
            return await self.told_about(name) == list(expected)

        await eventually(is_told)

    async def unread(self, name: str) -> int:
        return int((await self.request("GET", "/notifications/unread-count", name))["unread"])


@pytest.fixture
async def community(plaza: Plaza, redis_client: Any) -> AsyncIterator[NotifiedCommunity]:
    async with client_of(plaza.app) as client:
        yield NotifiedCommunity(plaza, client, redis_client)
