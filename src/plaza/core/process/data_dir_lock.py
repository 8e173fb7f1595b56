"""Locks a data directory, so that one process owns it at a time.

The lock is `flock` on an open file. The kernel releases it when the last process that has the file open exits, so there
are no stale locks. The embedded Valkey inherits the open file. If Plaza is killed while Valkey still writes, the
directory stays locked until Valkey exits too, and no second Valkey can write to the same append-only file.

The file contains the id of the owner and whether it is a command. A command ends soon, so a server that starts
meanwhile waits for it. A server is not waited for.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from pathlib import Path

from plaza.core.process.pids import is_running

# A Valkey whose Plaza was killed exits by itself; a large one needs time for its last fsync.
ORPHAN_SECONDS = 10.0
COMMAND_SECONDS = 60.0
POLL_SECONDS = 0.05


class DirectoryLocked(Exception):
    """Another process owns the data directory. The message is for the operator."""


class DirectoryLock:
    """The lock of a data directory. `for_command` marks an owner that ends soon."""

    def __init__(self, path: Path, *, for_command: bool = False) -> None:
        self.path = path
        self.for_command = for_command
        self.handle = -1

    async def acquire(self) -> None:
        """Lock the directory. Waits for the Valkey of a dead owner, and as a server for a command.

        Raises `DirectoryLocked` if another process keeps it.
        """
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            started = time.monotonic()
            while not _try_lock(handle):
                if time.monotonic() - started >= self._max_wait_seconds():
                    raise DirectoryLocked(self._message(self.owner()))
                await asyncio.sleep(POLL_SECONDS)
        except BaseException:
            os.close(handle)
            raise
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}{' command' if self.for_command else ''}\n".encode(), 0)
        self.handle = handle
        # A forked child must not keep the directory locked: it may take longer to end than a new server waits.
        os.register_at_fork(after_in_child=self.release)

    def release(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def owner(self) -> int:
        """The process id of the last owner; 0 if unknown."""
        first = self._content()[:1]
        return int(first[0]) if first and first[0].isdigit() else 0

    def _content(self) -> list[str]:
        try:
            return self.path.read_text().split()
        except FileNotFoundError:
            return []

    def _max_wait_seconds(self) -> float:
        """How long to wait for the current owner."""
        if not is_running(self.owner()):
            return ORPHAN_SECONDS
        return COMMAND_SECONDS if "command" in self._content() and not self.for_command else 0.0

    def _message(self, owner: int) -> str:
        kind = "a command, process" if "command" in self._content() else "process"
        owned_by = f"{kind} {owner}" if is_running(owner) else "a Valkey whose Plaza was killed"
        return (
            f"Plaza is already running in {self.path.parent} ({owned_by}). "
            "Stop it first, or set PLAZA_DATA_DIR to another directory."
        )


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
