"""Rows under a name: whoever writes one must still bear the name when the transaction commits.

A token is looked at when its request comes in. Until the request commits, the name may be given up: renamed or
deleted, its tokens void and all of its rows moved or removed. A row that came after would stay under a name that is
nobody's, or somebody else's. So there are two sides:

    bear      who writes: takes the name's lock together with others, then asks Valkey whether the name was cut off
    give_up   who moves or removes: notes the cut-off first, and then has the lock once alone

Who has the lock when the name is given up commits before, and its row is found. Who gets it later sees the cut-off, and
is refused as it would have been a moment later anyway. The cut-off is read in Valkey itself, not in this process's copy
of the list, which news has to reach.

On PostgreSQL these are advisory locks, which end with their transaction. SQLite has one writer at a time: a transaction
that may write is the lock.
"""

from __future__ import annotations

import hashlib

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from plaza.core.errors import Unauthenticated
from plaza.core.keys import TOKEN_CUTOFFS
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey


async def lock_username(tx: AsyncConnection, valkey: Valkey, name: str, since_ms: int | None) -> None:
    """Refuse who has lost the name since `since_ms`; otherwise they keep it until this transaction ends.

    First thing in a transaction, before it holds any row. None is who acts without a token, and cannot lose one.
    """
    if since_ms is None:
        return
    await take_shared_lock(tx, f"name {name}")
    cut_off_ms = await valkey.call("ZSCORE", TOKEN_CUTOFFS(), name)
    if cut_off_ms is not None and cut_off_ms >= since_ms:
        raise Unauthenticated("This name was given up while the request was under way.")


async def wait_for_username_locks(sql: Sql, name: str) -> None:
    """Wait until whoever writes under a name has committed. Its tokens are void already."""
    await wait_for_shared_locks(sql, f"name {name}")


async def take_shared_lock(tx: AsyncConnection, what: str) -> None:
    """Hold a lock together with others until the transaction ends: `wait_for_shared_locks` waits for it."""
    if tx.dialect.name == "postgresql":
        await tx.execute(text("SELECT pg_advisory_xact_lock_shared(:key)"), {"key": _number(what)})


async def wait_for_shared_locks(sql: Sql, what: str) -> None:
    """Have a lock alone for a moment. In a transaction of its own: what the next one sees is of after that."""
    async with sql.begin() as tx:
        if sql.dialect == "postgresql":
            await tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _number(what)})


def _number(what: str) -> int:
    """Locks have numbers there. Two of the same number would wait for each other, and no more than that."""
    return int.from_bytes(hashlib.blake2b(f"plaza {what}".encode(), digest_size=8).digest(), signed=True)
