"""What a worker does for challenges: the daily job, as the UTC day begins."""

from __future__ import annotations

from plaza.challenges.daily_job import Roll
from plaza.core.leases import Lease
from plaza.core.timers import Timer

DAY_SECONDS = 86_400.0


def timers(roll: Roll) -> list[Timer]:
    async def run(_: Lease) -> str:
        done = await roll.run()
        told = ", ".join(f"{count} {name}" for name, count in done.rows.items())
        return f"{told}; made anew: {', '.join(done.rebuilt) or 'nothing'}"

    return [Timer("challenges.roll", DAY_SECONDS, run, at_seconds=0)]
