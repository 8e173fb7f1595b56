"""How much memory processes can use here: that of the machine, or less in a container."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

# Version 2 of control groups, and version 1. Without a limit they say `max`, or a number larger than any memory.
_CGROUP_FILES: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_bytes() -> int:
    """The memory of the machine, or the limit of the container."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _CGROUP_FILES:
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def default_maxmemory() -> int:
    """The default limit of the embedded Valkey: three quarters. The rest is for Plaza and for rewriting the file."""
    return memory_bytes() * 3 // 4
