"""What several verbs ask the tables: a challenge and whether it goes on, membership, whether somebody may look."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Table, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from plaza.challenges.model import Ended, Private
from plaza.challenges.tables import CHALLENGE, MEMBER
from plaza.core.auth import Actor
from plaza.core.errors import NotFound

MEMBERS = (
    select(func.count()).select_from(MEMBER).where(MEMBER.c.challenge_id == CHALLENGE.c.id).scalar_subquery()
).label("members")


async def challenge_of(tx: AsyncConnection, id: int) -> Any:
    row = (await tx.execute(select(CHALLENGE, MEMBERS).where(CHALLENGE.c.id == id))).one_or_none()
    if row is None:
        raise NotFound("There is no such challenge.", id=id)
    return row


async def member_of(tx: AsyncConnection, challenge: int, username: str, *, lock: bool = False) -> Any:
    """A person's membership, or None. With `lock` it stays as it is until the transaction ends."""
    statement = select(MEMBER).where(MEMBER.c.challenge_id == challenge, MEMBER.c.username == username)
    if lock:
        statement = statement.with_for_update(read=True)
    return (await tx.execute(statement)).one_or_none()


async def require_sight(tx: AsyncConnection, actor: Actor | None, challenge: Any) -> None:
    """Refuse who may not look into a private challenge: it is for its creator, its members and admins."""
    if challenge.is_public or (actor is not None and (actor.is_admin or actor.name == challenge.creator)):
        return
    if actor is None or await member_of(tx, challenge.id, actor.name) is None:
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
