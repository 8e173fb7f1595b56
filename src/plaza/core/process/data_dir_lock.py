"""One owner per data directory.

The lock is `flock` on an open file, which the kernel drops when the last process that has it open ends: there are no
stale locks to clean up. The embedded Valkey inherits the open file. So when Plaza is killed and Valkey needs a moment
to write its last bytes, the directory stays taken until Valkey too is gone, and no second Valkey can write into the
same append-only file.

The file says who took it last, and whether that is a command, which will be done soon: a server that starts meanwhile
waits for it. Who has it for as long as it runs, a server, is not waited for.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from pathlib import Path

from plaza.core.process.pids import is_running

# A Valkey whose Plaza was killed ends by itself; a big one needs a moment for its last fsync.
ORPHAN_SECONDS = 10.0
COMMAND_SECONDS = 60.0


class DirectoryTaken(Exception):
    """Another process has this data directory; the message is for the operator."""


class DirectoryLock:
    def __init__(self, path: Path, *, brief: bool = False) -> None:
        self.path = path
        self.brief = brief
        self.handle = -1

    async def take(self) -> None:
        """Take the directory, or say who has it. Waits for what a dead owner left, and as a server for a command."""
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            begun = time.monotonic()
            while not _try(handle):
                if time.monotonic() - begun >= self._patience():
                    raise DirectoryTaken(self._who(self.owner()))
                await asyncio.sleep(0.05)
        except BaseException:
            os.close(handle)
            raise
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}{' command' if self.brief else ''}\n".encode(), 0)
        self.handle = handle

    def release(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def owner(self) -> int:
        """The process that took it last; 0 if that is not known."""
        first = self._says()[:1]
        return int(first[0]) if first and first[0].isdigit() else 0

    def _says(self) -> list[str]:
        try:
            return self.path.read_text().split()
        except FileNotFoundError:
            return []

    def _patience(self) -> float:
        """How many seconds it is worth waiting for whoever has it."""
        if not is_running(self.owner()):
            return ORPHAN_SECONDS
        return COMMAND_SECONDS if "command" in self._says() and not self.brief else 0.0

    def _who(self, owner: int) -> str:
        kind = "a command, process" if "command" in self._says() else "process"
        who = f"{kind} {owner}" if is_running(owner) else "a Valkey whose Plaza is gone"
        return (
            f"Plaza is already running in {self.path.parent} ({who}). "
            "Stop it first, or give this one a PLAZA_DATA_DIR of its own."
        )


def _try(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
