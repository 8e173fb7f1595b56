"""What several verbs ask the tables: a challenge and whether it goes on, membership, whether somebody may look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Table, bindparam, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from plaza.challenges.model import Ended, Private
from plaza.challenges.tables import CHALLENGE, MEMBER
from plaza.core.auth import Actor
from plaza.core.errors import NotFound
from plaza.core.sql import Sql

MEMBERS = (
    select(func.count()).select_from(MEMBER).where(MEMBER.c.challenge_id == CHALLENGE.c.id).scalar_subquery()
).label("members")


_IS_MEMBER = (
    select(MEMBER.c.id)
    .where(MEMBER.c.challenge_id == CHALLENGE.c.id, MEMBER.c.username == bindparam("viewer"))
    .exists()
    .label("is_member")
)
_CHALLENGE = select(CHALLENGE, MEMBERS, _IS_MEMBER).where(CHALLENGE.c.id == bindparam("id"))


async def challenge_of(tx: AsyncConnection, id: int, viewer: Actor | None = None) -> Any:
    """A challenge, and whether somebody takes part in it."""
    return _the_one((await tx.execute(_CHALLENGE, _asked(id, viewer))).all(), id)


async def challenge_for(sql: Sql, viewer: Actor | None, id: int) -> Any:
    """A challenge that somebody may look into. One look."""
    row = _the_one(await sql.fetch_all(_CHALLENGE, **_asked(id, viewer)), id)
    require_sight(viewer, row)
    return row


def _asked(id: int, viewer: Actor | None) -> dict[str, Any]:
    return {"id": id, "viewer": "" if viewer is None else viewer.name}


def _the_one(rows: Sequence[Any], id: int) -> Any:
    if not rows:
        raise NotFound("There is no such challenge.", id=id)
    return rows[0]


async def member_of(tx: AsyncConnection, challenge: int, username: str, *, lock: bool = False) -> Any:
    """A person's membership, or None. With `lock` it stays as it is until the transaction ends."""
    statement = select(MEMBER).where(MEMBER.c.challenge_id == challenge, MEMBER.c.username == username)
    if lock:
        statement = statement.with_for_update(read=True)
    return (await tx.execute(statement)).one_or_none()


def require_sight(viewer: Actor | None, challenge: Any) -> None:
    """Refuse who may not look into a private challenge: it is for its creator, its members and admins."""
    if challenge.is_public:
        return
    if viewer is None or not (viewer.is_admin or viewer.name == challenge.creator or challenge.is_member):
        raise Private("This challenge is private.")


def require_ongoing(challenge: Any, today: int) -> None:
    if challenge.ends_day <= today:
        raise Ended("This challenge has ended.")


async def note(tx: AsyncConnection, notes: Table, table: str, rows: Iterable[Any]) -> None:
    """Tell the daily job of rows that come or go in this transaction: `notes` is ARRIVAL or REMOVAL."""
    values = [
        {
            "table_name": table,
            "row_id": row.id,
            "challenge_id": row.challenge_id,
            "post_id": getattr(row, "post_id", None),
            "username": row.username,
        }
        for row in rows
    ]
    if values:
        await tx.execute(insert(notes), values)
