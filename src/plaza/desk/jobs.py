"""The desk's jobs: compare the list of users with the profiles once a day, follow their events, count what happens."""

from __future__ import annotations

from plaza.core.events import Consumer
from plaza.core.leases import Lease
from plaza.core.timers import Timer
from plaza.desk.directory import UserDirectory
from plaza.desk.growth import Growth

DAY_SECONDS = 86_400
COUNT_SECONDS = 60


def timers(directory: UserDirectory, growth: Growth) -> list[Timer]:
    async def compare(_: Lease) -> str:
        return f"{await directory.rebuild()} users corrected"

    async def count(_: Lease) -> str:
        return f"{await growth.count_new()} events counted"

    return [Timer("desk.users", DAY_SECONDS, compare), Timer("desk.growth", COUNT_SECONDS, count)]


def consumers(directory: UserDirectory) -> list[Consumer]:
    return [
        Consumer("social", "desk", handle_batch=directory.handle_batch, types=["user.*"], rebuild=directory.rebuild)
    ]
