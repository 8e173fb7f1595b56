"""Runs short SQLite reads in the event loop's thread.

SQLite is a library, not a server: it reads a row by its key in about 20 µs. In a thread, the same read takes ten
hand-overs between two threads that compete for one interpreter, and up to two milliseconds of CPU. So a short read is a
plain function call. With the write-ahead log it does not wait for writers.

A read that takes too long, or would have to wait, is interrupted; the caller then runs it in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from sqlalchemy import Executable, Row, create_engine, event

# All other requests wait meanwhile, so the limit is short.
MAX_SECONDS: Final = 0.005
# Steps of SQLite's virtual machine between two checks of the time, about 0.2 ms.
STEPS_PER_CHECK: Final = 5_000


class InlineSqlite:
    """A read-only connection in the event loop's thread."""

    def __init__(self, file: Path, pragmas: Sequence[str]) -> None:
        self._until = 0.0
        self.engine = create_engine(
            f"sqlite:///{file}",
            hide_parameters=True,
            isolation_level="AUTOCOMMIT",  # a single statement is consistent by itself
            connect_args={"timeout": 0},  # do not wait for locks
            pool_size=1,
            max_overflow=0,
        )

        @event.listens_for(self.engine, "connect")
        def prepare(connection: Any, _: object) -> None:
            for pragma in pragmas:
                connection.execute(f"PRAGMA {pragma}")
            connection.set_progress_handler(self._is_too_long, STEPS_PER_CHECK)

        self._connection = self.engine.connect()

    def _is_too_long(self) -> bool:
        return perf_counter() > self._until

    def fetch_all(self, statement: Executable, values: Mapping[str, Any]) -> Sequence[Row[Any]]:
        """Return all rows. Raises `exc.OperationalError` if that takes too long or would have to wait."""
        self._until = perf_counter() + MAX_SECONDS
        return self._connection.execute(statement, values).all()

    def close(self) -> None:
        self._connection.close()
        self.engine.dispose()
