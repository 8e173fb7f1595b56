"""Short reads on SQLite, run where they are asked for.

SQLite is a library, not a server: a row by its key takes it some 20 µs. Handed to a thread, the same read takes ten
hand-overs between two threads that want one interpreter, and two milliseconds of CPU. So a short read is what it looks
like, a function call. It waits for nobody, since with the write-ahead log a reader needs no lock that a writer holds.

What turns out not to be short is broken off, as is what would have to wait after all. Whoever asked then asks a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from sqlalchemy import Executable, Row, create_engine, event

# Everybody else's requests wait meanwhile: no longer than a slow page of Valkey makes them wait.
LONGEST_SECONDS: Final = 0.005
# How many steps of its machine SQLite goes between two looks at the clock: some 0.2 ms.
STEPS: Final = 5_000


class InlineSqlite:
    """A connection of the event loop's own thread, which only reads."""

    def __init__(self, file: Path, pragmas: Sequence[str]) -> None:
        self._until = 0.0
        self._engine = create_engine(
            f"sqlite:///{file}",
            hide_parameters=True,
            isolation_level="AUTOCOMMIT",  # one statement sees one moment by itself
            connect_args={"timeout": 0},  # for a lock, should there be one
            pool_size=1,
            max_overflow=0,
        )

        @event.listens_for(self._engine, "connect")
        def prepare(connection: Any, _: object) -> None:
            for pragma in pragmas:
                connection.execute(f"PRAGMA {pragma}")
            connection.set_progress_handler(self._is_too_long, STEPS)

        self._connection = self._engine.connect()

    def _is_too_long(self) -> bool:
        return perf_counter() > self._until

    def rows(self, statement: Executable, values: Mapping[str, Any]) -> Sequence[Row[Any]]:
        """All that a statement finds. Raises `exc.OperationalError` if that takes too long, or has to wait."""
        self._until = perf_counter() + LONGEST_SECONDS
        return self._connection.execute(statement, values).all()

    def close(self) -> None:
        self._connection.close()
        self._engine.dispose()
