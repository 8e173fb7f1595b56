"""SQL rows of requests with an `Idempotency-Key`: one row, also if Valkey lost the key.

    row, is_new = await insert_once(sql, tx, CHALLENGE, values, request.row_operation)

The table has a unique column `operation` and a column `created_ms`. A repeated request has the same operation, whatever
Valkey knows of the first one. Stored responses last a day, so a row is that of a repeated request for a day too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Table, select, update

from plaza.core.async_engine import AsyncConnection
from plaza.core.idempotency import STORED_MS
from plaza.core.sql import Sql


async def insert_once(
    sql: Sql, tx: AsyncConnection, table: Table, values: Mapping[str, Any], operation: str | None
) -> tuple[Any, bool]:
    """Insert a row, unless the operation has inserted it. Return the row, and whether it is new.

    At most three statements. Of two concurrent transactions with the same operation the second waits for the first.
    """
    await release_operation(tx, table, operation, values["created_ms"])
    statement = sql.insert(table).values({**values, "operation": operation})
    statement = statement.on_conflict_do_nothing(index_elements=["operation"]).returning(table)
    row = (await tx.execute(statement)).one_or_none()
    if row is not None:
        return row, True
    return (await tx.execute(select(table).where(table.c.operation == operation))).one(), False


async def release_operation(tx: AsyncConnection, table: Table, operation: str | None, now_ms: int) -> None:
    """Let an operation insert again what it inserted more than a day ago: by then the same key is a new request."""
    if operation is not None:
        is_over = (table.c.operation == operation) & (table.c.created_ms <= now_ms - STORED_MS)
        await tx.execute(update(table).where(is_over).values(operation=None))
