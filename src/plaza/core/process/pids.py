"""Checks whether a process exists."""

from __future__ import annotations

import os


def is_running(pid: int) -> bool:
    """Whether a process with this id exists. Signal 0 checks without sending anything."""
    if pid <= 0:  # addresses a process group
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of another user
        return True
    return True
