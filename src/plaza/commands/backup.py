"""`plaza backup` and `plaza restore`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from plaza.commands.base import add_command, operator, with_plaza_logged
from plaza.commands.progress_line import ProgressLine
from plaza.core.errors import Invalid, OperatorError
from plaza.core.settings import Settings

if TYPE_CHECKING:
    from plaza.app import Plaza
    from plaza.backup.progress import OnProgress
    from plaza.backup.snapshots import BackupDirectory, Snapshot
    from plaza.commands.base import Commands


def add_commands(commands: Commands) -> None:
    backup = add_command(
        commands,
        "backup",
        _backup,
        "Back up keys, tables, pictures and generated secrets to a directory, beside a running server. After the "
        "first one only what is new is written. See docs/backups.md.",
        "plaza backup /srv/backups/plaza --keep 30",
    )
    backup.add_argument("directory", metavar="DIR", type=_directory)
    backup.add_argument("--keep", type=int, metavar="N", help="afterwards delete all but the newest N backups")

    restore = add_command(
        commands,
        "restore",
        _restore,
        "Restore a backup into an empty data directory, Valkey and database, and repair what is derived. No server "
        "may run. The backup is checked first; a damaged or incomplete one changes nothing.",
        "PLAZA_DATA_DIR=/var/lib/plaza plaza restore /srv/backups/plaza",
    )
    restore.add_argument("directory", metavar="DIR", type=_directory)
    restore.add_argument("--backup", metavar="ID", default="", help="default: the latest one")
    restore.add_argument("--list", action="store_true", help="only list the backups in the directory")
    restore.add_argument("--check", action="store_true", help="only read the backup and check that it is complete")
    restore.add_argument("--replace", action="store_true", help="first delete everything that the target contains")


def _directory(name: str) -> Path:
    if not name:
        raise argparse.ArgumentTypeError("is empty")  # a variable that is not set; not the current directory
    return Path(name)


def _backup(given: argparse.Namespace) -> int:
    from plaza.backup.creation import BackupRun
    from plaza.backup.snapshots import BackupDirectory

    if given.keep is not None and given.keep < 1:
        raise Invalid("must be at least 1", field="--keep")
    directory = BackupDirectory(given.directory)
    with _progress() as on_progress:

        async def run(plaza: Plaza) -> Snapshot:
            return await BackupRun(plaza, directory, on_progress).run(given.keep)

        snapshot = with_plaza_logged(run, "backup", str(given.directory))
    new, replaced = _megabytes(directory.chunks.written_bytes), directory.chunks.replaced
    print(f"Backup {snapshot.id}: {_contents(snapshot)}; {new} written.")
    if directory.kept_all:
        print("No older backup was deleted, because a restore reads this directory. The next backup does so.")
    if replaced:
        print(f"{replaced:,} chunks of earlier backups were damaged and are written again. Check the disk.")
    return 0


def _restore(given: argparse.Namespace) -> int:
    import asyncio

    from plaza.backup.restoration import RestoreRun
    from plaza.backup.snapshots import BackupDirectory
    from plaza.core.invariants import NOT_COMPARED

    if not given.directory.is_dir():
        raise OperatorError(f"{given.directory} is not a directory.")
    directory = BackupDirectory(given.directory)
    if given.list:
        return _list(directory)
    with _progress() as on_progress:
        restore = RestoreRun(Settings.from_env(), directory, on_progress)
        if given.check:
            snapshot = asyncio.run(restore.check(given.backup))
            print(f"Backup {snapshot.id} is complete: {_contents(snapshot)}.")
            return 0
        restored = asyncio.run(restore.run(given.backup, replaces=given.replace, operator=operator()))
    print(f"Restored {restored.snapshot.id}: {restored.keys:,} keys; {_contents(restored.snapshot)}.")
    if restored.audit.state == "failed":
        print(
            f"All of the backup is restored, but the repair of what is derived failed: {restored.audit.error}. "
            "Start the server, then run plaza audit --repair."
        )
        return 1
    rules = {group.rule for group in restored.audit.left}
    if NOT_COMPARED in rules:
        print("Not everything could be compared. Start the server, then run plaza audit --repair.")
    if rules - {NOT_COMPARED}:
        print("The audit has findings that a repair cannot decide: see plaza audit.")
    return 0


def _list(directory: BackupDirectory) -> int:
    """Print a line for each backup. Returns 1 if one is damaged."""
    from plaza.backup.chunks import BrokenBackup

    status = 0
    for id in directory.ids():
        try:
            print(f"{id}  {_contents(directory.load(id))}")
        except BrokenBackup as error:
            print(f"{id}  {error}")
            status = 1
    return status


def _contents(snapshot: Snapshot) -> str:
    parts = [
        f"keys {_megabytes(sum(stream.bytes for stream in snapshot.valkey.nodes))}",
        f"tables {_megabytes(sum(stream.bytes for stream in snapshot.sql.streams.values()))}",
    ]
    if snapshot.media is not None:
        parts.append(f"{snapshot.media.files:,} files of pictures {_megabytes(snapshot.media.bytes)}")
    return ", ".join(parts)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """Show the present step on the terminal, with what was done so far."""
    with ProgressLine() as line:

        def show(name: str, done: int) -> None:
            if name in ("keys", "repair"):
                line.advance(f"{name}, keys", done)
            else:
                line.advance(f"{name}, MB", done / 1e6)

        yield show
