"""A locked table stops its own domain only, for a bounded time. Another program locks it, with a plain connection."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core import sql as sql_module
from plaza.core.errors import Unavailable
from plaza.core.health import System
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from tests.http_servers import client_of
from tests.postgres import Postgres
from tests.servers import Server
from tests.timeouts import TIME_LIMIT_SECONDS, within_time_limit
from tests.waiting import eventually

ADMIN = {"x-api-key": "k" * 32}
ITEM = {"name": "Nut", "description": "", "price": "1.00", "qty": 1}
CHALLENGE = {"title": "Run", "category": 1, "is_public": True, "duration": 5}


@pytest.fixture(autouse=True)
def short_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for locks are short, so that the tests are; others have all the time of a busy machine."""
    monkeypatch.setattr(sql_module, "BUSY_WAIT_MS", 200)
    monkeypatch.setattr(sql_module, "POOL_WAIT_SECONDS", 30.0)


@contextlib.asynccontextmanager
async def locked(settings: Settings, table: str) -> AsyncIterator[None]:
    """Another program locks a table of PostgreSQL, or the file of SQLite."""
    if settings.database_url:
        other = await asyncpg.connect(settings.database_url, server_settings={"application_name": "other"})
        try:
            async with other.transaction():
                await other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
                yield
        finally:
            await other.close()
    else:
        with contextlib.closing(sqlite3.connect(settings.data_dir / "plaza.sqlite", isolation_level=None)) as file:
            file.execute("BEGIN IMMEDIATE")
            yield
            file.execute("ROLLBACK")


@pytest.fixture
async def plaza(sql_settings: Settings, server: Server, tmp_path: Path) -> AsyncIterator[Plaza]:
    secrets: dict[str, Any] = {"jwt_secret": "s" * 32, "api_key": "k" * 32, "data_key": "d" * 32}
    settings = Settings(
        data_dir=tmp_path, valkey_url=server.url, database_url=sql_settings.database_url, rate_limits=False, **secrets
    )
    async with running(settings) as plaza:
        plaza.get(System).timeout_seconds = TIME_LIMIT_SECONDS
        yield plaza


async def test_a_locked_table_is_503_and_everything_else_responds(plaza: Plaza) -> None:
    settings = plaza.core.settings
    ana = {"authorization": f"Bearer {plaza.core.auth.issue('ana', 'user')}"}
    async with client_of(plaza.app) as http, within_time_limit():
        async with locked(settings, "shop_items"):
            count = 40 if settings.database_url else 5  # more than there are connections
            stuck = [asyncio.create_task(http.post("/shop/items", json=ITEM, headers=ADMIN)) for _ in range(count)]
            most = asyncio.create_task(_most_waiting(settings.database_url, stuck))
            assert (await http.get("/readyz")).status_code == 200
            assert (await http.get("/challenges")).status_code == 200
            if settings.database_url:  # SQLite has one lock for all tables
                assert (await http.post("/challenges", json=CHALLENGE, headers=ana)).status_code == 201
            for response in await asyncio.gather(*stuck):
                assert (response.status_code, response.headers["retry-after"]) == (503, "1")
            assert await most <= sql_module.POSTGRES_SHARE < sql_module.POOL_SIZE, "others have connections left"
            assert (await http.get("/readyz")).status_code == 200
            if settings.database_url:
                await eventually(lambda: _no_statement_runs(settings.database_url))
        assert (await http.post("/shop/items", json=ITEM, headers=ADMIN)).status_code == 201


async def _most_waiting(url: str, stuck: Sequence[asyncio.Task[httpx.Response]]) -> int:
    """The most connections of Plaza that waited for a lock at the same time; 0 with SQLite, which has one to write."""
    most = 0
    if url:
        connection = await asyncpg.connect(url, server_settings={"application_name": "other"})
        waiting = "application_name = 'plaza' AND wait_event_type = 'Lock'"
        while not all(task.done() for task in stuck):
            most = max(most, await connection.fetchval(f"SELECT count(*) FROM pg_stat_activity WHERE {waiting}"))
        await connection.close()
        assert most > 0
    return most


async def _no_statement_runs(url: str) -> bool:
    connection = await asyncpg.connect(url, server_settings={"application_name": "other"})
    try:
        running = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plaza' AND state <> 'idle'"
        return bool(await connection.fetchval(running) == 0)
    finally:
        await connection.close()


async def test_a_domain_does_not_take_all_connections(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with postgres.database() as url:
        sql = await Sql.open(Settings(data_dir=tmp_path, database_url=url))
        monkeypatch.setattr(sql_module, "POOL_WAIT_SECONDS", 0.05)
        stuck, other = sql.for_domain(), sql.for_domain()
        holding: list[int] = []
        tasks = [asyncio.create_task(_hold(stuck, holding)) for _ in range(sql_module.POSTGRES_SHARE)]
        await eventually(lambda: len(holding) == len(tasks))
        with pytest.raises(Unavailable, match="busy with requests like this one"):
            await _begins(stuck)
        assert await _begins(other)
        async with stuck.read(), stuck.read():  # reading has a share of its own, and a nested one needs no second slot
            pass
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert await _begins(stuck)
        await sql.close()


async def _hold(sql: Sql, holding: list[int]) -> None:
    async with sql.begin():
        holding.append(1)
        await asyncio.Event().wait()


async def _begins(sql: Sql) -> bool:
    async with sql.begin():
        return True
