"""What each member has tracked: days, amount and streaks, as columns of `member`, computed from `tracking`.

A request that tracks a day or takes it back computes them in its transaction, while it holds the member's row. The
daily job computes them for rows that another program inserted or deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, func, select, update

from plaza.challenges.model import Totals
from plaza.challenges.readable_rows import BATCH, ReadableRows
from plaza.challenges.tables import MEMBER, TRACKING
from plaza.core.async_engine import AsyncConnection
from plaza.core.sequences import chunks
from plaza.core.sql import Sql

# Challenge id, username.
MemberRef = tuple[int, str]


class MemberTotals:
    """Reads and updates the totals of members."""

    def __init__(self, sql: Sql, readable: ReadableRows) -> None:
        self._sql = sql
        self._readable = readable

    async def update(self, names: Collection[str]) -> None:
        """Update the totals of all memberships of these users, where they are wrong."""
        for batch in chunks(names, BATCH):
            members = select(MEMBER).where(MEMBER.c.username.in_(batch))
            async with self._sql.read() as tx:
                wrong = await self._wrong_rows(tx, (await tx.execute(members)).all())
            if wrong:
                async with self._sql.begin() as tx:
                    locked = members.where(MEMBER.c.id.in_(wrong)).order_by(MEMBER.c.id).with_for_update()
                    for id, totals in (await self._wrong_rows(tx, (await tx.execute(locked)).all())).items():
                        await _write(tx, id, totals)

    async def read(self, names: Collection[str]) -> tuple[dict[MemberRef, Totals], dict[MemberRef, Totals]]:
        """The correct and the stored totals of all memberships of these users. Two queries."""
        async with self._sql.read() as tx:
            members = (await tx.execute(select(MEMBER).where(MEMBER.c.username.in_(names)))).all()
            correct = await _read(tx, TRACKING.c.username.in_(names))
        stored = {(row.challenge_id, row.username): from_row(row) for row in members}
        return {member: correct.get(member, Totals()) for member in stored}, stored

    async def _wrong_rows(self, tx: AsyncConnection, members: Sequence[Any]) -> dict[int, Totals]:
        """The correct totals of members that have others, by the id of their row."""
        names = {row.username for row in members}
        condition = TRACKING.c.username.in_(names) & self._readable.condition("tracking", TRACKING)
        correct = await _read(tx, condition) if names else {}
        totals = {row: correct.get((row.challenge_id, row.username), Totals()) for row in members}
        return {row.id: expected for row, expected in totals.items() if from_row(row) != expected}


async def recount(tx: AsyncConnection, challenge: int, username: str) -> Totals:
    """Compute a user's totals, and store them if the user is a member. The transaction holds the member's row."""
    totals = await read_totals(tx, challenge, username)
    await tx.execute(update(MEMBER).where(*_member(challenge, username)).values(msgspec.to_builtins(totals)))
    return totals


async def read_totals(tx: AsyncConnection, challenge: int, username: str) -> Totals:
    """A user's totals from the tracked days, also of a former member. One query."""
    condition = (TRACKING.c.challenge_id == challenge) & (TRACKING.c.username == username)
    return (await _read(tx, condition)).get((challenge, username), Totals())


def from_row(row: Any) -> Totals:
    return Totals(*(getattr(row, name) for name in Totals.__struct_fields__))


async def _write(tx: AsyncConnection, id: int, totals: Totals) -> None:
    await tx.execute(update(MEMBER).where(MEMBER.c.id == id).values(msgspec.to_builtins(totals)))


def _member(challenge: int, username: str) -> tuple[ColumnElement[bool], ...]:
    return MEMBER.c.challenge_id == challenge, MEMBER.c.username == username


async def _read(tx: AsyncConnection, condition: ColumnElement[bool]) -> dict[MemberRef, Totals]:
    found: dict[MemberRef, Totals] = {}
    for run in await tx.execute(_runs(condition)):
        member = (run.challenge_id, run.username)
        before = found.get(member, Totals())
        is_latest = run.last_day >= before.last_day
        found[member] = Totals(
            before.days + run.days,
            before.amount_thousandths + int(run.amount),
            run.days if is_latest else before.streak,
            max(run.days, before.longest_streak),
            max(run.last_day, before.last_day),
        )
    return found


def _runs(condition: ColumnElement[bool]) -> Select[Any]:
    """Select each member's runs of days in a row: in a run, the day minus its row number stays the same."""
    member = (TRACKING.c.challenge_id, TRACKING.c.username)
    number = func.row_number().over(partition_by=member, order_by=TRACKING.c.day)
    amount = func.coalesce(TRACKING.c.amount_thousandths, 0).label("amount")
    days = select(*member, TRACKING.c.day, amount, (TRACKING.c.day - number).label("run")).where(condition).subquery()
    total = (
        func.count().label("days"),
        func.sum(days.c.amount).label("amount"),
        func.max(days.c.day).label("last_day"),
    )
    group = (days.c.challenge_id, days.c.username)
    return select(*group, *total).group_by(*group, days.c.run)
