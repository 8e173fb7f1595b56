"""The connection is tested on both event loops: asyncio's own, and uvloop, as in production."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from plaza.core.settings import Settings
from plaza.core.sql import Sql
from tests.core.sample_migrations import PARENTS, sample_folders

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, LoopFactory]:
    loops: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    if item.path.name.startswith("test_wire"):
        loops["uvloop"] = uvloop.new_event_loop
    return loops


@pytest.fixture
async def sample_sql(sql_settings: Settings, busy_disk: None) -> AsyncIterator[Sql]:
    """A database with the sample tables, and one parent whose amount is 5."""
    sql = await Sql.open(sql_settings, sample_folders())
    async with sql.begin() as tx:
        await tx.execute(PARENTS.insert().values(id=1, name="p1", amount=5))
    yield sql
    await sql.close()
