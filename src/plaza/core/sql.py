"""The SQL database: SQLite in the data directory, or PostgreSQL, with the same three methods.

    async with sql.begin() as tx:            # may write; commits at the end, or rolls back
    async with sql.read() as tx:             # one snapshot; writes fail
    rows = await sql.fetch_all(statement)    # one short read: a row by its key, a page by an index

SQLite has one writer at a time, so there is one connection for writing: writers of this process queue for it in order,
and `BEGIN IMMEDIATE` makes writers of other processes wait, instead of failing when a reader becomes a writer. Readers
have their own connections and, with the write-ahead log, never wait for writers; short reads need no thread
(`sqlite_inline.py`). PostgreSQL has one pool. Its reads are `REPEATABLE READ`, so that both databases guarantee the
same; `fetch_all` is one statement without a transaction.

Each domain gets its own view of the database (`Sql.for_domain`), which uses a part of the connections at most, and
PostgreSQL gives up a statement that waits for a lock as long as SQLite would. So a locked table stops its own domain
only, for a bounded time.

Errors that may pass (no connection, a full pool, a lock held too long, a deadlock) become `Unavailable`. Others (a
constraint, bad SQL) stay. Neither the URL nor the parameters of statements appear in an error, because they can contain
passwords.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from sqlalchemy import Engine, Executable, MetaData, Row, Table, event, exc, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import ExceptionContext

from plaza.core import metrics, sql_migrations
from plaza.core.async_engine import AsyncConnection, AsyncEngine, create_async_engine
from plaza.core.errors import Invalid, OperatorError, SettingError, Unavailable
from plaza.core.extras import require_extra
from plaza.core.settings import Settings
from plaza.core.sql_share import SqlShare
from plaza.core.sqlite import SqliteConnections
from plaza.core.sqlite_inline import InlineSqlite

SQLITE_READERS = 8
POOL_SIZE, POOL_OVERFLOW = 10, 10
# The connections that a domain may use at a time, for writing and as many again for reading: two domains that are stuck
# leave some to the others. SQLite has one writer; there a share bounds how many of a domain queue for it.
POSTGRES_SHARE = 4
SQLITE_WRITER_SHARE, SQLITE_READER_SHARE = 8, 3
# Longer than any normal transaction, shorter than a client's timeout.
POOL_WAIT_SECONDS = 10.0
# How long a statement waits for a lock.
BUSY_WAIT_MS = 5_000
STATEMENT_SECONDS = 30.0

_UNAVAILABLE = "The database is unavailable or busy. Retry later."
# What PostgreSQL calls a NUL in a text, which it cannot store and SQLite can.
_UNSTORABLE_CHARACTER = "22021"

# For connections that only read.
_READ_ONLY_PRAGMAS = ("query_only = ON",)

_SHORT_READS_DONE = metrics.SQL_TRANSACTIONS.labels("look", "done")
_SHORT_READ_DURATION = metrics.SQL_DURATION.labels("look")

# Constraints have systematic names, so that migrations can refer to them.
CONSTRAINT_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

# SQLite codes of errors that may pass, or that an operator can fix: busy, locked, out of memory, interrupted, I/O,
# full, cannot open.
_SQLITE_UNAVAILABLE = {5, 6, 7, 9, 10, 13, 14}
# PostgreSQL's: connection errors, out of resources, a statement that took too long, operator intervention, deadlock,
# serialization failure, a lock not available.
_POSTGRES_UNAVAILABLE = ("08", "53", "57014", "57P", "40001", "40P01", "55P03")


def _is_failure(record: logging.LogRecord) -> bool:
    """SQLAlchemy logs as an error that a caller was cancelled while its connection closed, and then closes it."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


logging.getLogger("sqlalchemy.pool.impl.AsyncAdaptedQueuePool").addFilter(_is_failure)


def metadata() -> MetaData:
    """Return the metadata for the tables of a domain, with systematic constraint names."""
    return MetaData(naming_convention=CONSTRAINT_NAMES)


# The open transactions, by the `id` of their connection, that have added events (`sql_events.py`).
_with_events: set[int] = set()


def note_events(tx: AsyncConnection) -> None:
    """Note that a transaction has added events: the listeners of `Sql.on_events` are called after its commit."""
    _with_events.add(id(tx))


class Sql:
    """An open and migrated database."""

    def __init__(
        self,
        writer: AsyncEngine,
        reader: AsyncEngine,
        autocommit: AsyncEngine,
        health: AsyncEngine,
        inline: InlineSqlite | None = None,
        connections: SqliteConnections | None = None,
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._autocommit = autocommit
        self._health = health  # its connection is free whatever the domains do
        self._inline = inline
        self._connections = connections
        self.dialect = writer.dialect.name
        self._event_listeners: list[Callable[[], None]] = []
        self._write_share: SqlShare | None = None
        self._read_share: SqlShare | None = None

    def for_domain(self) -> Sql:
        """Return the same database for one domain, which uses a part of the connections at most."""
        view = copy.copy(self)
        is_sqlite = self._connections is not None
        view._write_share = SqlShare(SQLITE_WRITER_SHARE if is_sqlite else POSTGRES_SHARE, POOL_WAIT_SECONDS)
        view._read_share = SqlShare(SQLITE_READER_SHARE if is_sqlite else POSTGRES_SHARE, POOL_WAIT_SECONDS)
        return view

    @classmethod
    async def open(cls, settings: Settings, folders: Sequence[Path] | None = None, off: Sequence[Path] = ()) -> Sql:
        """Connect and migrate the tables: all of Plaza's, or those of `folders`. Tables of `off` may exist."""
        folders = sql_migrations.migration_folders() if folders is None else folders
        if settings.database_url:
            url = postgres_url(settings.database_url)
            await _migrate_postgres(url, folders, off)
            return cls(*_postgres_engines(url))
        file = settings.data_dir / "plaza.sqlite"
        await _migrate_sqlite(file, folders, off)
        connections = SqliteConnections(file)
        writer, reader, health = (
            _sqlite_writer(connections),
            _sqlite_reader(connections),
            _sqlite_reader(connections, 1),
        )
        return cls(writer, reader, reader, health, InlineSqlite(file, _READ_ONLY_PRAGMAS), connections)

    def begin(self) -> contextlib.AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction that may write. On SQLite there is only one at a time."""
        return self._announcing_events()

    @contextlib.asynccontextmanager
    async def _announcing_events(self) -> AsyncIterator[AsyncConnection]:
        async with _counted(self._writer, "write", self._write_share) as connection:
            try:
                yield connection
            finally:
                has_events = id(connection) in _with_events
                _with_events.discard(id(connection))
        if has_events:
            for listener in self._event_listeners:
                listener()

    def on_events(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function after every commit of a transaction with events. Returns a function that removes it."""
        self._event_listeners.append(listener)
        return lambda: self._event_listeners.remove(listener)

    def read(self) -> contextlib.AbstractAsyncContextManager[AsyncConnection]:
        """Begin a transaction that only reads, from one snapshot."""
        return _counted(self._reader, "read", self._read_share)

    async def fetch_all(self, statement: Executable, **values: Any) -> Sequence[Row[Any]]:
        """Return all rows of a short read. On SQLite it runs in the event loop's thread, unless it takes long."""
        if self._inline is not None:
            started = monotonic()
            try:
                found = self._inline.fetch_all(statement, values)
            except exc.OperationalError as error:
                if not _is_unavailable(error):
                    raise
            else:
                _SHORT_READS_DONE.inc()
                _SHORT_READ_DURATION.observe(monotonic() - started)
                return found
        async with _counted(self._autocommit, "look", self._read_share) as tx:
            return (await tx.execute(statement, values)).all()

    def insert(self, table: Table) -> Any:
        """Return an INSERT with `on_conflict_do_update` and `on_conflict_do_nothing`, which both databases support."""
        if self.dialect == "postgresql":
            from sqlalchemy.dialects.postgresql import insert  # 20 modules that SQLite does not need

            return insert(table)
        return sqlite.insert(table)

    @property
    def engines(self) -> list[Engine]:
        """The engines that run statements, for observers of them."""
        asynchronous = {self._writer.sync_engine, self._reader.sync_engine}
        return [*asynchronous, *([self._inline.engine] if self._inline is not None else [])]

    async def ping(self) -> None:
        """Raise `Unavailable` if the database does not answer."""
        async with _counted(self._health, "read") as tx:
            await tx.execute(text("SELECT 1"))

    async def close(self) -> None:
        if self._inline is not None:
            self._inline.close()
        await self._health.dispose()
        await self._reader.dispose()
        await self._writer.dispose()
        if self._connections is not None:
            await self._connections.wait_closed()


@contextlib.asynccontextmanager
async def _counted(engine: AsyncEngine, kind: str, share: SqlShare | None = None) -> AsyncIterator[AsyncConnection]:
    started, result = monotonic(), "failed"
    try:
        async with contextlib.nullcontext() if share is None else share.slot(), _transaction(engine) as connection:
            yield connection
        result = "done"
    except Unavailable:
        result = "away"
        raise
    finally:
        metrics.SQL_TRANSACTIONS.labels(kind, result).inc()
        metrics.SQL_DURATION.labels(kind).observe(monotonic() - started)


@contextlib.asynccontextmanager
async def _transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    async with contextlib.AsyncExitStack() as stack:
        try:
            connection = await stack.enter_async_context(engine.connect())
        except (OSError, TimeoutError, exc.TimeoutError, exc.DBAPIError) as error:
            raise Unavailable(_UNAVAILABLE) from error
        try:
            async with connection.begin():
                yield connection
        except exc.DBAPIError as error:
            if _is_unavailable(error):
                raise Unavailable(_UNAVAILABLE) from error
            raise


def _is_unavailable(error: exc.DBAPIError) -> bool:
    if error.connection_invalidated:
        return True
    cause: Any = error.orig
    if isinstance(cause, sqlite3.Error):
        return (getattr(cause, "sqlite_errorcode", 0) & 0xFF) in _SQLITE_UNAVAILABLE
    return str(getattr(cause, "sqlstate", None) or "").startswith(_POSTGRES_UNAVAILABLE)


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


def _sqlite_reader(connections: SqliteConnections, size: int = SQLITE_READERS) -> AsyncEngine:
    return _sqlite_engine(
        connections,
        "BEGIN",
        _READ_ONLY_PRAGMAS,
        pool_size=size,
        max_overflow=0,
        pool_timeout=POOL_WAIT_SECONDS,
    )


async def _migrate_sqlite(file: Path, folders: Sequence[Path], off: Sequence[Path]) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(
            os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        )  # readable by the owner only; SQLite gives its log the same mode
    except OSError as error:
        raise SettingError(f"Cannot use the data directory {file.parent}: {error.strerror}.") from None
    if sql_migrations.is_sqlite_current(file, folders, off):
        return
    async with sql_migrations.file_lock(file.with_suffix(".lock")):
        # A migration may rebuild a referenced table, so references are checked at the end, not at every step.
        # The write-ahead log is a property of the file. It is enabled here, before another connection is open.
        pragmas = ("foreign_keys = OFF", "synchronous = FULL", "journal_mode = WAL")
        connections = SqliteConnections(file)
        engine = _sqlite_engine(connections, "BEGIN IMMEDIATE", pragmas)
        try:
            async with _transaction(engine) as tx:
                if await tx.run_sync(sql_migrations.is_behind, folders, off):
                    # Rows that another program orphaned before are a matter for the audit, and stop no start.
                    before = await _broken_references(tx)
                    await tx.run_sync(sql_migrations.upgrade, folders, off)
                    for table, *_ in await _broken_references(tx) - before:
                        raise SettingError(f"A migration left a broken reference in table {table}. Report this error.")
        except (Unavailable, exc.DBAPIError) as error:
            raise _unusable(file, error) from error
        finally:
            await engine.dispose()
            await connections.wait_closed()


async def _broken_references(tx: AsyncConnection) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in await tx.execute(text("PRAGMA foreign_key_check"))}


def _unusable(file: Path, error: Exception) -> Exception:
    """Return the error for the operator: the reason, and whether it may pass."""
    cause = error.__cause__ if isinstance(error, Unavailable) else error
    reason = getattr(cause, "orig", cause)
    if isinstance(cause, exc.DBAPIError) and not _is_unavailable(cause):
        return OperatorError(f"{file} cannot be used: {reason}. Restore a backup.")
    return Unavailable(f"{file} cannot be used now: {reason}.")


def postgres_url(url: str) -> str:
    """Return the URL of a PostgreSQL database. Raises `SettingError` if it is another one, or without the driver."""
    if url.split("://")[0] not in ("postgresql", "postgres"):
        raise SettingError(_URL_FORMAT)  # without the given URL, which can contain a password
    require_extra("postgres", "PLAZA_DATABASE_URL is the address of a PostgreSQL database.")
    return url


_URL_FORMAT = "PLAZA_DATABASE_URL must look like postgresql://user:password@host:5432/name."


def postgres_engine(url: str, statement_seconds: float | None, lock_ms: int = 0, **pool: Any) -> AsyncEngine:
    """Return an engine whose statements may take, and wait for a lock, so long; None and 0 for no limit."""
    from plaza.core.postgres import connect  # only where asyncpg is installed

    async def creator() -> Any:
        try:
            return await connect(url, statement_seconds, lock_ms)
        except (ValueError, OverflowError):
            # The driver's message may contain the URL, so it is not passed on.
            raise SettingError(f"PLAZA_DATABASE_URL has an invalid host, port or parameter. {_URL_FORMAT}") from None

    engine = create_async_engine("postgresql+asyncpg://", async_creator=creator, hide_parameters=True, **pool)

    @event.listens_for(engine.sync_engine, "handle_error")
    def convert_error(context: ExceptionContext) -> None:
        error = context.original_exception
        if isinstance(error, TimeoutError):  # the driver does not wrap it
            raise Unavailable(_UNAVAILABLE) from error
        if getattr(error, "sqlstate", None) == _UNSTORABLE_CHARACTER:
            raise Invalid("A text has the character U+0000. Remove it.") from error

    return engine


def _postgres_engines(url: str) -> tuple[AsyncEngine, AsyncEngine, AsyncEngine, AsyncEngine]:
    # pool_pre_ping: otherwise the first request after a restart of the database would fail.
    pooled: dict[str, Any] = {"lock_ms": BUSY_WAIT_MS, "pool_timeout": POOL_WAIT_SECONDS, "pool_pre_ping": True}
    writer = postgres_engine(url, STATEMENT_SECONDS, pool_size=POOL_SIZE, max_overflow=POOL_OVERFLOW, **pooled)
    reader = writer.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    health = postgres_engine(url, STATEMENT_SECONDS, pool_size=1, max_overflow=0, **pooled)
    return writer, reader, writer.execution_options(isolation_level="AUTOCOMMIT"), health


async def _migrate_postgres(url: str, folders: Sequence[Path], off: Sequence[Path]) -> None:
    engine = postgres_engine(url, statement_seconds=None)
    try:
        async with _transaction(engine) as tx:
            await tx.execute(text(f"SET LOCAL lock_timeout = '{sql_migrations.LOCK_WAIT_SECONDS}s'"))
            await tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": sql_migrations.ADVISORY_LOCK})
            await tx.run_sync(sql_migrations.upgrade, folders, off)
    except Unavailable as error:
        # Only the operator sees this error, so it may contain the cause.
        cause = getattr(error.__cause__, "orig", error.__cause__)
        raise Unavailable(f"PostgreSQL at {database_host(url)} cannot be used now: {cause}") from error
    finally:
        await engine.dispose()


def database_host(url: str) -> str:
    """Return the host of a database URL, without user and parameters, which can contain passwords."""
    return url.split("://")[1].split("?")[0].rpartition("@")[2].rstrip("/") or "its default address"
