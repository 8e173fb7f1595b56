"""The security log: stored in SQL, searched and exported by admins, kept for a year."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, BindParameter, ColumnElement, Row, bindparam, delete, insert, or_, select, update

from plaza.accounts.model import LoggedAction, LogPage, LogQuery
from plaza.accounts.tables import SECURITY_LOG
from plaza.core.addresses import stored_address
from plaza.core.clock import Clock
from plaza.core.csv_text import iso_time, to_csv, without_formula
from plaza.core.errors import OperatorError, PlazaError
from plaza.core.paging import page_by_position
from plaza.core.security_log import DONE, LogEntry
from plaza.core.settings import AccountAddress
from plaza.core.sql import Sql
from plaza.core.sql_paging import MAX_ID, ids_in_table, newest_ids

KEPT_DAYS: Final = 365
# Rows that one statement deletes, so that writers wait for milliseconds.
DELETE_BATCH: Final = 5_000
# Rows that one statement of an export reads.
EXPORT_BATCH: Final = 500

# Stands for the name of a user who was deleted. `@` is in no username.
DELETED_USER: Final = "@deleted"
MAX_EXPORTED: Final = 10_000

CSV_COLUMNS: Final = ("time", "kind", "actor", "action", "subject", "detail", "address", "result", "request_id")

_LOG: Final = SECURITY_LOG.c
_EXACT: Final = ("kind", "actor", "action", "subject", "result")
_SEARCHED: Final = (_LOG.actor, _LOG.action, _LOG.subject, _LOG.detail, _LOG.address, _LOG.request_id)
_BY_ACTOR = select(SECURITY_LOG).where(_LOG.actor == bindparam("actor")).order_by(_LOG.id.desc()).limit(MAX_EXPORTED)
_EARLIER_SIGN_IN = (
    select(_LOG.id)
    .where(_LOG.actor == bindparam("actor"), _LOG.address == bindparam("address"), _LOG.at_ms < bindparam("before"))
    .where(_LOG.action.in_(("sign_in", "register")), _LOG.result == DONE)
    .limit(1)
)
_BY_IDS = select(SECURITY_LOG).where(_LOG.id.in_(bindparam("ids", expanding=True)))


class SqlSecurityLog:
    """Records actions, and lists them for admins."""

    def __init__(self, sql: Sql, clock: Clock, addresses: AccountAddress = "truncated") -> None:
        self._sql = sql
        self._clock = clock
        self._addresses = addresses

    async def record(self, *entries: LogEntry) -> None:
        """Store actions that have ended. One transaction."""
        rows = [self._row(entry) for entry in entries]  # now: the database may be locked for seconds
        async with self._sql.begin() as tx:
            await tx.execute(insert(SECURITY_LOG), rows)

    @contextlib.asynccontextmanager
    async def recording(self, entry: LogEntry) -> AsyncIterator[LogEntry]:
        """Store an action before it runs and its result after it. Two transactions."""
        async with self._sql.begin() as tx:
            inserted = await tx.execute(insert(SECURITY_LOG).values(self._row(entry)).returning(_LOG.id))
            id = inserted.scalar_one()
        try:
            yield entry
        except PlazaError as error:
            entry.result = str(error.status)
            raise
        except OperatorError:
            entry.result = "failed"  # as expected: the command says why
            raise
        except BaseException:
            entry.result = "500"
            raise
        finally:
            values = {"result": entry.result[:40], "detail": entry.detail[:300]}
            async with self._sql.begin() as tx:
                await tx.execute(update(SECURITY_LOG).where(_LOG.id == id).values(values))

    async def search(self, query: LogQuery, actions: Sequence[str] = ()) -> LogPage:
        """List actions, latest first. What `q` asks for is found in an entry, or is one of `actions`."""
        conditions, values = _conditions(query, actions)
        name = f"security_log {sorted(values.items())}"
        after = ids_in_table(self._sql, name, newest_ids(_LOG.id, *conditions), **values)
        paged = await page_by_position(name, query, after, self._read_many)
        return LogPage(paged.items, paged.pagination)

    async def csv_chunks(self, query: LogQuery, actions: Sequence[str] = ()) -> AsyncIterator[str]:
        """Yield all actions that match as CSV, latest first. One short read per 500 rows."""
        conditions, values = _conditions(query, actions)
        ids, before = newest_ids(_LOG.id, *conditions), MAX_ID
        yield to_csv([CSV_COLUMNS])
        while found := await self._sql.fetch_all(ids, before=before, count=EXPORT_BATCH, **values):
            before = found[-1].id
            entries = await self._read_many([str(row.id) for row in found])
            yield to_csv(_csv_row(entry) for entry in entries if entry is not None)

    async def delete_old(self) -> int:
        """Delete actions older than a year, in batches. Returns how many."""
        oldest = self._clock.now_ms() - KEPT_DAYS * 86_400_000
        batch = select(_LOG.id).where(_LOG.at_ms < oldest).limit(DELETE_BATCH)
        deleted = 0
        while True:
            async with self._sql.begin() as tx:
                rows = (await tx.execute(delete(SECURITY_LOG).where(_LOG.id.in_(batch)))).rowcount
            deleted += rows
            if rows < DELETE_BATCH:
                return deleted

    async def has_signed_in_from(self, username: str, address: str, before_ms: int) -> bool:
        """Whether a user signed in or registered from a stored address before a time. One query."""
        found = await self._sql.fetch_all(_EARLIER_SIGN_IN, actor=username, address=address, before=before_ms)
        return bool(found)

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
            for column in (_LOG.actor, _LOG.subject):
                await tx.execute(update(SECURITY_LOG).where(column == old).values({column: new}))

    def _row(self, entry: LogEntry) -> dict[str, Any]:
        return {
            "at_ms": self._clock.now_ms(),
            "kind": entry.kind,
            "actor": entry.actor[:60],
            "action": entry.action[:120],
            "subject": entry.subject[:300],
            "detail": entry.detail[:300],
            "address": stored_address(entry.address, self._addresses)[:64],
            "result": entry.result[:40],
            "request_id": entry.request_id[:64],
        }

    async def _read_many(self, ids: Sequence[str]) -> list[LoggedAction | None]:
        rows = {row.id: row for row in await self._sql.fetch_all(_BY_IDS, ids=[int(id) for id in ids])}
        return [_from_row(rows[int(id)]) if int(id) in rows else None for id in ids]


def _conditions(query: LogQuery, actions: Sequence[str]) -> tuple[list[ColumnElement[bool]], dict[str, Any]]:
    """Return the conditions of a query, and the values to bind."""
    values: dict[str, Any] = {name: getattr(query, name) for name in _EXACT if getattr(query, name)}
    conditions: list[ColumnElement[bool]] = [_LOG[name] == bindparam(name) for name in values]
    if query.since is not None:
        conditions.append(_LOG.at_ms >= bindparam("since", type_=BigInteger))
        values["since"] = query.since
    if query.until is not None:
        conditions.append(_LOG.at_ms < bindparam("until", type_=BigInteger))
        values["until"] = query.until
    if query.q:
        pattern: BindParameter[str] = bindparam("pattern")
        is_asked_for = _LOG.action.in_(bindparam("actions", expanding=True))
        conditions.append(or_(is_asked_for, *(column.ilike(pattern, escape="\\") for column in _SEARCHED)))
        values |= {"pattern": f"%{_escaped(query.q)}%", "actions": list(actions)}
    return conditions, values


def _escaped(text: str) -> str:
    """Return a text in which `LIKE` finds no wildcards."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _from_row(row: Row[Any]) -> LoggedAction:
    return LoggedAction(
        id=row.id,
        at=row.at_ms,
        kind=row.kind,
        actor=row.actor,
        action=row.action,
        subject=row.subject,
        detail=row.detail,
        address=row.address,
        result=row.result,
        request_id=row.request_id,
    )


def _csv_row(action: LoggedAction) -> tuple[str, ...]:
    texts = (action.kind, action.actor, action.action, action.subject, action.detail, action.address, action.result)
    return iso_time(action.at), *map(without_formula, (*texts, action.request_id))
