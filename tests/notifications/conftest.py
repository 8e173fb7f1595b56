"""Plaza with users who do things to each other, on one server and on a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from plaza.app import DOMAINS, Plaza
from plaza.core.events import TypeFilter
from plaza.notifications.jobs import BATCH_SIZE
from plaza.notifications.library import LIBRARY
from plaza.notifications.recorder import Recorder
from plaza.social import notification_source
from tests.communities import CommunityClient, plaza_at
from tests.event_reader import read_events
from tests.http_servers import client_of
from tests.servers import Cluster, Server
from tests.waiting import eventually

# For a test that a cluster proves nothing more for.
on_one_server = pytest.mark.parametrize("place", ["server"], indirect=True)

# For a test that would need thousands of users or posts.
at_most_ten = pytest.mark.parametrize("limits", [{"MAX_GROUPS": 10, "MAX_ACTORS": 10}])


@pytest.fixture
def limits() -> Mapping[str, int]:
    """Constants of the Lua library that a test lowers."""
    return {}


@pytest.fixture
async def plaza(
    place: Server | Cluster, tmp_path: Path, limits: Mapping[str, int], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Plaza]:
    for name in limits.keys() & {"MAX_ACTORS"}:
        monkeypatch.setattr(notification_source, name, limits[name])
    library = replace(LIBRARY, constants={**LIBRARY.constants, **limits})
    domains = [structs.replace(each, library=library) if each.name == library.name else each for each in DOMAINS]
    async with plaza_at(place, tmp_path, domains) as plaza:
        yield plaza


@dataclass
class NotifiedCommunity(CommunityClient):
    """A client that acts as users. `tell` handles the events so far, as the consumers do."""

    redis: Any
    handled: dict[str, set[str]] = field(default_factory=dict)

    @property
    def recorder(self) -> Recorder:
        return self.plaza.get(Recorder)

    async def users(self, *names: str) -> None:
        await self.sync("users", *({"username": name} for name in names))

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
            is_wanted = TypeFilter(kind.type for kind in source.events)
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
