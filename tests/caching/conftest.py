"""Fixtures of the shop, which uses the caches, and a database of rows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from plaza.caching.row_cache import RowCache
from plaza.caching.row_store import RowData
from plaza.core.clock import ManualClock
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from tests.shop.conftest import (
    accounts,
    create_item,
    database,
    functions,
    registered_accounts,
    shop,
    web,
)

__all__ = [
    "accounts",
    "create_item",
    "database",
    "functions",
    "registered_accounts",
    "shop",
    "web",
]


class Table:
    """A database of rows that can be slow or down, and counts its queries."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.queries = 0
        self.dead = False
        self.gate: asyncio.Event | None = None

    async def load(self, ids: Sequence[str]) -> Mapping[str, RowData]:
        self.queries += 1
        self.asked += ids
        found = {id: dict(self.rows[id]) for id in ids if id in self.rows}
        if self.gate is not None:
            await self.gate.wait()
        if self.dead:
            raise Unavailable("The database is dead.")
        return found

    def put(self, id: str, **values: Any) -> None:
        version = self.rows.get(id, {"version": 0})["version"] + 1
        self.rows[id] = {"id": id, "qty": 1, **values, "version": version}


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def rows(functions: Functions, table: Table, clock: ManualClock) -> RowCache:
    return RowCache(functions, table.load, clock=clock)
