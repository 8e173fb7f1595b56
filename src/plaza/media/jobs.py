"""The job of media: pictures that nothing shows are deleted, every hour."""

from __future__ import annotations

from plaza.core.leases import Lease
from plaza.core.timers import Timer
from plaza.media.cleanup import PictureCleanup

HOUR_SECONDS = 3_600


def timers(cleanup: PictureCleanup) -> list[Timer]:
    async def delete_unused(_: Lease) -> str:
        return f"{await cleanup.delete_unused()} unused pictures deleted"

    return [Timer("media.cleanup", HOUR_SECONDS, delete_unused)]
