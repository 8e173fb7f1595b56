"""The fixtures of `tests/conftest.py`, which all other tests need."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import RUN_FIRST, TESTS
from tests.postgres import Postgres


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_test_gets_an_empty_valkey(redis_client: Any, turn: int) -> None:
    for i in range(20):  # enough names to reach every primary
        assert await redis_client.get(f"left-behind:{i}") is None
        await redis_client.set(f"left-behind:{i}", turn)


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_test_gets_a_new_database(postgres: Postgres, turn: int) -> None:
    import asyncpg

    async with postgres.database() as url:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("CREATE TABLE left_behind (turn int)")
        finally:
            await connection.close()


def test_the_files_that_run_first_exist() -> None:
    assert [name for name in RUN_FIRST if not (TESTS / name).exists()] == []
