"""Checks that renaming and deletion wait for transactions that hold a username lock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from plaza.core.sql import Sql
from plaza.core.username_locks import lock_username
from plaza.core.valkey import Valkey


async def assert_waits_for_username_lock(
    sql: Sql, valkey: Valkey, name: str, waiting: Coroutine[Any, Any, Any]
) -> None:
    """Start `waiting` while a transaction holds the lock, and check that it ends after the transaction."""
    async with sql.begin() as tx:
        await lock_username(tx, valkey, name, 2**53)
        task = asyncio.create_task(waiting)
        # Enough time for code that does not wait. Code that waits is never done here, on any machine.
        done, _ = await asyncio.wait({task}, timeout=0.3)
    await task
    assert not done, "it did not wait"
