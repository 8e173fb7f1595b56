"""The security log: stored in SQL, searched by admins, kept for a year."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, Row, bindparam, delete, insert, select, update

from plaza.accounts.model import LoggedAction, LogPage, LogQuery
from plaza.accounts.tables import SECURITY_LOG
from plaza.core.clock import Clock
from plaza.core.errors import PlazaError
from plaza.core.paging import page_by_position
from plaza.core.security_log import LogEntry
from plaza.core.sql import Sql
from plaza.core.sql_paging import ids_in_table, newest_ids

KEPT_DAYS: Final = 365
# Rows that one statement deletes, so that writers wait for milliseconds.
DELETE_BATCH: Final = 5_000

# Stands for the name of a user who was deleted. `@` is in no username.
DELETED_USER: Final = "@deleted"
MAX_EXPORTED: Final = 10_000

_BY_ACTOR = (
    select(SECURITY_LOG)
    .where(SECURITY_LOG.c.actor == bindparam("actor"))
    .order_by(SECURITY_LOG.c.id.desc())
    .limit(MAX_EXPORTED)
)
_BY_IDS = select(SECURITY_LOG).where(SECURITY_LOG.c.id.in_(bindparam("ids", expanding=True)))


class SqlSecurityLog:
    """Records actions, and lists them for admins."""

    def __init__(self, sql: Sql, clock: Clock) -> None:
        self._sql = sql
        self._clock = clock

    async def record(self, entry: LogEntry) -> None:
        """Store an action that has ended. One transaction."""
        await self._insert(entry)

    @contextlib.asynccontextmanager
    async def recording(self, entry: LogEntry) -> AsyncIterator[LogEntry]:
        """Store an action before it runs and its result after it. Two transactions."""
        id = await self._insert(entry)
        try:
            yield entry
        except PlazaError as error:
            entry.result = str(error.status)
            raise
        except Exception:
            entry.result = "500"
            raise
        finally:
            async with self._sql.begin() as tx:
                await tx.execute(update(SECURITY_LOG).where(SECURITY_LOG.c.id == id).values(result=entry.result[:40]))

    async def search(self, query: LogQuery) -> LogPage:
        """List actions, latest first."""
        wanted = {name: getattr(query, name) for name in ("actor", "action", "subject") if getattr(query, name)}
        conditions: list[ColumnElement[bool]] = [SECURITY_LOG.c[name] == bindparam(name) for name in wanted]
        values: dict[str, Any] = dict(wanted)
        if query.since is not None:
            conditions.append(SECURITY_LOG.c.at_ms >= bindparam("since", type_=BigInteger))
            values["since"] = query.since
        if query.until is not None:
            conditions.append(SECURITY_LOG.c.at_ms < bindparam("until", type_=BigInteger))
            values["until"] = query.until
        name = f"security_log {sorted(values.items())}"
        after = ids_in_table(self._sql, name, newest_ids(SECURITY_LOG.c.id, *conditions), **values)
        paged = await page_by_position(name, query, after, self._read_many)
        return LogPage(paged.items, paged.pagination)

    async def delete_old(self) -> int:
        """Delete actions older than a year, in batches. Returns how many."""
        oldest = self._clock.now_ms() - KEPT_DAYS * 86_400_000
        batch = select(SECURITY_LOG.c.id).where(SECURITY_LOG.c.at_ms < oldest).limit(DELETE_BATCH)
        deleted = 0
        while True:
            async with self._sql.begin() as tx:
                rows = (await tx.execute(delete(SECURITY_LOG).where(SECURITY_LOG.c.id.in_(batch)))).rowcount
            deleted += rows
            if rows < DELETE_BATCH:
                return deleted

    async def export(self, username: str) -> list[LoggedAction]:
        """Return a user's own actions, latest first."""
        rows = await self._sql.fetch_all(_BY_ACTOR, actor=username)
        return [_from_row(row) for row in rows]

    async def anonymize(self, username: str) -> None:
        """Remove a deleted user's name. What was done, when and from where stays."""
        await self.rename(username, DELETED_USER)

    async def rename(self, old: str, new: str) -> None:
        """Give a user's entries to a new username."""
        async with self._sql.begin() as tx:
            for column in (SECURITY_LOG.c.actor, SECURITY_LOG.c.subject):
                await tx.execute(update(SECURITY_LOG).where(column == old).values({column: new}))

    async def _insert(self, entry: LogEntry) -> int:
        row = {
            "at_ms": self._clock.now_ms(),
            "actor": entry.actor[:60],
            "action": entry.action[:120],
            "subject": entry.subject[:300],
            "address": entry.address[:64],
            "result": entry.result[:40],
            "request_id": entry.request_id[:64],
        }
        async with self._sql.begin() as tx:
            return int((await tx.execute(insert(SECURITY_LOG).values(row).returning(SECURITY_LOG.c.id))).scalar_one())

    async def _read_many(self, ids: Sequence[str]) -> list[LoggedAction | None]:
        rows = {row.id: row for row in await self._sql.fetch_all(_BY_IDS, ids=[int(id) for id in ids])}
        return [_from_row(rows[int(id)]) if int(id) in rows else None for id in ids]


def _from_row(row: Row[Any]) -> LoggedAction:
    return LoggedAction(row.id, row.at_ms, row.actor, row.action, row.subject, row.address, row.result, row.request_id)
