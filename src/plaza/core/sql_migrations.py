"""Migrates the tables when Plaza starts, once, however many processes start together.

Each domain has a folder `migrations/versions` of Alembic revisions on its own branch (`branch_labels` in its first
revision), so domains need no common order. All are upgraded in one transaction under one lock: other processes wait and
then have nothing to do, and a crash leaves the database unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

import plaza
from plaza.core.errors import SettingError, Unavailable

# Alembic is imported where it is needed: a start without new migrations does not, and saves 150 ms of CPU. So is
# SQLAlchemy, which `plaza doctor` does not need for SQLite.
if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from sqlalchemy import Connection

# The number of the advisory lock. It must be unique in the database: "plaza" in ASCII.
ADVISORY_LOCK = 0x706C617A61
LOCK_WAIT_SECONDS = 120.0


# Of the tables that belong to no domain.
CORE_FOLDER = Path(__file__).parent / "migrations" / "versions"


def migration_folders() -> list[Path]:
    """Return every folder `migrations/versions` in Plaza."""
    return sorted(Path(plaza.__file__).parent.glob("*/migrations/versions"))


def is_behind(connection: Connection, folders: Sequence[Path], off: Sequence[Path] = ()) -> bool:
    """Return whether a migration has not run yet. Reads the names of the files only."""
    return _is_behind(current_heads(connection), folders, off)


def is_sqlite_current(file: Path, folders: Sequence[Path], off: Sequence[Path] = ()) -> bool:
    """Return whether a file has all tables and a write-ahead log: much cheaper than the same under a lock.

    False if it cannot be read now.
    """
    try:
        with contextlib.closing(sqlite3.connect(file, timeout=0)) as connection:
            if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):  # a restored file
                return False
            heads = sqlite_heads(connection)
    except sqlite3.Error:
        return False
    return not _is_behind(heads, folders, off)


def _is_behind(heads: set[str], folders: Sequence[Path], off: Sequence[Path]) -> bool:
    unused = {_head(folder) for folder in off}
    return {_head(folder) for folder in folders} != heads - unused


class SchemaState(Struct, frozen=True):
    """The revisions that the tables lack, and those that only a newer Plaza knows; and whether there are any tables."""

    pending: list[str]
    unknown: list[str]
    is_empty: bool


def schema_state(current: set[str], folders: Sequence[Path], off: Sequence[Path] = ()) -> SchemaState:
    """Compare the current revisions of the tables with the migrations."""
    pending = {_head(folder) for folder in folders} - current
    known = {revision for folder in (*folders, *off) for revision in _revisions(folder)}
    return SchemaState(sorted(pending), sorted(current - known), is_empty=not current)


def _head(folder: Path) -> str:
    """Return the last revision of a folder."""
    return max(_revisions(folder))


def _revisions(folder: Path) -> list[str]:
    """Return the revisions of a folder: that of `shop_0002_pictures.py` is `shop_0002`."""
    return ["_".join(file.stem.split("_")[:2]) for file in folder.glob("[!_]*.py")]


def current_heads(connection: Connection) -> set[str]:
    """Return the revisions that the tables have; none without tables."""
    from sqlalchemy import inspect, text

    if not inspect(connection).has_table("alembic_version"):
        return set()
    return set(connection.scalars(text("SELECT version_num FROM alembic_version")))


def sqlite_heads(connection: sqlite3.Connection) -> set[str]:
    """As `current_heads`, for a plain connection."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone() is None:
        return set()
    return {revision for (revision,) in connection.execute("SELECT version_num FROM alembic_version")}


def upgrade(connection: Connection, folders: Sequence[Path], off: Sequence[Path] = ()) -> None:
    """Upgrade the branch of every folder to its head, in the caller's transaction. Those that are off may exist."""
    if not folders:
        return  # without folders Alembic would search beside its env.py
    from alembic import command
    from alembic.script import ScriptDirectory

    config = _config([*folders, *off])
    scripts = ScriptDirectory.from_config(config)
    _refuse_unknown(current_heads(connection), scripts)
    config.attributes["connection"] = connection
    for script in scripts.get_revisions(scripts.get_heads()):
        if script is not None and Path(script.path).parent in folders:
            command.upgrade(config, script.revision)


def upgrade_to(connection: Connection, folders: Sequence[Path], revisions: Sequence[str]) -> None:
    """Create the tables of an empty database as they were at some revisions, one of each branch."""
    from alembic import command

    config = _config(folders)
    config.attributes["connection"] = connection
    for revision in revisions:
        command.upgrade(config, revision)


def drop_all(connection: Connection, folders: Sequence[Path]) -> None:
    """Drop every table that the migrations created."""
    from alembic import command

    config = _config(folders)
    config.attributes["connection"] = connection
    command.downgrade(config, "base")


def _config(migration_folders: Sequence[Path]) -> Config:
    from alembic.config import Config

    def escape(value: str) -> str:
        return value.replace("%", "%%")  # the ini format would expand it

    config = Config()
    config.set_main_option("script_location", escape(str(Path(__file__).parent / "migrations")))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", escape(os.pathsep.join(str(f) for f in migration_folders)))
    return config


def refuse_unknown(revisions: Iterable[str], folders: Sequence[Path]) -> None:
    """Raise `SettingError` if one of the revisions is not in the folders: a newer Plaza created the tables."""
    from alembic.script import ScriptDirectory

    _refuse_unknown(revisions, ScriptDirectory.from_config(_config(folders)))


def _refuse_unknown(revisions: Iterable[str], scripts: ScriptDirectory) -> None:
    unknown = set(revisions) - {script.revision for script in scripts.walk_revisions()}
    if unknown:
        raise SettingError(
            f"The database is newer than this Plaza ({plaza.__version__}): it has revision "
            f"{', '.join(sorted(unknown))}. Start the version that created it, or restore an older backup."
        )


@contextlib.asynccontextmanager
async def file_lock(path: Path) -> AsyncIterator[None]:
    """Hold a file lock, which the kernel releases if the process dies. The file stays, or two could hold the lock."""
    deadline = asyncio.get_running_loop().time() + LOCK_WAIT_SECONDS
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while not _try_lock(handle):
            if asyncio.get_running_loop().time() > deadline:
                raise Unavailable(
                    f"Another process has locked {path} for {LOCK_WAIT_SECONDS:.0f} s. Stop it and start again."
                )
            await asyncio.sleep(0.02)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
