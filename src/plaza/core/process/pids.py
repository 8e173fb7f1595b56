"""Whether a process is there: by asking the kernel to send it nothing."""

from __future__ import annotations

import os


def is_running(pid: int) -> bool:
    if pid <= 0:  # to the kernel, whole groups of processes
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True
