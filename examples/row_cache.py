"""Database rows cached in Valkey. It uses only the row cache of Plaza.

VALKEY=valkey://localhost:6379 python examples/row_cache.py
"""

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from typing import Any

from plaza.caching import RowCache, connect

database = sqlite3.connect(":memory:", check_same_thread=False)
database.row_factory = sqlite3.Row
database.executescript(
    "CREATE TABLE items (id TEXT, name TEXT, qty INT); INSERT INTO items VALUES ('273', 'GTab', 629)"
)


async def load(ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    marks = ",".join("?" * len(ids))
    found = database.execute(f"SELECT id, name, qty FROM items WHERE id IN ({marks})", list(ids))  # noqa: S608
    return {row["id"]: dict(row) for row in found}


async def main() -> None:
    async with connect(os.environ.get("VALKEY", "valkey://localhost:6379")) as store:
        rows = RowCache(store, load)
        await rows.schedule("273", delay=0.2)  # copied five times a second …
        worker = asyncio.create_task(rows.worker.run())  # … by this process and any other that runs a worker
        print(await rows.get("273"))
        database.execute("UPDATE items SET qty = 628")
        await asyncio.sleep(0.5)
        print(await rows.get("273"))
        worker.cancel()


if __name__ == "__main__":
    asyncio.run(main())
