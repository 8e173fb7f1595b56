"""What reports store about a user: export, deletion and renaming."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import delete, select, update

from plaza.core.sql import Sql
from plaza.core.username_locks import wait_for_username_locks
from plaza.reports.tables import REPORTS

# The columns that name a user.
_NAMES: Final = (REPORTS.c.author, REPORTS.c.reporter, REPORTS.c.admin)


class ReportsPersonalData:
    """A user's reports, and the reports of what the user wrote."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def export(self, username: str) -> dict[str, Any]:
        """Return the reports that a user wrote. Who reported the user is not included: that is theirs."""
        statement = select(REPORTS).where(REPORTS.c.reporter == username).order_by(REPORTS.c.id)
        rows = await self._sql.fetch_all(statement)
        fields = ("id", "kind", "thing", "reason", "state", "created_ms", "closed_ms")
        return {"reports": [{name: getattr(row, name) for name in fields} for row in rows]}

    async def delete(self, username: str) -> None:
        """Delete a user's reports and those of what the user wrote; a deleted admin's name goes. Repeatable."""
        await wait_for_username_locks(self._sql, username)
        async with self._sql.begin() as tx:
            await tx.execute(delete(REPORTS).where((REPORTS.c.reporter == username) | (REPORTS.c.author == username)))
            await tx.execute(update(REPORTS).where(REPORTS.c.admin == username).values(admin=""))

    async def rename(self, old: str, new: str) -> None:
        """Replace a username in every report. Repeatable."""
        await wait_for_username_locks(self._sql, old)
        async with self._sql.begin() as tx:
            for column in _NAMES:
                await tx.execute(update(REPORTS).where(column == old).values({column: new}))
            of_user = (REPORTS.c.kind == "user") & (REPORTS.c.thing == old)
            await tx.execute(update(REPORTS).where(of_user).values(thing=new))
