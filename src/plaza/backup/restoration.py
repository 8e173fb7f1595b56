"""Restores a backup: checks all of it, then the target, then writes, then repairs derived data.

Nothing is written before the backup is complete and undamaged and the target is empty, or may be replaced. While keys
are written, a key says so, and no server starts until the restore has ended.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Final

import structlog

from plaza.accounts.security_log import SqlSecurityLog
from plaza.app import Plaza, configured_domains, migration_folders, running
from plaza.backup import media_part, postgres_part, sqlite_part, valkey_part
from plaza.backup.chunks import write_file
from plaza.backup.progress import UNFINISHED_RESTORE, OnProgress, step
from plaza.backup.snapshots import SECRET_FILES, BackupDirectory, Snapshot
from plaza.core import keys, sql_migrations
from plaza.core.embedded_valkey import EmbeddedValkey
from plaza.core.errors import OperatorError, Unavailable
from plaza.core.functions import delete_libraries
from plaza.core.security_log import DONE, LogEntry
from plaza.core.settings import Settings
from plaza.core.valkey import Valkey
from plaza.keyspace.audit import REPAIR, AuditReport, Audits
from plaza.keyspace.audit_keys import AUDIT_PRIMARIES
from plaza.media.object_store import MediaStore
from plaza.valkey_discovery import open_connection

# How long a process that was stopped may still be connected.
STOP_SECONDS: Final = 2.0

log = structlog.get_logger("plaza.restore")


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has written. `audit` is the report after the repair; if that failed, its state says so."""

    snapshot: Snapshot
    keys: int
    audit: AuditReport


class RestoreRun:
    """One restore from a directory."""

    def __init__(
        self,
        settings: Settings,
        directory: BackupDirectory,
        on_progress: OnProgress = lambda name, done: None,
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._chunks = directory.chunks
        self._on_progress = on_progress

    async def check(self, id: str = "") -> Snapshot:
        """Read a backup, the latest by default, and compare it with its checksums. Raises `BrokenBackup`."""
        snapshot = self._directory.load(id)
        on_bytes = step(self._on_progress, "check")
        for size in self._chunks.check(sorted(await self._directory.chunk_names(snapshot))):
            on_bytes(size)
        return snapshot

    async def run(self, id: str = "", *, replaces: bool = False, operator: str = "@cli") -> Restored:
        """Restore a backup, the latest by default. With `replaces`, what the target has is deleted first."""
        with self._directory.being_read():
            return await self._run(id, replaces=replaces, operator=operator)

    async def _run(self, id: str, *, replaces: bool, operator: str) -> Restored:
        snapshot = await self.check(id)
        sql_migrations.refuse_unknown(snapshot.sql.revisions, self._folders())
        self._refuse_other_database(snapshot)
        async with _target_valkey(self._settings) as settings, open_connection(settings.valkey_url) as valkey:
            _refuse_other_layout(snapshot, valkey)
            if not replaces:
                await self._refuse_non_empty(valkey)
            elif self._settings.database_url:
                await postgres_part.refuse_newer(self._settings.database_url, self._folders())
            await _refuse_other_process(valkey)
            count = await self._write(snapshot, valkey)
            await valkey.call("DEL", AUDIT_PRIMARIES())  # those of the backup: other ones are no failover
            audit = await self._repair(snapshot, settings, operator)
            (self._settings.data_dir / UNFINISHED_RESTORE).rmdir()
            await valkey.call("DEL", keys.RESTORING())
        return Restored(snapshot, count, audit)

    def _folders(self) -> list[Path]:
        return migration_folders(configured_domains(self._settings))

    def _refuse_other_database(self, snapshot: Snapshot) -> None:
        dialect = postgres_part.DIALECT if self._settings.database_url else sqlite_part.DIALECT
        if snapshot.sql.dialect != dialect:
            raise OperatorError(
                f"The tables of the backup are of {snapshot.sql.dialect}, and PLAZA_DATABASE_URL names {dialect}. "
                "Change the setting, or use plaza export and plaza import."
            )

    async def _refuse_non_empty(self, valkey: Valkey) -> None:
        """Raise `OperatorError` with what is not empty."""
        settings, full = self._settings, []
        if not await valkey_part.is_empty(valkey):
            full.append("Valkey")
        if settings.database_url:
            empty = await postgres_part.is_empty(settings.database_url)
        else:
            empty = sqlite_part.is_empty(settings.data_dir)
        if not empty:
            full.append("the SQL database")
        if not await media_part.is_empty(MediaStore.open(settings)):
            full.append("the store of pictures")
        if full:
            raise OperatorError(
                f"The target is not empty: {', '.join(full)}. Nothing was changed. "
                "Use an empty data directory, or --replace to delete what is there."
            )

    async def _write(self, snapshot: Snapshot, valkey: Valkey) -> int:
        """Write keys, tables, files and secrets. Returns the number of keys."""
        settings, chunks = self._settings, self._chunks
        await valkey_part.replace_all_keys(valkey, keys.RESTORING(), snapshot.id)
        await delete_libraries(valkey)  # a newer Plaza's would refuse this one
        scratch = settings.data_dir / UNFINISHED_RESTORE
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            count = await valkey_part.load_keys(
                snapshot.valkey, chunks, scratch, valkey, step(self._on_progress, "keys")
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(mode=0o700)
        on_bytes = step(self._on_progress, "sql")
        if settings.database_url:
            await postgres_part.load_tables(snapshot.sql, chunks, settings.database_url, self._folders(), on_bytes)
        else:
            await sqlite_part.load_tables(snapshot.sql, chunks, settings.data_dir, on_bytes)
        if snapshot.media is not None:
            files = await self._directory.media_files(snapshot)
            await media_part.load_files(files, chunks, MediaStore.open(settings), step(self._on_progress, "media"))
        stored = json.loads(await chunks.read_all(snapshot.secrets))
        for name in SECRET_FILES:  # no other name: a backup that was tampered with would write files anywhere
            if name in stored:
                write_file(settings.data_dir / name, stored[name].encode())
        return count

    async def _repair(self, snapshot: Snapshot, settings: Settings, operator: str) -> AuditReport:
        """Repair what differs between the moments of keys, tables and files."""
        on_keys = step(self._on_progress, "repair")
        checked = 0

        def show(report: AuditReport) -> None:
            nonlocal checked
            on_keys(max(report.keys - checked, 0))
            checked = report.keys

        async with running(settings, restoring=True) as plaza:
            if snapshot.media is not None and snapshot.media.deleted:
                await media_part.delete_pictures(plaza.core.sql, snapshot.media.deleted)
            # On a cluster: what was unfinished at the moment of the backup. Its callers are gone.
            await plaza.core.functions.outbox_recovery.recover(abandoned_ms=0)
            try:
                report = await plaza.get(Audits).run(REPAIR, show)
            except Unavailable:
                raise
            except Exception as error:  # such as a command that an odd value stops: a new restore would meet it too
                log.exception("restore_not_repaired")
                report = AuditReport(plaza.core.clock.now_ms(), state="failed", mode=REPAIR, error=str(error))
            await _record(plaza, operator, snapshot.id)
        return report


async def _record(plaza: Plaza, operator: str, id: str) -> None:
    log = plaza.services.get(SqlSecurityLog)
    if log is not None:
        entry = LogEntry(operator, "plaza restore", id, kind="admin")
        async with log.recording(entry):
            entry.result = DONE


def _refuse_other_layout(snapshot: Snapshot, valkey: Valkey) -> None:
    if snapshot.valkey.layout != valkey.layout.value:
        kind = {"plain": "one server", "braces": "a cluster"}
        raise OperatorError(
            f"The backup is of {kind[snapshot.valkey.layout]}, and PLAZA_VALKEY_URL names {kind[valkey.layout.value]}: "
            "their keys have other names. Change the setting, or use plaza export and plaza import."
        )


async def _refuse_other_process(valkey: Valkey) -> None:
    """Raise `OperatorError` if a server or worker uses the target. One that was just stopped has a moment to end."""
    until = monotonic() + STOP_SECONDS
    while (address := await valkey_part.find_other_process(valkey)) is not None:
        if monotonic() > until:
            raise OperatorError(
                f"Another process of Plaza uses this Valkey, from {address}. Nothing was changed. "
                "Stop all servers and workers first."
            )
        await asyncio.sleep(0.1)


@asynccontextmanager
async def _target_valkey(settings: Settings) -> AsyncIterator[Settings]:
    """Yield the settings with the URL of the target, in which no server of this data directory may run."""
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if settings.valkey_url:
        yield settings
        return
    async with EmbeddedValkey(settings.data_dir, settings.fsync, settings.maxmemory_bytes, for_command=True) as valkey:
        yield replace(settings, valkey_url=valkey.url)
