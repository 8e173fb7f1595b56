"""Username locks: a row is only committed while the username still belongs to its writer.

A token is checked when its request arrives. Before the request commits, the user may be renamed or deleted: the
tokens are revoked, and all rows of the name are moved or deleted. A row written after that would stay under a name that
belongs to no user, or to another one. So there are two sides:

    lock_username             the writer: takes the shared lock of the name, then checks in Valkey for a revocation
    wait_for_username_locks   renaming and deletion: store the revocation first, then take the exclusive lock once

A writer that has the lock before that commits first, and its row is found. A later writer sees the revocation and is
rejected. The revocation is read from Valkey, not from this process's copy, which may be a moment old.

On PostgreSQL these are advisory locks, which end with their transaction. SQLite has one writer at a time, so the write
transaction is the lock.
"""

from __future__ import annotations

import hashlib

from sqlalchemy import text

from plaza.core.async_engine import AsyncConnection
from plaza.core.errors import Unauthenticated
from plaza.core.keys import TOKEN_CUTOFFS
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey


async def lock_username(tx: AsyncConnection, valkey: Valkey, name: str, since_ms: int | None) -> None:
    """Raise `Unauthenticated` if the name was revoked since `since_ms`; else lock it until the transaction ends.

    Call it first in a transaction, before any row is locked. `since_ms` is None for a caller without a user token.
    """
    if since_ms is None:
        return
    await take_shared_lock(tx, f"name {name}")
    revoked_ms = await valkey.call("ZSCORE", TOKEN_CUTOFFS(), name)
    if revoked_ms is not None and revoked_ms >= since_ms:
        raise Unauthenticated("This account was renamed or deleted during the request. Sign in again.")


async def wait_for_username_locks(sql: Sql, name: str) -> None:
    """Wait until all writers of a name have committed. Its tokens must be revoked before."""
    await wait_for_shared_locks(sql, f"name {name}")


async def take_shared_lock(tx: AsyncConnection, what: str) -> None:
    """Hold a shared lock until the transaction ends; `wait_for_shared_locks` waits for it."""
    if tx.dialect.name == "postgresql":
        await tx.execute(text("SELECT pg_advisory_xact_lock_shared(:key)"), {"key": _lock_number(what)})


async def take_exclusive_lock(tx: AsyncConnection, what: str) -> None:
    """Be the only transaction with this lock until it ends, so that what is counted in it stays as counted."""
    if tx.dialect.name == "postgresql":
        await tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _lock_number(what)})


async def wait_for_shared_locks(sql: Sql, what: str) -> None:
    """Take the exclusive lock once, in a separate transaction, so that the next transaction sees all rows."""
    async with sql.begin() as tx:
        await take_exclusive_lock(tx, what)


def _lock_number(what: str) -> int:
    """Return the number of an advisory lock. Two names with one number would only wait for each other."""
    return int.from_bytes(hashlib.blake2b(f"plaza {what}".encode(), digest_size=8).digest(), signed=True)
