"""Reads the state of the SQL tables and of the last run, and finds tables that another program changed.

A run reads new rows by id up to a ceiling. In PostgreSQL an id can become visible after a higher one, if its
transaction ends later; the job would skip it. So the ceiling is read under a lock that waits for current writers: every
later row has a higher id. SQLite has one writer at a time and needs no lock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import Select, func, select, text

from plaza.challenges.keys import COUNTS, DB_CURSOR, DB_LEN, RS_PARAM
from plaza.challenges.tables import DELETE_LOG, INSERT_LOG, LOGGED_TABLES, TABLES
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey

_NUMBER: Final = re.compile("[0-9]{1,18}")


class JobState(Struct, frozen=True):
    """What the last run of the daily job left in Valkey."""

    params: Mapping[str, str]
    counts: Mapping[str, str]
    cursor: Mapping[str, str]

    @classmethod
    async def read(cls, valkey: Valkey) -> JobState:
        keys = (RS_PARAM(), DB_LEN(), DB_CURSOR(COUNTS))
        return cls(*await valkey.batch([("HGETALL", key) for key in keys]))

    @property
    def is_complete(self) -> bool:
        """Whether there was a run before and everything that it wrote is still there and valid."""
        fields = [(self.cursor, f"{name}:counted") for name in TABLES] + [(self.counts, name) for name in TABLES]
        needed = [*fields, (self.cursor, "day"), (self.params, "max_post_age")]
        return all(_parse_number(hash.get(field)) is not None for hash, field in needed)

    def last_id(self, table: str) -> int:
        """The last id that a run has read."""
        return _parse_number(self.cursor.get(table)) or 0

    def counted_id(self, table: str) -> int:
        """The last id included in `db_len`."""
        return self.last_id(f"{table}:counted")

    def taken(self, table: str) -> int:
        """How many rows after `counted_id` an unfinished run has read."""
        return self.last_id(f"{table}:taken")

    @property
    def day(self) -> int:
        """The day of the last run."""
        return self.last_id("day")


def _parse_number(text: str | None) -> int | None:
    """A number as a run writes it; None if it is missing or invalid."""
    return int(text) if text and _NUMBER.fullmatch(text) else None


class TableState(Struct, frozen=True):
    """The SQL tables when a run begins."""

    ceilings: Mapping[str, int]
    counts: Mapping[str, int]  # rows up to the ceiling
    new: Mapping[str, int]  # of these, rows not included in `db_len`
    passed: Mapping[str, int]  # of these, rows that an unfinished run has read
    removals: Sequence[Any]  # rows that Plaza has deleted since the last run
    missing: Sequence[Any]  # rows that Plaza has inserted since, but that are missing, and challenges that it changed

    def changed_tables(self, last_run: JobState) -> set[str]:
        """The tables in which another program deleted rows."""
        return {name for name in TABLES if self._is_changed(name, last_run)}

    def _is_changed(self, name: str, last_run: JobState) -> bool:
        counted, last = last_run.counted_id(name), last_run.last_id(name)
        removed = [row.row_id for row in self.removals if row.table_name == name]
        left = int(last_run.counts.get(name, 0)) - sum(id <= counted for id in removed)
        passed = last_run.taken(name) - sum(counted < id <= last for id in removed)
        return (left + self.new[name], passed) != (self.counts[name], self.passed[name])


async def read_table_state(sql: Sql, last_run: JobState) -> TableState:
    """The tables' state, compared with what the last run left."""
    ceilings = await _ceilings(sql)
    counts, new, passed = {}, {}, {}
    async with sql.read() as tx:
        for name, table in TABLES.items():
            rows = select(func.count()).select_from(table).where(table.c.id <= ceilings[name])
            counts[name] = int((await tx.execute(rows)).scalar_one())
            rows = rows.where(table.c.id > last_run.counted_id(name))
            new[name] = int((await tx.execute(rows)).scalar_one())
            passed[name] = int((await tx.execute(rows.where(table.c.id <= last_run.last_id(name)))).scalar_one())
        removals = (await tx.execute(select(DELETE_LOG).order_by(DELETE_LOG.c.id))).all()
        # Read after the counts: a row deleted in between is counted here, and the next run finds the difference.
        missing = [row for name in LOGGED_TABLES for row in await tx.execute(_missing_rows(name))]
        missing += (await tx.execute(select(INSERT_LOG).where(INSERT_LOG.c.table_name == "clg"))).all()
    return TableState(ceilings, counts, new, passed, removals, missing)


def _missing_rows(name: str) -> Select[Any]:
    rows = TABLES[name]
    exists = select(rows.c.id).where(rows.c.id == INSERT_LOG.c.row_id).exists()
    return select(INSERT_LOG).where(INSERT_LOG.c.table_name == name, ~exists).order_by(INSERT_LOG.c.id)


async def _ceilings(sql: Sql) -> dict[str, int]:
    async with sql.begin() as tx:
        if sql.dialect == "postgresql":
            names = ", ".join(table.name for table in TABLES.values())
            await tx.execute(text(f"LOCK TABLE {names} IN SHARE MODE"))
        return {
            name: int((await tx.execute(select(func.max(table.c.id)))).scalar() or 0) for name, table in TABLES.items()
        }
