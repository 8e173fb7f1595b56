"""What the daily job finds when it begins: how far the tables go, and whether their counts are what they should be.

Rows are taken in by id up to a ceiling. In PostgreSQL an id can become visible after a higher one, when its transaction
ends later, and would be passed by. So the ceiling is taken under a lock that waits for all who are writing at that
moment: whatever comes later has a higher id. SQLite has one writer at a time, and needs none of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Select, func, select, text

from plaza.challenges.keys import COUNTS, DB_CURSOR, DB_LEN, RS_PARAM
from plaza.challenges.tables import ARRIVAL, BY_NAME, NOTED, REMOVAL
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey

_NUMBER: Final = re.compile("[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Place:
    """How far the job has come, as Valkey has it."""

    params: Mapping[str, str]
    counts: Mapping[str, str]
    cursor: Mapping[str, str]

    @classmethod
    async def read(cls, valkey: Valkey) -> Place:
        keys = (RS_PARAM(), DB_LEN(), DB_CURSOR(COUNTS))
        return cls(*await valkey.batch([("HGETALL", key) for key in keys]))

    @property
    def known(self) -> bool:
        """Whether there was a roll before, and everything that it left is still there, as it left it."""
        counted = [(self.cursor, f"{name}:counted") for name in BY_NAME] + [(self.counts, name) for name in BY_NAME]
        needed = [*counted, (self.cursor, "day"), (self.params, "max_post_age")]
        return all(_number(held.get(field)) is not None for held, field in needed)

    def at(self, table: str) -> int:
        return _number(self.cursor.get(table)) or 0

    def counted(self, table: str) -> int:
        return self.at(f"{table}:counted")

    def taken(self, table: str) -> int:
        """How many rows a roll that did not end took in behind those that are counted."""
        return self.at(f"{table}:taken")

    @property
    def day(self) -> int:
        """The day rolled last."""
        return self.at("day")


def _number(text: str | None) -> int | None:
    """A number as a roll writes it; None if there is none, or somebody else wrote something there."""
    return int(text) if text and _NUMBER.fullmatch(text) else None


@dataclass(frozen=True, slots=True)
class Survey:
    """The tables at one moment."""

    ceilings: Mapping[str, int]
    counts: Mapping[str, int]  # rows up to the ceiling
    new: Mapping[str, int]  # of these, rows that `db_len` does not count yet
    passed: Mapping[str, int]  # of these, rows that a roll which did not end has taken in
    removals: Sequence[Any]  # what Plaza itself removed since
    vanished: Sequence[Any]  # what Plaza itself wrote since, and is not there

    def misfits(self, place: Place) -> set[str]:
        """The tables whose rows were changed behind our back."""
        return {name for name in BY_NAME if self._is_misfit(name, place)}

    def _is_misfit(self, name: str, place: Place) -> bool:
        counted, at = place.counted(name), place.at(name)
        gone = [row.row_id for row in self.removals if row.table_name == name]
        left = int(place.counts.get(name, 0)) - sum(id <= counted for id in gone)
        passed = place.taken(name) - sum(counted < id <= at for id in gone)
        return (left + self.new[name], passed) != (self.counts[name], self.passed[name])


async def survey(sql: Sql, place: Place) -> Survey:
    ceilings = await _ceilings(sql)
    counts, new, passed = {}, {}, {}
    async with sql.read() as tx:
        for name, table in BY_NAME.items():
            rows = select(func.count()).select_from(table).where(table.c.id <= ceilings[name])
            counts[name] = int((await tx.execute(rows)).scalar_one())
            rows = rows.where(table.c.id > place.counted(name))
            new[name] = int((await tx.execute(rows)).scalar_one())
            passed[name] = int((await tx.execute(rows.where(table.c.id <= place.at(name)))).scalar_one())
        removals = (await tx.execute(select(REMOVAL).order_by(REMOVAL.c.id))).all()
        # After the counts: what is not there now may be counted, which the next roll sees; what is not counted is not
        # there now either.
        vanished = [row for name in NOTED for row in await tx.execute(_vanished(name))]
    return Survey(ceilings, counts, new, passed, removals, vanished)


def _vanished(name: str) -> Select[Any]:
    rows = BY_NAME[name]
    there = select(rows.c.id).where(rows.c.id == ARRIVAL.c.row_id).exists()
    return select(ARRIVAL).where(ARRIVAL.c.table_name == name, ~there).order_by(ARRIVAL.c.id)


async def _ceilings(sql: Sql) -> dict[str, int]:
    async with sql.begin() as tx:
        if sql.dialect == "postgresql":
            names = ", ".join(table.name for table in BY_NAME.values())
            await tx.execute(text(f"LOCK TABLE {names} IN SHARE MODE"))
        return {
            name: int((await tx.execute(select(func.max(table.c.id)))).scalar() or 0) for name, table in BY_NAME.items()
        }
