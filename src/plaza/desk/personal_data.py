"""What the desk stores about a user: export, deletion and renaming."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, select, update

from plaza.core.sql import Sql
from plaza.core.username_locks import wait_for_username_locks
from plaza.desk.tables import DESK_USERS, USER_NOTES


class DeskPersonalData:
    """The notes about a user, and the user in the list. The list itself only copies the profile."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def export(self, username: str) -> dict[str, Any]:
        """Return the notes about a user, without who wrote them."""
        rows = await self._sql.fetch_all(
            select(USER_NOTES).where(USER_NOTES.c.username == username).order_by(USER_NOTES.c.id)
        )
        return {"notes": [{"text": row.text, "created_at": row.created_ms} for row in rows]}

    async def delete(self, username: str) -> None:
        """Delete the notes about a user, and the name under the notes about others. Repeatable."""
        await wait_for_username_locks(self._sql, username)
        async with self._sql.begin() as tx:
            await tx.execute(delete(USER_NOTES).where(USER_NOTES.c.username == username))
            await tx.execute(update(USER_NOTES).where(USER_NOTES.c.author == username).values(author=""))
            await tx.execute(delete(DESK_USERS).where(DESK_USERS.c.username == username))

    async def rename(self, old: str, new: str) -> None:
        """Replace a username in all notes. The list follows the event. Repeatable."""
        await wait_for_username_locks(self._sql, old)
        async with self._sql.begin() as tx:
            for column in (USER_NOTES.c.username, USER_NOTES.c.author):
                await tx.execute(update(USER_NOTES).where(column == old).values({column: new}))
            await tx.execute(delete(DESK_USERS).where(DESK_USERS.c.username == old))
