"""Queries and checks shared by the services: challenges, memberships, visibility, the row logs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from sqlalchemy import Table, bindparam, func, insert, select

from plaza.challenges.model import ChallengeEnded, NotMember, PrivateChallenge
from plaza.challenges.tables import CHALLENGE, INSERT_LOG, INVITATION, MEMBER
from plaza.core.async_engine import AsyncConnection
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
_IS_INVITED = (
    select(INVITATION.c.id)
    .where(INVITATION.c.challenge_id == CHALLENGE.c.id, INVITATION.c.username == bindparam("viewer"))
    .exists()
    .label("is_invited")
)
_CHALLENGE = select(CHALLENGE, _IS_MEMBER, _IS_INVITED).where(
    CHALLENGE.c.id == bindparam("id"), CHALLENGE.c.deleted_ms.is_(None)
)
_COUNTED = _CHALLENGE.add_columns(MEMBERS)


async def read_challenge(tx: AsyncConnection, id: int, viewer: Actor | None = None, *, lock: bool = False) -> Any:
    """A challenge's row, with `is_member` and `is_invited` for the viewer. Raises NotFound.

    With `lock`, others cannot change it.
    """
    statement = _CHALLENGE.with_for_update(of=CHALLENGE) if lock else _CHALLENGE
    return _single((await tx.execute(statement, _parameters(id, viewer))).all(), id)


async def read_visible_challenge(sql: Sql, viewer: Actor | None, id: int, *, counted: bool = False) -> Any:
    """A challenge's row if the viewer may see it. Raises NotFound or PrivateChallenge. One query.

    If `counted`, with the number of its `members`, which reads all of them.
    """
    row = _single(await sql.fetch_all(_COUNTED if counted else _CHALLENGE, **_parameters(id, viewer)), id)
    require_visible(viewer, row)
    return row


def _parameters(id: int, viewer: Actor | None) -> dict[str, Any]:
    return {"id": id, "viewer": "" if viewer is None else viewer.name}


def _single(rows: Sequence[Any], id: int) -> Any:
    if not rows:
        raise NotFound("This challenge does not exist.", id=id)
    return rows[0]


async def read_membership(
    tx: AsyncConnection, challenge: int, username: str, *, lock: Literal["share", "update"] | None = None
) -> Any:
    """A user's membership or None. With `lock` it cannot change until the transaction ends, except by it."""
    statement = select(MEMBER).where(MEMBER.c.challenge_id == challenge, MEMBER.c.username == username)
    if lock is not None:
        statement = statement.with_for_update(read=lock == "share")
    return (await tx.execute(statement)).one_or_none()


def require_visible(viewer: Actor | None, challenge: Any) -> None:
    """Raise PrivateChallenge unless the viewer may see it: its creator, members, invited users and admins."""
    if challenge.is_public:
        return
    is_own = viewer is not None and (viewer.is_admin or viewer.name == challenge.creator)
    if not (is_own or challenge.is_member or challenge.is_invited):
        raise PrivateChallenge("This challenge is private. Only its creator, its members and admins can see it.")


def require_participant(actor: Actor, challenge: Any, action: str) -> None:
    """Raise unless a user may take part in what others post: in a private challenge its members, creator and admins."""
    require_visible(actor, challenge)
    is_own = actor.is_admin or actor.name == challenge.creator
    if not (challenge.is_public or challenge.is_member or is_own):
        raise NotMember(f"Only members can {action}. Join the challenge first.")


def require_ongoing(challenge: Any, today: int) -> None:
    if challenge.ends_day <= today:
        raise ChallengeEnded("This challenge has ended. Choose an ongoing one.")


async def log_changed_challenge(tx: AsyncConnection, id: int) -> None:
    """Log a challenge that was edited or deleted in this transaction for the daily job."""
    values = {"table_name": "clg", "row_id": id, "challenge_id": id, "username": ""}
    await tx.execute(insert(INSERT_LOG).values(values))


async def log_rows(tx: AsyncConnection, log: Table, table: str, rows: Iterable[Any]) -> None:
    """Log rows inserted or deleted in this transaction for the daily job. `log` is INSERT_LOG or DELETE_LOG."""
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
        await tx.execute(insert(log), values)
