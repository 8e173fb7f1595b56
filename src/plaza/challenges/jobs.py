"""Challenges' background jobs.

The daily job runs at the start of each UTC day, because pools and windows move by days. The others delete posts of
deleted challenges that a request has left, and send reminders.
"""

from __future__ import annotations

from plaza.challenges.challenge_deletion import ChallengeDeletion
from plaza.challenges.daily_job.runner import DailyJob
from plaza.challenges.reminders import ChallengeReminders
from plaza.core.leases import Lease
from plaza.core.timers import Timer

DAY_SECONDS = 86_400.0


CLEAN_UP_SECONDS = 60.0
# Posts of deleted challenges that a run deletes at most, in batches.
CLEAN_UP_BATCHES = 100
REMIND_SECONDS = 60.0
# A run sends so many batches of reminders at most; the next one goes on.
REMIND_BATCHES = 500


def timers(daily_job: DailyJob, deletion: ChallengeDeletion, reminders: ChallengeReminders) -> list[Timer]:
    async def run(_: Lease) -> str:
        done = await daily_job.run()
        rows = ", ".join(f"{count} {name}" for name, count in done.rows.items())
        return f"new rows: {rows}; rebuilt: {', '.join(done.rebuilt) or 'nothing'}"

    async def clean_up(_: Lease) -> str:
        return f"posts of deleted challenges: {await deletion.delete_posts(CLEAN_UP_BATCHES)}"

    async def remind(_: Lease) -> str:
        return f"reminders: {await reminders.send_due(REMIND_BATCHES)}"

    return [
        Timer("challenges.roll", DAY_SECONDS, run, at_seconds=0),
        Timer("challenges.clean_up", CLEAN_UP_SECONDS, clean_up),
        Timer("challenges.remind", REMIND_SECONDS, remind),
    ]
