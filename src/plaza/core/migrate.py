"""Tables are brought up to date when Plaza starts, once, however many processes start together.

Each domain has a folder `migrations/versions` of Alembic revisions, a branch of its own (`branch_labels` in its first
revision), so domains need not agree on an order. All of them are upgraded in one transaction under one lock: others
wait and then find nothing to do, and a crash half-way leaves the database as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

import plaza
from plaza.core.errors import SettingError, Unavailable

# Any number will do that nobody else takes for an advisory lock in the same database: "plaza" in ASCII.
LOCK = 0x706C617A61
LOCK_WAIT_SECONDS = 120.0


def migration_folders() -> list[Path]:
    """Every `migrations/versions` of Plaza: a domain has tables by having the folder."""
    return sorted(Path(plaza.__file__).parent.glob("*/migrations/versions"))


def upgrade(connection: Connection, migration_folders: Sequence[Path]) -> None:
    """Bring every branch to its head, inside the caller's transaction."""
    if not migration_folders:
        return  # Alembic would look beside its env.py instead
    config = _config(migration_folders)
    _refuse_unknown(connection, ScriptDirectory.from_config(config))
    config.attributes["connection"] = connection
    command.upgrade(config, "heads")


def _config(migration_folders: Sequence[Path]) -> Config:
    def plain(value: str) -> str:
        return value.replace("%", "%%")  # the ini format would expand it

    config = Config()
    config.set_main_option("script_location", plain(str(Path(__file__).parent / "migrations")))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", plain(os.pathsep.join(str(f) for f in migration_folders)))
    return config


def _refuse_unknown(connection: Connection, scripts: ScriptDirectory) -> None:
    known = {script.revision for script in scripts.walk_revisions()}
    unknown = set(MigrationContext.configure(connection).get_current_heads()) - known
    if unknown:
        raise SettingError(
            f"The database is newer than this Plaza ({plaza.__version__}): it has revision "
            f"{', '.join(sorted(unknown))}. Start the version that made it, or restore a backup from before."
        )


@contextlib.asynccontextmanager
async def file_lock(path: Path) -> AsyncIterator[None]:
    """Hold a lock that the kernel gives back if we die. The file stays: removing it would let two hold "it"."""
    deadline = asyncio.get_running_loop().time() + LOCK_WAIT_SECONDS
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while not _try_lock(handle):
            if asyncio.get_running_loop().time() > deadline:
                raise Unavailable(f"Another process has held {path} for {LOCK_WAIT_SECONDS:.0f} s.")
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
