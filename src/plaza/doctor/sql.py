"""Checks the SQL database: the connection, and whether its tables fit this Plaza. It never writes."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

from plaza.core.errors import OperatorError, Unavailable
from plaza.core.settings import Settings
from plaza.core.sql_migrations import SchemaState, current_heads, migration_folders, schema_state, sqlite_heads
from plaza.doctor.check import CheckResult, ok, wrong
from plaza.own_domains import only_own_domains

STATEMENT_SECONDS: Final = 5.0


async def check_sql(settings: Settings, data_dir: Path) -> list[CheckResult]:
    """Check the connection and the migrations."""
    try:
        folders, off = _configured_folders(settings)
    except OperatorError:  # `check_settings` reports it
        return []
    if settings.database_url:
        return await _check_postgres(settings.database_url, folders, off)
    return _check_sqlite(data_dir / "plaza.sqlite", folders, off)


def _configured_folders(settings: Settings) -> tuple[list[Path], list[Path]]:
    """Return the folders of migrations of the configured domains, and those of the domains that are off."""
    if only_own_domains(settings):
        return migration_folders(), []
    from plaza.app import configured_domains, migrations_of

    return migrations_of(configured_domains(settings))


def _check_sqlite(file: Path, folders: list[Path], off: list[Path]) -> list[CheckResult]:
    if not file.exists():
        return [wrong("sql", f"{file} does not exist.", "Start `plaza serve` once, or check PLAZA_DATA_DIR.")]
    file.open("rb").close()  # an error of permissions is not one of the content
    # A database whose log has been merged is read as it is. Otherwise reading would create the log's files.
    mode = "mode=ro" if file.with_name(f"{file.name}-wal").exists() else "mode=ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?{mode}", uri=True)) as connection:
            heads = sqlite_heads(connection)
    except sqlite3.Error as error:
        return [wrong("sql", f"{file} cannot be read: {error}.", "Restore a backup.")]
    return [ok("sql", f"SQLite in {file}."), judge_schema(schema_state(heads, folders, off))]


async def _check_postgres(given: str, folders: list[Path], off: list[Path]) -> list[CheckResult]:
    from sqlalchemy import exc, text
    from sqlalchemy.pool import NullPool

    from plaza.core.sql import database_host, postgres_engine, postgres_url

    try:
        url = postgres_url(given)
    except OperatorError as error:
        return [wrong("sql", str(error), "Correct it.")]
    try:
        engine = postgres_engine(url, STATEMENT_SECONDS, poolclass=NullPool)
        async with engine.connect() as connection:
            version = (await connection.execute(text("SHOW server_version"))).scalar_one()
            state = schema_state(await connection.run_sync(current_heads), folders, off)
    except (OperatorError, Unavailable, OSError, exc.DBAPIError) as error:
        reason = str(getattr(error, "orig", None) or error).rstrip(".")
        return [wrong("sql", f"PostgreSQL at {database_host(url)} cannot be used: {reason}.", _connection_fix(reason))]
    return [ok("sql", f"PostgreSQL {version.split()[0]} at {database_host(url)}."), judge_schema(state)]


def _connection_fix(reason: str) -> str:
    if "password" in reason or "role" in reason:
        return "Correct user and password in PLAZA_DATABASE_URL."
    return "Start PostgreSQL, or correct PLAZA_DATABASE_URL."


def judge_schema(state: SchemaState) -> CheckResult:
    """Say whether the tables fit this Plaza."""
    if state.unknown:
        text = f"The tables are newer than this Plaza: {', '.join(state.unknown)}."
        return wrong("migrations", text, "Start the version that migrated them, or restore an older backup.")
    if state.is_empty:
        return wrong("migrations", "There are no tables yet.", "Start `plaza serve` once: it creates them.")
    if state.pending:
        text = f"The tables are older than this Plaza: {', '.join(state.pending)} has not run."
        return wrong("migrations", text, "Back up, then restart the server: it migrates when it starts.")
    return ok("migrations", "The tables fit this Plaza.")
