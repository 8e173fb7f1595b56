"""Several processes share one cache; a database failure loses no cached row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from tests.postgres import Postgres
from tests.servers import Server
from tests.shop.conftest import MemoryAccounts, assemble, create_item_in
from tests.timeouts import TIME_LIMIT_SECONDS
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]


def test_concurrent_misses_in_three_processes_cost_one_computation(server: Server) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.caching.reader_process", server.url],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=TIME_LIMIT_SECONDS)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert outputs == ['<p>1</p> {"n":1}\n'] * 3
    with server.redis_client() as redis_client:
        assert redis_client.get("pages computed") == redis_client.get("rows loaded") == "1"


@pytest.mark.parametrize("place", ["server"], indirect=True)
async def test_while_postgresql_is_down_the_last_row_is_served_as_stale(
    functions: Functions, postgres: Postgres, tmp_path: Path, clock: ManualClock, registered_accounts: MemoryAccounts
) -> None:
    async with postgres.database() as url:
        sql = await Sql.open(Settings(data_dir=tmp_path, database_url=url))
        shop = assemble(functions, sql, clock, registered_accounts)
        item = await create_item_in(shop, qty=5)
        await shop.row_schedules.schedule(item.id, 10)
        await shop.rows.worker.copy_due()
        name = url.partition("?")[0].rpartition("/")[2]
        await postgres.run(
            f"ALTER DATABASE {name} ALLOW_CONNECTIONS false",
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
        )
        clock.advance(seconds=12)
        await shop.rows.worker.copy_due()
        _, seen = await shop.views.view(None, item.id)
        assert (seen.qty, seen.stale) == (5, True)
        await postgres.run(
            f"ALTER DATABASE {name} ALLOW_CONNECTIONS true",
            f"UPDATE pg_database SET datallowconn = true WHERE datname = '{name}'",
        )

        async def recovered() -> bool:
            clock.advance(seconds=1)
            await shop.rows.worker.copy_due()
            return not (await shop.views.view(None, item.id))[1].stale

        await eventually(recovered)
        await sql.close()
