"""Readiness is correct and quick, also if Valkey or SQL is unreachable."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plaza.core import functions as functions_module
from plaza.core.errors import OutdatedProcess, Unavailable
from plaza.core.functions import Functions
from plaza.core.health import System
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey
from tests.core.ledger import LIBRARY
from tests.servers import Server, running_server
from tests.timeouts import connect_with_retries
from tests.waiting import eventually

# A busy machine may be slow, but not this slow; and less than the connection's own patience of 5 s.
TIME_LIMIT_SECONDS = 4.0


async def test_ready_means_that_valkey_and_sql_respond(valkey: Valkey, sql: Sql) -> None:
    assert (await System(Functions(valkey, [LIBRARY]), sql, timeout_seconds=TIME_LIMIT_SECONDS).ready()).checks == {
        "valkey": "ok",
        "sql": "ok",
    }


async def test_a_process_that_shuts_down_is_not_ready(valkey: Valkey, sql: Sql) -> None:
    draining = asyncio.Event()
    system = System(Functions(valkey, [LIBRARY]), sql, draining)
    draining.set()
    with pytest.raises(Unavailable, match="shutting down"):
        await system.ready()


async def test_a_process_is_not_ready_if_a_newer_one_has_replaced_its_libraries(
    valkey: Valkey, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System(Functions(valkey, [LIBRARY]), sql, timeout_seconds=TIME_LIMIT_SECONDS)
    await system.ready()
    with monkeypatch.context() as patch:
        patch.setattr(functions_module, "GENERATION", functions_module.GENERATION + 1)
        await Functions(valkey, [LIBRARY]).load()
    with pytest.raises(OutdatedProcess, match="Install its version here"):
        await system.ready()


async def test_a_valkey_that_hangs_is_reported_until_it_responds(tmp_path: Path) -> None:
    sql = await Sql.open(Settings(data_dir=tmp_path))
    with running_server() as server:
        valkey = await connect_with_retries(server.url)
        system = System(Functions(valkey, [LIBRARY]), sql, timeout_seconds=TIME_LIMIT_SECONDS)
        server.pause()
        with pytest.raises(Unavailable, match=r"Unreachable: valkey\.") as away:
            await system.ready()
        assert away.value.extra["checks"] == {"valkey": "no response in 4 s", "sql": "ok"}
        server.resume()
        assert (await system.ready()).status == "ready"
        await valkey.close()
    await sql.close()


async def test_a_ping_that_takes_longer_than_a_check_goes_on_and_serves_the_next_ones(tmp_path: Path) -> None:
    sql = await Sql.open(Settings(data_dir=tmp_path))
    with running_server() as server:
        valkey = await connect_with_retries(server.url)
        system = System(Functions(valkey, [LIBRARY]), sql, timeout_seconds=TIME_LIMIT_SECONDS)
        await system.ready()
        before = _library_lookups(server)
        server.pause()
        system.timeout_seconds = 0.02
        for _ in range(3):
            with pytest.raises(Unavailable):
                await system.ready()
        server.resume()
        await eventually(lambda: _library_lookups(server) > before)
        assert _library_lookups(server) == before + 1
        system.timeout_seconds = TIME_LIMIT_SECONDS
        assert (await system.ready()).status == "ready"
        await valkey.close()
    await sql.close()


def _library_lookups(server: Server) -> int:
    with server.redis_client() as client:
        stats: dict[str, dict[str, int]] = client.info("commandstats")
    return stats["cmdstat_function|list"]["calls"]


async def test_an_unreachable_database_is_reported(server: Server, tmp_path: Path) -> None:
    sql = await Sql.open(Settings(data_dir=tmp_path))
    await sql.close()
    _take_away(tmp_path / "plaza.sqlite")
    valkey = await connect_with_retries(server.url)
    with pytest.raises(Unavailable, match=r"Unreachable: sql\.") as away:
        await System(Functions(valkey, [LIBRARY]), sql, timeout_seconds=TIME_LIMIT_SECONDS).ready()
    assert away.value.extra["checks"]["valkey"] == "ok"
    await sql.close()
    await valkey.close()


def _take_away(database: Path) -> None:
    for file in database.parent.glob(f"{database.name}*"):  # the write-ahead log too
        file.unlink()
    database.mkdir()
