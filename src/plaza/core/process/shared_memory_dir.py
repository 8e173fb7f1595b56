"""A directory in shared memory for files that processes map together, such as metrics.

Mapped files do not belong on a disk that may be full: the first write to a new page would kill the process with a
signal. On systems without /dev/shm a directory on disk is used instead.

A killed process cannot remove its directory. So each directory has a lock file that its creator holds locked, and the
kernel releases the lock in any case. The next process that creates a directory removes the unlocked ones.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108
# A directory without a lock file may just be in creation; it is not removed before this age.
MIN_AGE_SECONDS: Final = 60.0


class SharedMemoryDir:
    """A new directory; `path` exists until `close`."""

    def __init__(self, fallback: Path) -> None:
        _remove_abandoned()
        try:
            self.path = Path(tempfile.mkdtemp(prefix=_prefix(), dir=SHARED_MEMORY))
        except OSError:
            self.path = fallback
            self.path.mkdir(parents=True, exist_ok=True)
        # The lock file gets its final name when it is locked, so that no process ever finds it unlocked.
        self._lock = os.open(self.path / "new-owner-lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.path / "new-owner-lock").rename(self.path / "owner-lock")

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _prefix() -> str:
    return f"plaza-{os.getuid()}-"


def _remove_abandoned() -> None:
    for folder in SHARED_MEMORY.glob(f"{_prefix()}*"):
        if not _is_in_use(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_in_use(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except FileNotFoundError:  # another process removed it
        return False
    if found.st_uid != os.getuid():  # every user can create directories there
        return True
    try:
        handle = os.open(folder / "owner-lock", os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - found.st_mtime < MIN_AGE_SECONDS
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
