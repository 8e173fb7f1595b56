"""The cost of `plaza demo` per record, and of a post imported at once against a post imported record by record.

CPU is measured separately for Valkey's main thread and for this process, because each has its own core. A run is as
fast as the slower of the two. Both ways alternate batch by batch, each on its own server.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from plaza.app import Plaza, running
from plaza.core.embedded_valkey import EmbeddedValkey
from plaza.core.settings import Settings
from plaza.demo.generator import LARGE_COMMUNITY, CommunityPlan
from plaza.demo.loaders.social import SocialLoader
from plaza.demo.users import GeneratedUsers
from plaza.social.inbound_sync import InboundSync

USERS, POSTS = 2_000, 6_000
BATCH = 250


@dataclass(slots=True)
class LoadCost:
    """Seconds spent on a number of records."""

    records: int = 0
    valkey: float = 0.0
    python: float = 0.0
    wall: float = 0.0

    async def add(self, plaza: Plaza, load: Callable[[int, int], Awaitable[int]], batch: int, size: int) -> None:
        before = await _read_seconds(plaza)
        self.records += await load(batch, size)
        after = await _read_seconds(plaza)
        self.valkey, self.python, self.wall = (
            old + now - then
            for old, now, then in zip((self.valkey, self.python, self.wall), after, before, strict=True)
        )

    def __str__(self) -> str:
        each = [f"{seconds / self.records * 1e6:14.1f}" for seconds in (self.valkey, self.python)]
        return f"{self.records:10,}{''.join(each)}{self.records / self.wall:14,.0f}"


async def _read_seconds(plaza: Plaza) -> tuple[float, float, float]:
    info = str(await plaza.core.valkey.call("INFO", "cpu")).splitlines()
    cpu = {name: value for name, _, value in (line.partition(":") for line in info)}
    valkey = float(cpu["used_cpu_user_main_thread"]) + float(cpu["used_cpu_sys_main_thread"])
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return valkey, usage.ru_utime + usage.ru_stime, time.perf_counter()


@asynccontextmanager
async def loaded_demo() -> AsyncIterator[tuple[Plaza, SocialLoader]]:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder))
        async with (
            EmbeddedValkey(settings.data_dir, settings.fsync) as valkey,
            running(replace(settings, valkey_url=valkey.url)) as plaza,
        ):
            plan = CommunityPlan("7", GeneratedUsers(7, USERS), POSTS, plaza.core.clock.now_ms(), LARGE_COMMUNITY)
            yield plaza, SocialLoader(plaza.get(InboundSync), plan)


async def run() -> None:
    users, at_once, by_record, follows = LoadCost(), LoadCost(), LoadCost(), LoadCost()
    async with loaded_demo() as (plaza, loader), loaded_demo() as (other_plaza, other_loader):
        for batch in range(USERS // BATCH):
            await users.add(plaza, loader.users, batch, BATCH)
            await other_loader.users(batch, BATCH)
        for batch in range(POSTS // BATCH):
            await at_once.add(plaza, loader.posts, batch, BATCH)
            await by_record.add(other_plaza, other_loader.posts_by_record, batch, BATCH)
        for batch in range(USERS // 80):
            await follows.add(plaza, loader.follows, batch, 80)
    print("plaza demo, per record")
    print(f"  {'':28}{'records':>10}{'Valkey µs':>14}{'Python µs':>14}{'records/s':>14}")
    for name, cost in (
        ("users", users),
        ("posts, at once", at_once),
        ("posts, by record", by_record),
        ("follows", follows),
    ):
        print(f"  {name:28}{cost}")
    ratio = by_record.valkey / by_record.records / (at_once.valkey / at_once.records)
    print(f"  Importing a post at once takes Valkey {ratio:.1f} times less CPU.\n")


def main() -> None:
    uvloop.run(run())


if __name__ == "__main__":
    main()
