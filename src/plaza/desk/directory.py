"""The list of all users, in SQL: found by the beginning of the name, by role and by state.

Registries in Valkey have users and models, but neither admins nor who is suspended. The list follows the events of
users, and a daily job compares it with all profiles, so that it also has what other services wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, and_, bindparam, delete, or_, select

from plaza.core.errors import NotFound
from plaza.core.events import Event
from plaza.core.paging import Position, list_checksum, page_by_position
from plaza.core.sequences import chunks
from plaza.core.sql import Sql
from plaza.core.user_states import UserState, UserStates
from plaza.desk.model import ListedUser, ListedUsersPage, ListedUsersQuery
from plaza.desk.tables import DESK_USERS

# Users in one transaction: long enough to be cheap, short enough for other writers.
BATCH: Final = 200
# Reads of a user that keeps changing. Its next event follows anyway.
MAX_READS: Final = 5

_USERS: Final = DESK_USERS.c
_BY_NAMES = select(DESK_USERS).where(_USERS.username.in_(bindparam("names", expanding=True)))
_NAMES_AFTER = (
    select(_USERS.username).where(_USERS.username > bindparam("after")).order_by(_USERS.username).limit(BATCH)
)


class UserDirectory:
    """Lists users, and keeps the list up to date."""

    def __init__(self, sql: Sql, states: UserStates) -> None:
        self._sql = sql
        self._states = states

    async def page(self, query: ListedUsersQuery) -> ListedUsersPage:
        """Return a page of users: newest first, or with a prefix by name. Two short reads."""
        prefix = query.q.strip().lower()
        name = f"desk users {prefix!r} {query.role} {query.state}"
        list_id, where = list_checksum(name), _conditions(query)

        async def after(start: Position | None, count: int) -> list[tuple[str, Position]]:
            statement = select(_USERS.username, _USERS.created_ms).where(*where).limit(count)
            if prefix:
                statement = statement.where(_USERS.folded >= prefix, _USERS.folded < prefix + chr(0x10FFFF))
                statement = statement.order_by(_USERS.folded, _USERS.username)
            else:
                statement = statement.order_by(_USERS.created_ms.desc(), _USERS.username.desc())
            if start is not None:
                statement = statement.where(_after_name(start) if prefix else _before_time(start))
            rows = await self._sql.fetch_all(statement)
            return [(row.username, Position(list_id, row.created_ms, row.username)) for row in rows]

        paged = await page_by_position(name, query, after, self._read_many)
        return ListedUsersPage(paged.items, paged.pagination)

    async def read(self, username: str) -> ListedUser:
        """Return a user as the profile is now. One round trip."""
        (state,) = await self._states.user_states([username])
        if state is None:
            raise NotFound("There is no user with this name.", username=username)
        return ListedUser(state.username, state.role, state.created_ms, state.suspended_ms)

    async def _read_many(self, names: Sequence[str]) -> list[ListedUser | None]:
        rows = {row.username: row for row in await self._sql.fetch_all(_BY_NAMES, names=list(names))}
        return [_listed(rows[name]) if name in rows else None for name in names]

    async def handle_batch(self, events: Sequence[Event]) -> None:
        """Follow the events of users."""
        fields = ("username", "old", "new")
        names = [event.data.get(field) for event in events for field in fields]
        await self.refresh([name for name in dict.fromkeys(names) if isinstance(name, str)])

    async def refresh(self, names: Sequence[str]) -> int:
        """Make the list right for some users, and return how many were wrong.

        What was written is read again. So if two refresh a user, the later one notices an old state.
        """
        wrong = 0
        for batch in chunks(names, BATCH):
            pending: Sequence[str] = batch
            for attempt in range(MAX_READS):
                pending = await self._write(pending)
                wrong += len(pending) if attempt == 0 else 0
                if not pending:
                    break
        return wrong

    async def _write(self, names: Sequence[str]) -> list[str]:
        """Write the users that differ from their profiles, and return them."""
        states = dict(zip(names, await self._states.user_states(names), strict=True))
        rows = {row.username: _state(row) for row in await self._sql.fetch_all(_BY_NAMES, names=list(names))}
        wrong = [name for name in names if states[name] != rows.get(name)]
        found = [state for name in wrong if (state := states[name]) is not None]
        if not wrong:
            return []
        async with self._sql.begin() as tx:
            await tx.execute(delete(DESK_USERS).where(_USERS.username.in_(wrong)))
            for state in found:
                inserted = self._sql.insert(DESK_USERS).values(_row(state))
                await tx.execute(inserted.on_conflict_do_nothing())  # a concurrent refresh has it
        return wrong

    async def rebuild(self) -> int:
        """Compare the list with all profiles, and return how many users were wrong. In short steps."""
        wrong = 0
        async for names in self._states.all_usernames():
            wrong += await self.refresh(names)
        last = ""
        while rows := await self._sql.fetch_all(_NAMES_AFTER, after=last):
            last = rows[-1].username
            wrong += await self.refresh([row.username for row in rows])
        return wrong


def _conditions(query: ListedUsersQuery) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = []
    if query.role is not None:
        where.append(_USERS.role == query.role)
    if query.state is not None:
        where.append(_USERS.suspended_ms.is_(None) if query.state == "active" else _USERS.suspended_ms.is_not(None))
    return where


def _after_name(start: Position) -> ColumnElement[bool]:
    folded = start.id.lower()
    return or_(_USERS.folded > folded, and_(_USERS.folded == folded, _USERS.username > start.id))


def _before_time(start: Position) -> ColumnElement[bool]:
    at = bindparam("at", max(0, min(int(start.score), 2**53)), type_=BigInteger)
    return or_(_USERS.created_ms < at, and_(_USERS.created_ms == at, _USERS.username < start.id))


def _state(row: Any) -> UserState:
    return UserState(row.username, row.role, row.created_ms, row.suspended_ms)


def _row(state: UserState) -> dict[str, Any]:
    return {
        "username": state.username,
        "folded": state.username.lower(),
        "role": state.role,
        "created_ms": state.created_ms,
        "suspended_ms": state.suspended_ms,
    }


def _listed(row: Any) -> ListedUser:
    return ListedUser(row.username, row.role, row.created_ms, row.suspended_ms)
