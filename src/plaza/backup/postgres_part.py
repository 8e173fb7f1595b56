"""The tables of a backup on PostgreSQL: the rows of each table by COPY, all from one snapshot. No client is needed.

Tables are created by Plaza's own migrations, at the revisions of the backup; the next start upgrades them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, MetaData, inspect, text

from plaza.backup.chunks import ChunkStore, StoredStream
from plaza.backup.snapshots import SqlPart
from plaza.backup.valkey_part import read_file
from plaza.core import sql_migrations
from plaza.core.async_engine import AsyncConnection
from plaza.core.errors import OperatorError
from plaza.core.sql import postgres_engine, postgres_url

DIALECT: Final = "postgresql"
# Which revisions there are. The migrations write it.
_VERSIONS: Final = "alembic_version"
_COLUMNS: Final = """
SELECT c.relname AS table_name, a.attname AS name, COALESCE(array_position(i.indkey::int2[], a.attnum), -1) AS key_at
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND has_table_privilege(c.oid, 'SELECT')
ORDER BY c.relname, a.attnum
"""
_SEQUENCES: Final = """
SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = current_schema() AND last_value IS NOT NULL
"""
_RELATIONS: Final = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"

OnBytes = Callable[[int], None]


class PostgresSnapshot:
    """The tables as of the moment when this was opened."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[PostgresSnapshot]:
        from plaza.core.postgres import connect  # only where asyncpg is installed

        connection = await connect(postgres_url(url), None)
        try:
            await connection.execute("SET idle_in_transaction_session_timeout = 0")  # keys may be read meanwhile
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                await connection.fetchval("SELECT pg_current_snapshot()")  # the moment
                yield cls(connection)
        finally:
            await connection.close()

    async def column(self, statement: str) -> set[str]:
        """Return the values of a statement with one column."""
        return {row[0] for row in await self._connection.fetch(statement)}

    async def store(self, chunks: ChunkStore, spool: Path, on_bytes: OnBytes) -> SqlPart:
        """Store the rows of every table that this role may read, by primary key. Others are of other services."""
        columns: dict[str, list[tuple[str, int]]] = {}
        for table, name, key_at in await self._connection.fetch(_COLUMNS):
            columns.setdefault(table, []).append((name, key_at))
        revisions = await self.column("SELECT version_num FROM alembic_version")
        del columns[_VERSIONS]
        streams = {table: await self._store_table(table, columns[table], chunks, spool, on_bytes) for table in columns}
        names = {table: tuple(name for name, _ in found) for table, found in columns.items()}
        # Sequences are not part of the snapshot: they may be ahead of the rows, which is safe.
        sequences = dict(await self._connection.fetch(_SEQUENCES))
        return SqlPart(DIALECT, tuple(sorted(revisions)), streams, names, sequences)

    async def _store_table(
        self, table: str, columns: Sequence[tuple[str, int]], chunks: ChunkStore, spool: Path, on_bytes: OnBytes
    ) -> StoredStream:
        file = spool / "table"
        names = ", ".join(f'"{name}"' for name, _ in columns)
        keys = [f'"{name}"' for name, at in sorted(columns, key=lambda column: column[1]) if at >= 0]
        order = f" ORDER BY {', '.join(keys)}" if keys else ""
        query = f'SELECT {names} FROM "{table}"{order}'  # noqa: S608 (names from the database's own catalogue)
        await self._connection.copy_from_query(query, output=str(file), format="binary")
        on_bytes(file.stat().st_size)
        return await chunks.put(read_file(file))


async def is_empty(url: str) -> bool:
    """Whether there are no tables of Plaza yet."""
    async with _transaction(url) as tx:
        return not await tx.run_sync(lambda connection: inspect(connection).has_table(_VERSIONS))


async def refuse_newer(url: str, folders: Sequence[Path]) -> None:
    """Raise `OperatorError` if a newer Plaza has migrated the tables: this one does not know what to drop."""
    async with _transaction(url) as tx:
        state = sql_migrations.schema_state(await tx.run_sync(sql_migrations.current_heads), folders)
    if state.unknown:
        raise OperatorError(
            f"The database has tables of a newer Plaza ({', '.join(state.unknown)}), which this one cannot replace. "
            "Nothing was changed. Create an empty database and name it in PLAZA_DATABASE_URL."
        )


async def load_tables(part: SqlPart, chunks: ChunkStore, url: str, folders: Sequence[Path], on_bytes: OnBytes) -> None:
    """Replace all tables by those of a backup, in one transaction."""
    async with _transaction(url) as tx:
        if await tx.run_sync(lambda connection: inspect(connection).has_table(_VERSIONS)):
            await tx.run_sync(sql_migrations.drop_all, folders)
        others = set((await tx.execute(text(_RELATIONS))).scalars())  # of other services
        await tx.run_sync(sql_migrations.upgrade_to, folders, part.revisions)
        driver = (await tx.get_raw_connection()).driver_connection
        assert driver is not None
        for table in await tx.run_sync(_tables):
            if table in part.streams and table not in others:
                stream = part.streams[table]
                await driver.copy_to_table(
                    table, source=chunks.read(stream), columns=part.columns[table], format="binary"
                )
                on_bytes(stream.bytes)
        for name in part.sequences.keys() - others:
            values = {"name": name, "last": part.sequences[name]}
            await tx.execute(text("SELECT setval(to_regclass(:name), :last)"), values)


def _tables(connection: Connection) -> list[str]:
    """Return the names of all tables; one comes after those that it refers to."""
    found = MetaData()
    found.reflect(connection)
    return [table.name for table in found.sorted_tables]


@asynccontextmanager
async def _transaction(url: str) -> AsyncIterator[AsyncConnection]:
    engine = postgres_engine(postgres_url(url), None)
    try:
        async with engine.begin() as tx:
            yield tx
    finally:
        await engine.dispose()
