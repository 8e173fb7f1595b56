"""What a backup or a restore reports while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# The step, and how much of it was done since the last call: bytes, or keys for the step "keys".
OnProgress = Callable[[str, int], None]

# A folder in the data directory while a restore runs, and after one that failed.
UNFINISHED_RESTORE: Final = "restoring"


def step(on_progress: OnProgress, name: str) -> Callable[[int], None]:
    """Return the function that reports progress of one step."""
    on_progress(name, 0)
    return lambda done: on_progress(name, done)
