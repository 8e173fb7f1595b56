"""Whether whoever gives a name up waits for those who still write under it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from plaza.core.sql import Sql
from plaza.core.username_locks import lock_username
from plaza.core.valkey import Valkey


async def assert_waits_for_username_lock(
    sql: Sql, valkey: Valkey, name: str, giving_up: Coroutine[Any, Any, Any]
) -> None:
    """It begins while somebody's transaction has the name, and ends after that one."""
    async with sql.begin() as tx:
        await lock_username(tx, valkey, name, 2**53)
        task = asyncio.create_task(giving_up)
        # Time for one that does not wait to pass by; one that waits is never done here, however slow the machine.
        done, _ = await asyncio.wait({task}, timeout=0.3)
    await task
    assert not done, "it did not wait"
