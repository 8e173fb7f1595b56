"""Databases with Plaza's tables: made once per test process, and copied. Migrating takes as long as a test."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path

from plaza.core.settings import Settings
from plaza.core.sql import Sql
from tests.postgres import Postgres

FILE = "plaza.sqlite"
TEMPLATE = "plaza_tables"


def with_tables(data_dir: Path) -> Path:
    """Put a database with empty tables into a data directory, unless it has one. Returns the directory."""
    if not (data_dir / FILE).exists():
        (data_dir / FILE).write_bytes(_template())
    return data_dir


@contextlib.asynccontextmanager
async def database_with_tables(postgres: Postgres) -> AsyncIterator[str]:
    """Yield the URL of a new PostgreSQL database with empty tables. It is dropped afterwards."""
    if TEMPLATE not in postgres.templates:
        await postgres.run(f"CREATE DATABASE {TEMPLATE}")
        with tempfile.TemporaryDirectory() as folder:
            await _migrate(Settings(data_dir=Path(folder), database_url=postgres.url(TEMPLATE)))
        postgres.templates.add(TEMPLATE)
    async with postgres.database(TEMPLATE) as url:
        yield url


@cache
def _template() -> bytes:
    folder = Path(tempfile.mkdtemp(prefix="plaza-tables-"))
    # In a thread, since the caller's loop is running.
    thread = threading.Thread(target=lambda: asyncio.run(_migrate(Settings(data_dir=folder))))
    thread.start()
    thread.join()
    content = (folder / FILE).read_bytes()
    shutil.rmtree(folder)
    return content


async def _migrate(settings: Settings) -> None:
    await (await Sql.open(settings)).close()
