"""An audience to play with: the live services on one server and on a cluster, and a short way to say who beats."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plaza.core.clock import SetClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.wire import Valkey
from plaza.live.figures import Figures
from plaza.live.history import History
from plaza.live.model import Beat, Heard, Leaving, Left, Watcher
from plaza.live.recorder import Recorder
from plaza.live.service import LIBRARY, Live


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    functions = Functions(valkey, [LIBRARY])
    await functions.load()
    return functions


@pytest.fixture
def live(functions: Functions, settings: Settings, clock: SetClock) -> Live:
    return Live(functions, settings, clock)


@pytest.fixture
async def history(settings: Settings) -> AsyncIterator[History]:
    """On SQLite; `test_history.py` proves the statements on both databases."""
    sql = await Sql.open(settings)
    yield History(sql)
    await sql.close()


@pytest.fixture
def figures(functions: Functions, history: History, settings: Settings, clock: SetClock) -> Figures:
    return Figures(functions, history, settings, clock)


@pytest.fixture
def recorder(functions: Functions, history: History, settings: Settings, clock: SetClock) -> Recorder:
    return Recorder(functions, history, settings, clock)


def watcher(name: str, address: str = "203.0.113.7", country: str = "ZZ", groups: tuple[str, ...] = ()) -> Watcher:
    return Watcher(name, address, country, groups)


class Crowd:
    """People who watch event E1, unless told otherwise, at the location `web`."""

    def __init__(self, live: Live) -> None:
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
    ) -> Heard:
        beat = Beat(location, session, list(groups))
        return await self.live.beat(watcher(name, address, country), event, beat)

    async def leave(self, name: str, session: str | None = None, *, event: str = "E1", location: str = "web") -> Left:
        return await self.live.leave(watcher(name), event, Leaving(location, session))


@pytest.fixture
def crowd(live: Live) -> Crowd:
    return Crowd(live)
