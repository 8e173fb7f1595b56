"""Challenges' background job: the daily job, at the start of each UTC day, because pools and windows move by days."""

from __future__ import annotations

from plaza.challenges.daily_job.runner import DailyJob
from plaza.core.leases import Lease
from plaza.core.timers import Timer

DAY_SECONDS = 86_400.0


def timers(daily_job: DailyJob) -> list[Timer]:
    async def run(_: Lease) -> str:
        done = await daily_job.run()
        rows = ", ".join(f"{count} {name}" for name, count in done.rows.items())
        return f"new rows: {rows}; rebuilt: {', '.join(done.rebuilt) or 'nothing'}"

    return [Timer("challenges.roll", DAY_SECONDS, run, at_seconds=0)]
