"""Which SQL rows a writer of projections reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, or_, select, true

from plaza.challenges.tables import INSERT_LOG

# Ids per SQL statement or Valkey command: below SQLite's 32,766 variables, and a short step for Valkey.
BATCH = 500


class ReadableRows(Struct, frozen=True):
    """All rows, or for a run of the daily job the rows up to an id of each table, and newer ones that Plaza has logged.

    A newer row that another program inserted may be deleted before any run counts it, and no run would notice.
    """

    ceilings: Mapping[str, int] | None = None

    def condition(self, name: str, rows: Any) -> ColumnElement[bool]:
        """Return the SQL condition for the rows of a table, or of an alias of it."""
        if self.ceilings is None:
            return true()
        logged = select(INSERT_LOG.c.id).where(INSERT_LOG.c.table_name == name, INSERT_LOG.c.row_id == rows.c.id)
        return or_(rows.c.id <= self.ceilings[name], logged.exists())
