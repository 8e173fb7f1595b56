"""SQLite databases with Plaza's tables: made once per test process, and copied. Migrating takes as long as a test."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from functools import cache
from pathlib import Path

from plaza.core.settings import Settings
from plaza.core.sql import Sql

FILE = "plaza.sqlite"


def with_tables(data_dir: Path) -> Path:
    """Put a database with empty tables into a data directory, unless it has one. Returns the directory."""
    if not (data_dir / FILE).exists():
        (data_dir / FILE).write_bytes(_template())
    return data_dir


@cache
def _template() -> bytes:
    folder = Path(tempfile.mkdtemp(prefix="plaza-tables-"))
    # In a thread, since the caller's loop is running.
    thread = threading.Thread(target=lambda: asyncio.run(_migrate(folder)))
    thread.start()
    thread.join()
    content = (folder / FILE).read_bytes()
    shutil.rmtree(folder)
    return content


async def _migrate(folder: Path) -> None:
    await (await Sql.open(Settings(data_dir=folder))).close()
