"""What the worker does for audiences."""

from __future__ import annotations

from plaza.core.leases import Fence
from plaza.core.timers import Timer
from plaza.live.recorder import Recorder

# The records themselves are made on time by the beats; this only carries them to SQL.
RECORD_SECONDS = 30
PURGE_SECONDS = 3600


def timers(recorder: Recorder) -> list[Timer]:
    async def record(_: Fence) -> str:
        return f"{await recorder.record()} events recorded"

    async def purge(_: Fence) -> str:
        return f"{await recorder.purge()} events purged"

    return [Timer("live.record", RECORD_SECONDS, record), Timer("live.purge", PURGE_SECONDS, purge)]
