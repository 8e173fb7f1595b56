"""Notes of operators about users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, delete, select

from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import NotFound
from plaza.core.paging import Page, page_by_position
from plaza.core.sql import Sql
from plaza.core.sql_idempotency import insert_once
from plaza.core.sql_paging import ids_in_table, newest_ids
from plaza.core.username_locks import lock_username, take_shared_lock
from plaza.core.valkey import Valkey
from plaza.desk.directory import UserDirectory
from plaza.desk.model import UserNote, UserNotesPage
from plaza.desk.tables import USER_NOTES

_OF_USER = USER_NOTES.c.username == bindparam("username")
_IDS_OF_USER = newest_ids(USER_NOTES.c.id, _OF_USER)
_BY_IDS = select(USER_NOTES).where(USER_NOTES.c.id.in_(bindparam("ids", expanding=True)))


class UserNotes:
    """Writes, lists and deletes notes."""

    def __init__(self, sql: Sql, valkey: Valkey, directory: UserDirectory, clock: Clock) -> None:
        self._sql = sql
        self._valkey = valkey
        self._directory = directory
        self._clock = clock

    async def page(self, username: str, page: Page) -> UserNotesPage:
        """Return a page of the notes about a user, newest first. Two short reads."""
        name = f"notes about {username}"
        ids = ids_in_table(self._sql, name, _IDS_OF_USER, username=username)
        paged = await page_by_position(name, page, ids, self._read_many)
        return UserNotesPage(paged.items, paged.pagination)

    async def get(self, username: str, id: int) -> UserNote:
        """Return a note about a user. One short read."""
        (note,) = await self._read_many([str(id)])
        if note is None or note.username != username:
            raise _missing(id)
        return note

    async def create(self, actor: Actor, username: str, text: str, operation: str | None = None) -> UserNote:
        """Write a note. The same operation writes one note. A round trip or two, and one transaction."""
        now = self._clock.now_ms()
        values = {"username": username, "author": actor.name, "text": text.strip(), "created_ms": now}
        async with self._sql.begin() as tx:
            await lock_username(tx, self._valkey, actor.name, actor.since_ms)
            # A renaming or deletion of the user waits for this transaction, or the user is not found any more.
            await take_shared_lock(tx, f"name {username}")
            await self._directory.read(username)
            row, _ = await insert_once(self._sql, tx, USER_NOTES, values, operation)
        return _note(row)

    async def delete(self, username: str, id: int) -> None:
        """Delete a note about a user. One transaction."""
        statement = delete(USER_NOTES).where(USER_NOTES.c.id == id, USER_NOTES.c.username == username)
        async with self._sql.begin() as tx:
            if not (await tx.execute(statement)).rowcount:
                raise _missing(id)

    async def _read_many(self, ids: Sequence[str]) -> list[UserNote | None]:
        rows = {str(row.id): row for row in await self._sql.fetch_all(_BY_IDS, ids=[int(id) for id in ids])}
        return [_note(rows[id]) if id in rows else None for id in ids]


def _missing(id: int) -> NotFound:
    return NotFound("There is no note with this id about this user.", id=id)


def _note(row: Any) -> UserNote:
    return UserNote(row.id, row.username, row.author, row.text, row.created_ms)
