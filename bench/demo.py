"""What `plaza demo` costs for each record, and what a post that comes whole saves against one that comes in pieces.

CPU is counted apart for Valkey's main thread and for this process, since each has a core of its own; a run is as fast
as the slower of the two. Both ways take turns, a batch each, on a server each.
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
from plaza.social.sync import Sync

USERS, POSTS = 2_000, 6_000
BATCH = 250


@dataclass(slots=True)
class Spent:
    """Seconds spent on some records."""

    records: int = 0
    valkey: float = 0.0
    python: float = 0.0
    wall: float = 0.0

    async def on(self, plaza: Plaza, load: Callable[[int, int], Awaitable[int]], batch: int, size: int) -> None:
        before = await _spent(plaza)
        self.records += await load(batch, size)
        after = await _spent(plaza)
        self.valkey, self.python, self.wall = (
            old + now - then
            for old, now, then in zip((self.valkey, self.python, self.wall), after, before, strict=True)
        )

    def __str__(self) -> str:
        each = [f"{seconds / self.records * 1e6:14.1f}" for seconds in (self.valkey, self.python)]
        return f"{self.records:10,}{''.join(each)}{self.records / self.wall:14,.0f}"


async def _spent(plaza: Plaza) -> tuple[float, float, float]:
    said = str(await plaza.core.valkey.call("INFO", "cpu")).splitlines()
    cpu = {name: value for name, _, value in (line.partition(":") for line in said)}
    valkey = float(cpu["used_cpu_user_main_thread"]) + float(cpu["used_cpu_sys_main_thread"])
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return valkey, usage.ru_utime + usage.ru_stime, time.perf_counter()


@asynccontextmanager
async def town() -> AsyncIterator[tuple[Plaza, SocialLoader]]:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder))
        async with (
            EmbeddedValkey(settings.data_dir, settings.fsync) as valkey,
            running(replace(settings, valkey_url=valkey.url)) as plaza,
        ):
            plan = CommunityPlan("7", GeneratedUsers(7, USERS), POSTS, plaza.core.clock.now_ms(), LARGE_COMMUNITY)
            yield plaza, SocialLoader(plaza.get(Sync), plan)


async def run() -> None:
    users, whole, pieces, follows = Spent(), Spent(), Spent(), Spent()
    async with town() as (ours, part), town() as (theirs, other):
        for batch in range(USERS // BATCH):
            await users.on(ours, part.users, batch, BATCH)
            await other.users(batch, BATCH)
        for batch in range(POSTS // BATCH):
            await whole.on(ours, part.posts, batch, BATCH)
            await pieces.on(theirs, other.posts_in_pieces, batch, BATCH)
        for batch in range(USERS // 80):
            await follows.on(ours, part.follows, batch, 80)
    print("plaza demo, for each record")
    print(f"  {'':28}{'records':>10}{'Valkey µs':>14}{'Python µs':>14}{'records/s':>14}")
    for name, spent in (
        ("people", users),
        ("posts, whole", whole),
        ("posts, in pieces", pieces),
        ("follows", follows),
    ):
        print(f"  {name:28}{spent}")
    ratio = pieces.valkey / pieces.records / (whole.valkey / whole.records)
    print(f"  A post that comes whole takes Valkey {ratio:.1f} times less.\n")


def main() -> None:
    uvloop.run(run())


if __name__ == "__main__":
    main()
