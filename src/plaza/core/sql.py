"""The SQL database: SQLite in the data directory, or PostgreSQL, behind the same three verbs.

    async with sql.begin() as tx:       # may write; commits at the end, or rolls back
    async with sql.read() as tx:        # sees one moment; a write here is refused
    rows = await sql.fetch_all(statement)    # one short read: a row by its key, a page by an index

SQLite has one writer at a time, so we have one writing connection: writers of this process queue for it in the order
they came, and `BEGIN IMMEDIATE` makes those of other processes queue in SQLite, instead of failing half-way when a
reader turns into a writer. Readers have connections of their own and, with the write-ahead log, wait for nobody; short
reads need no thread even (`here.py`). PostgreSQL has one pool. A read is a repeatable one there, so that both databases
promise the same; a look is one statement, which needs no transaction around it.

Whatever says "not now" (no connection, a full pool, a lock held too long, a deadlock) becomes `Unavailable`;
what says "wrong" (a constraint, bad SQL) stays what it is. Neither the URL nor a statement's parameters appear in an
error: passwords live there.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import asyncpg
from sqlalchemy import Executable, MetaData, Row, Table, event, exc, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from plaza.core import metrics, migrate
from plaza.core.errors import OperatorError, SettingError, Unavailable
from plaza.core.settings import Settings
from plaza.core.sqlite import SqliteConnections
from plaza.core.sqlite_inline import InlineSqlite

SQLITE_READERS = 4
POOL_SIZE, POOL_OVERFLOW = 10, 10
# Longer than any honest transaction, shorter than a client's patience.
POOL_WAIT_SECONDS = 10.0
BUSY_WAIT_MS = 5_000
CONNECT_SECONDS = 5.0
STATEMENT_SECONDS = 30.0
SILENCE_SECONDS = 5.0

_AWAY = "The database is away or busy."

# What a connection that only reads is told.
_READS = ("query_only = ON",)

_LOOKS_DONE = metrics.SQL_TRANSACTIONS.labels("look", "done")
_LOOK_DURATION = metrics.SQL_DURATION.labels("look")

# Constraints get names by rule, so that a migration can name what it alters.
NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

# The SQLite codes that may pass by themselves, or by an operator: busy, locked, out of memory, interrupted, I/O, full,
# cannot open.
_SQLITE_AWAY = {5, 6, 7, 9, 10, 13, 14}
# PostgreSQL's: connection trouble, out of resources, a statement that took too long, operator intervention, deadlock,
# failed serialisation, a lock not available.
_POSTGRES_AWAY = ("08", "53", "57014", "57P", "40001", "40P01", "55P03")


def metadata() -> MetaData:
    """The tables of one domain, with constraints named by rule."""
    return MetaData(naming_convention=NAMES)


class Sql:
    """A database, open and migrated."""

    def __init__(
        self,
        writer: AsyncEngine,
        reader: AsyncEngine,
        looker: AsyncEngine,
        here: InlineSqlite | None = None,
        connections: SqliteConnections | None = None,
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._looker = looker
        self._here = here
        self._connections = connections
        self.dialect = writer.dialect.name

    @classmethod
    async def open(cls, settings: Settings, folders: Sequence[Path] | None = None) -> Sql:
        """Connect, bring the tables up to date (all of Plaza's, or those of `folders`), and be ready."""
        if settings.database_url:
            url = _postgres_url(settings.database_url)
            await _migrate_postgres(url, migrate.migration_folders() if folders is None else folders)
            return cls(*_postgres_engines(url))
        file = settings.data_dir / "plaza.sqlite"
        await _migrate_sqlite(file, migrate.migration_folders() if folders is None else folders)
        connections = SqliteConnections(file)
        reader = _sqlite_reader(connections)
        return cls(_sqlite_writer(connections), reader, reader, InlineSqlite(file, _READS), connections)

    def begin(self) -> contextlib.AbstractAsyncContextManager[AsyncConnection]:
        """A transaction that may write. On SQLite it is the only one that does."""
        return _counted(self._writer, "write")

    def read(self) -> contextlib.AbstractAsyncContextManager[AsyncConnection]:
        """A transaction that only reads, all of it as of one moment."""
        return _counted(self._reader, "read")

    async def fetch_all(self, statement: Executable, **values: Any) -> Sequence[Row[Any]]:
        """All that a short read finds. On SQLite it is done at once, unless it turns out to be a long one."""
        if self._here is not None:
            begun = monotonic()
            try:
                found = self._here.rows(statement, values)
            except exc.OperationalError as error:
                if not _is_away(error):
                    raise
            else:
                _LOOKS_DONE.inc()
                _LOOK_DURATION.observe(monotonic() - begun)
                return found
        async with _counted(self._looker, "look") as tx:
            return (await tx.execute(statement, values)).all()

    def insert(self, table: Table) -> Any:
        """An INSERT with `on_conflict_do_update` and `on_conflict_do_nothing`, which both databases spell alike."""
        return postgresql.insert(table) if self.dialect == "postgresql" else sqlite.insert(table)

    async def ping(self) -> None:
        """Raise `Unavailable` unless the database answers."""
        async with self.read() as tx:
            await tx.execute(text("SELECT 1"))

    async def close(self) -> None:
        if self._here is not None:
            self._here.close()
        await self._reader.dispose()
        await self._writer.dispose()
        if self._connections is not None:
            await self._connections.ended()


@contextlib.asynccontextmanager
async def _counted(engine: AsyncEngine, kind: str) -> AsyncIterator[AsyncConnection]:
    begun, result = monotonic(), "failed"
    try:
        async with _transaction(engine) as connection:
            yield connection
        result = "done"
    except Unavailable:
        result = "away"
        raise
    finally:
        metrics.SQL_TRANSACTIONS.labels(kind, result).inc()
        metrics.SQL_DURATION.labels(kind).observe(monotonic() - begun)


@contextlib.asynccontextmanager
async def _transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    async with contextlib.AsyncExitStack() as stack:
        try:
            connection = await stack.enter_async_context(engine.connect())
        except (OSError, TimeoutError, exc.TimeoutError, exc.DBAPIError, asyncpg.PostgresError) as error:
            raise Unavailable(_AWAY) from error
        try:
            async with connection.begin():
                yield connection
        except exc.DBAPIError as error:
            if _is_away(error):
                raise Unavailable(_AWAY) from error
            raise


def _is_away(error: exc.DBAPIError) -> bool:
    if error.connection_invalidated:
        return True
    cause: Any = error.orig
    if isinstance(cause, sqlite3.Error):
        return (getattr(cause, "sqlite_errorcode", 0) & 0xFF) in _SQLITE_AWAY
    return str(getattr(cause, "sqlstate", None) or "").startswith(_POSTGRES_AWAY)


def _sqlite_engine(connections: SqliteConnections, begin: str, pragmas: Sequence[str], **pool: Any) -> AsyncEngine:
    engine = create_async_engine(
        f"sqlite+aiosqlite:///{connections.file}", async_creator=connections.open, hide_parameters=True, **pool
    )

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        for pragma in (f"busy_timeout = {BUSY_WAIT_MS}", *pragmas):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def start(connection: Any) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _sqlite_writer(connections: SqliteConnections) -> AsyncEngine:
    # FULL: with NORMAL a commit reaches the disk only at the next checkpoint, which may be hours away.
    pragmas = ("foreign_keys = ON", "synchronous = FULL")
    return _sqlite_engine(
        connections, "BEGIN IMMEDIATE", pragmas, pool_size=1, max_overflow=0, pool_timeout=POOL_WAIT_SECONDS
    )


def _sqlite_reader(connections: SqliteConnections) -> AsyncEngine:
    return _sqlite_engine(
        connections, "BEGIN", _READS, pool_size=SQLITE_READERS, max_overflow=0, pool_timeout=POOL_WAIT_SECONDS
    )


async def _migrate_sqlite(file: Path, folders: Sequence[Path]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))  # nobody else's to read; its log follows its mode
    except OSError as error:
        raise SettingError(f"Cannot use the data directory {file.parent}: {error.strerror}.") from None
    async with migrate.file_lock(file.with_suffix(".lock")):
        # A migration may rebuild a table under its references, so they are checked at the end, not at every step.
        # The write-ahead log is a property of the file; it is switched on here, where nobody else has it open yet.
        pragmas = ("foreign_keys = OFF", "synchronous = FULL", "journal_mode = WAL")
        connections = SqliteConnections(file)
        engine = _sqlite_engine(connections, "BEGIN IMMEDIATE", pragmas)
        try:
            async with _transaction(engine) as tx:
                await tx.run_sync(migrate.upgrade, folders)
                broken = (await tx.execute(text("PRAGMA foreign_key_check"))).first()
                if broken is not None:
                    raise SettingError(f"A migration left a broken reference in table {broken[0]}.")
        except (Unavailable, exc.DBAPIError) as error:
            raise _unusable(file, error) from error
        finally:
            await engine.dispose()
            await connections.ended()


def _unusable(file: Path, error: Exception) -> Exception:
    """What whoever starts Plaza hears: why, and whether it may pass by itself."""
    cause = error.__cause__ if isinstance(error, Unavailable) else error
    reason = getattr(cause, "orig", cause)
    if isinstance(cause, exc.DBAPIError) and not _is_away(cause):
        return OperatorError(f"{file} cannot be used: {reason}. Put back a backup.")
    return Unavailable(f"{file} cannot be used now: {reason}.")


def _postgres_url(url: str) -> str:
    if url.split("://")[0] not in ("postgresql", "postgres"):
        raise SettingError(_LOOKS)  # which does not repeat what was given: it may hold a password
    return url


_LOOKS = "PLAZA_DATABASE_URL must look like postgresql://user:password@host:5432/name."


def _postgres_engine(url: str, statement_seconds: float | None, **pool: Any) -> AsyncEngine:
    async def connect() -> Any:
        # asyncpg reads the URL as libpq would (sslmode, several hosts, a password file), which SQLAlchemy does not.
        try:
            return await asyncpg.connect(
                url,
                timeout=CONNECT_SECONDS,
                # The server ends a slow statement; we give up on a server that does not even do that.
                command_timeout=statement_seconds and statement_seconds + SILENCE_SECONDS,
                server_settings={
                    "application_name": "plaza",
                    "statement_timeout": str(round((statement_seconds or 0) * 1000)),
                },
            )
        except (asyncpg.ClientConfigurationError, ValueError, OverflowError):
            # The driver's message may quote the URL, so ours does not pass it on.
            raise SettingError(f"PLAZA_DATABASE_URL has a host, port or parameter that cannot be. {_LOOKS}") from None

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, hide_parameters=True, **pool)

    @event.listens_for(engine.sync_engine, "handle_error")
    def give_up(context: ExceptionContext) -> None:
        if isinstance(context.original_exception, TimeoutError):  # which the driver raises as it is
            raise Unavailable(_AWAY) from context.original_exception

    return engine


def _postgres_engines(url: str) -> tuple[AsyncEngine, AsyncEngine, AsyncEngine]:
    # A connection is tried before it is lent: after a restart of the database the first request would fail otherwise.
    writer = _postgres_engine(
        url,
        STATEMENT_SECONDS,
        pool_size=POOL_SIZE,
        max_overflow=POOL_OVERFLOW,
        pool_timeout=POOL_WAIT_SECONDS,
        pool_pre_ping=True,
    )
    reader = writer.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return writer, reader, writer.execution_options(isolation_level="AUTOCOMMIT")


async def _migrate_postgres(url: str, folders: Sequence[Path]) -> None:
    engine = _postgres_engine(url, statement_seconds=None)
    try:
        async with _transaction(engine) as tx:
            await tx.execute(text(f"SET LOCAL lock_timeout = '{migrate.LOCK_WAIT_SECONDS}s'"))
            await tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": migrate.LOCK})
            await tx.run_sync(migrate.upgrade, folders)
    except Unavailable as error:
        # Only an operator sees this one, and it is the operator who can do something about it.
        cause = getattr(error.__cause__, "orig", error.__cause__)
        raise Unavailable(f"PostgreSQL at {_place(url)} cannot be used now: {cause}") from error
    finally:
        await engine.dispose()


def _place(url: str) -> str:
    """Where a database is, without who asks and what for: passwords may be in either."""
    return url.split("://")[1].split("?")[0].rpartition("@")[2].rstrip("/") or "its default address"
