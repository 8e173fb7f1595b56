"""The rows that notifications read: posts and comments by id, and who sees a challenge."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Table, select

from plaza.challenges.tables import CHALLENGE, MEMBER
from plaza.core.sql import Sql


async def rows_by_id(sql: Sql, table: Table, ids: Collection[int]) -> dict[int, Any]:
    """Return the rows that still exist. One statement."""
    if not ids:
        return {}
    return {row.id: row for row in await sql.fetch_all(select(table).where(table.c.id.in_(sorted(ids))))}


async def seen_challenges(sql: Sql, names: Collection[str], challenges: Collection[int]) -> set[tuple[str, int]]:
    """Return which users see which challenges: public ones, own ones and joined ones. Two statements at most."""
    rows = await rows_by_id(sql, CHALLENGE, challenges)
    seen = {(name, id) for id, row in rows.items() for name in names if row.is_public or row.creator == name}
    if private := [id for id, row in rows.items() if not row.is_public]:
        where = MEMBER.c.challenge_id.in_(private) & MEMBER.c.username.in_(sorted(names))
        found = await sql.fetch_all(select(MEMBER.c.username, MEMBER.c.challenge_id).where(where))
        seen |= {(row.username, row.challenge_id) for row in found}
    return seen
