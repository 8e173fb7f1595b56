"""The live services on one server and on a cluster, and helpers that send heartbeats."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import running
from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey
from plaza.live import domain
from plaza.live.heartbeats import LiveService
from plaza.live.history import AudienceHistory
from plaza.live.last_seen_report import HeartbeatReports
from plaza.live.library import LIBRARY
from plaza.live.model import Heartbeat, HeartbeatResult, LeaveRequest, LeaveResult, Viewer
from plaza.live.recorder import AudienceRecorder
from plaza.live.statistics import AudienceFigures
from tests.http_servers import client_of
from tests.servers import Cluster, Server

AT = "/analytics/events/E1"
SLOT_MS = 300_000


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    functions = Functions(valkey, [LIBRARY])
    await functions.load()
    return functions


@pytest.fixture
def live(functions: Functions, settings: Settings, clock: ManualClock) -> LiveService:
    return LiveService(functions, settings, clock)


@pytest.fixture
async def history(settings: Settings) -> AsyncIterator[AudienceHistory]:
    """On SQLite; `test_history.py` runs the statements on both databases."""
    sql = await Sql.open(settings)
    yield AudienceHistory(sql)
    await sql.close()


@pytest.fixture
def figures(functions: Functions, history: AudienceHistory, settings: Settings, clock: ManualClock) -> AudienceFigures:
    return AudienceFigures(functions, history, settings, clock)


@pytest.fixture
def recorder(
    functions: Functions, history: AudienceHistory, settings: Settings, clock: ManualClock
) -> AudienceRecorder:
    return AudienceRecorder(functions, history, settings, clock)


@pytest.fixture
def reports(functions: Functions, history: AudienceHistory, settings: Settings, clock: ManualClock) -> HeartbeatReports:
    return HeartbeatReports(functions, history, settings, clock)


def viewer(
    name: str, address: str = "203.0.113.7", country: str = "ZZ", groups: tuple[str, ...] | None = None
) -> Viewer:
    return Viewer(name, address, country)


class ViewerActions:
    """Sends heartbeats of viewers, by default to event E1 at the location `web`."""

    def __init__(self, live: LiveService) -> None:
        self.live = live

    async def beat(
        self,
        name: str,
        session: str | None = None,
        *,
        event: str = "E1",
        location: str = "web",
        address: str = "203.0.113.7",
        country: str = "ZZ",
        groups: tuple[str, ...] = (),
    ) -> HeartbeatResult:
        beat = Heartbeat(location, session, list(groups))
        return await self.live.beat(viewer(name, address, country), event, beat)

    async def leave(
        self, name: str, session: str | None = None, *, event: str = "E1", location: str = "web"
    ) -> LeaveResult:
        return await self.live.leave(viewer(name), event, LeaveRequest(location, session))


@pytest.fixture
def viewers(live: LiveService) -> ViewerActions:
    return ViewerActions(live)


class Web:
    """Plaza with the live domain, over HTTP."""

    def __init__(self, client: httpx.AsyncClient, plaza: Any) -> None:
        self.client = client
        self.core = plaza.core
        self.plaza = plaza

    def user(self, name: str, **claims: Any) -> dict[str, str]:
        return {"authorization": f"Bearer {self.core.auth.issue(name, 'user', **claims)}"}

    @property
    def admin(self) -> dict[str, str]:
        return {"x-api-key": self.core.settings.secret("api_key")}

    async def beat(self, who: dict[str, str], **body: Any) -> httpx.Response:
        return await self.client.post(f"{AT}/heartbeat", json={"location": "web", **body}, headers=who)

    async def figure(self, path: str, **query: Any) -> Any:
        response = await self.client.get(f"{AT}{path}", params=query, headers=self.admin)
        assert response.status_code == 200, response.text
        return response.json()


@asynccontextmanager
async def plaza_at(place: Server | Cluster, data_dir: Path, **settings: Any) -> AsyncIterator[Web]:
    given = Settings(data_dir=data_dir, valkey_url=place.url, **settings)
    async with running(given, [domain.DOMAIN]) as plaza, client_of(plaza.app) as client:
        yield Web(client, plaza)


@pytest.fixture
def no_record_is_due(stopped_clock: ManualClock) -> ManualClock:
    """Set the clock to the start of five minutes, so that no record is written during the test."""
    stopped_clock.set(stopped_clock.now_ms() // SLOT_MS * SLOT_MS)
    return stopped_clock


@pytest.fixture
async def web(valkey: Valkey, place: Server | Cluster, tmp_path: Path) -> AsyncIterator[Web]:
    async with plaza_at(place, tmp_path) as web:
        yield web
