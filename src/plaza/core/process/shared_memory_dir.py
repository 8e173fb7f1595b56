"""A folder in memory for what processes share while they run; it goes with the process that made it.

Files that are mapped do not belong on a disk that may be full: the first touch of a page that was never written ends
the process by a signal. Where there is no such place as /dev/shm, a folder on the disk has to do.

Who is killed cannot clear up. So each folder has a file that its maker keeps locked, and the kernel gives the lock back
whatever happens: whoever makes the next folder removes those that nobody keeps.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

PLACE: Final = Path("/dev/shm")  # noqa: S108
# One without its file, as it is in the moment it is made, is left alone for so long.
YOUNG_SECONDS: Final = 60.0


class MemoryFolder:
    """`path` is there until `close`."""

    def __init__(self, otherwise: Path) -> None:
        _clear_up()
        try:
            self.path = Path(tempfile.mkdtemp(prefix=_prefix(), dir=PLACE))
        except OSError:
            self.path = otherwise
            self.path.mkdir(parents=True, exist_ok=True)
        # It gets its name when it is locked: nobody finds it in between, and takes the folder for one that was left.
        self._kept = os.open(self.path / "making", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._kept, fcntl.LOCK_EX)
        (self.path / "making").rename(self.path / "kept")

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._kept)


def _prefix() -> str:
    return f"plaza-{os.getuid()}-"


def _clear_up() -> None:
    for folder in PLACE.glob(f"{_prefix()}*"):
        if not _is_kept(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_kept(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except FileNotFoundError:  # somebody else was quicker
        return False
    if found.st_uid != os.getuid():  # everybody may put things there
        return True
    try:
        handle = os.open(folder / "kept", os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - found.st_mtime < YOUNG_SECONDS
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
