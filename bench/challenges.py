"""The daily job at size: the first roll, a day's increment of one in a hundred, and a roll with nothing to do.

By default a twentieth of what it is built for; `BENCH_SHARE=1` is 100,000 people, 20,000 challenges, 1,000,000
posts and 5,000,000 reactions. It reports rows per second, how long the model took of it, how long the event loop stood
still at most meanwhile, and the most memory that this process had.

    python -m bench challenges
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Table, insert

from plaza.challenges.daily_job import Roll, Rolled
from plaza.challenges.library import LIBRARY
from plaza.challenges.model import day_of
from plaza.challenges.projection import Derived
from plaza.challenges.recommendation.recommender import Recommender
from plaza.challenges.tables import CHALLENGE, POST, REACTION, TRACKING
from plaza.core import leases
from plaza.core.auth import USER, Actor
from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.leases import Leases
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.valkey import connect
from tests.servers import running_server

PEOPLE, CHALLENGES, POSTS, REACTIONS = 100_000, 20_000, 1_000_000, 5_000_000
AT_ONCE = 5_000
MAX_POST_AGE = 30


class Town:
    """Rows as a busy place would have them: three in four posts are older than the pool reaches."""

    def __init__(self, share: float) -> None:
        self.dice = random.Random(7)
        self.people = [f"user{n}" for n in range(max(1, int(PEOPLE * share)))]
        self.posts = self.challenges = 0

    def challenge_rows(self, count: int, now: int) -> Iterator[dict[str, Any]]:
        for _ in range(count):
            days = self.dice.randint(-60, 60)
            yield {
                "title": "x",
                "category": self.dice.randint(1, 5),
                "is_public": self.dice.random() < 0.9,
                "duration": 60,
                "creator": self.dice.choice(self.people),
                "created_ms": now,
                "ends_day": day_of(now) + days,
            }
        self.challenges += count

    def post_rows(self, count: int, now: int, oldest: int) -> Iterator[dict[str, Any]]:
        for number in range(self.posts + 1, self.posts + count + 1):
            yield {
                "challenge_id": number % self.challenges + 1,
                "username": self.dice.choice(self.people),
                "text": "Done.",
                "is_break": False,
                "created_ms": now,
                "day": day_of(now) - self.dice.randint(0, oldest),
            }
        self.posts += count

    def reaction_rows(self, first: int, now: int) -> Iterator[dict[str, Any]]:
        """Five to each post from the first one on, by people from all over the place."""
        for post in range(first, self.posts + 1):
            for number in range(REACTIONS // POSTS):
                yield {
                    "post_id": post,
                    "challenge_id": post % self.challenges + 1,
                    "username": self.people[(post * 7_919 + number * 31) % len(self.people)],
                    "created_ms": now,
                }


async def fill(sql: Sql, table: Table, rows: Iterator[dict[str, Any]]) -> int:
    done = 0
    while batch := [row for _, row in zip(range(AT_ONCE), rows, strict=False)]:
        async with sql.begin() as tx:
            await tx.execute(insert(table), batch)
        done += len(batch)
    return done


async def timed(name: str, roll: Roll, rows: int) -> float:
    """Roll, and tell of it. Returns how long it took without the model."""
    model_began: list[float] = []

    def progress(step: str, done: int, total: int) -> None:
        if "neighbours" in step:
            model_began.append(time.perf_counter())

    async with standstill() as longest:
        began = time.perf_counter()
        done: Rolled = await roll.run(progress)
        ended = time.perf_counter()
    seconds = (model_began or [ended])[0] - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rate = f"{rows / seconds:,.0f} rows/s" if rows else ""
    model = f"model {ended - began - seconds:6.2f} s for {done.fitted:,}"
    print(
        f"  {name:16}{rows:>10,} rows{seconds:9.2f} s{rate:>16}   {model}"
        f"   loop {max(longest) * 1000:4.0f} ms   {memory:4.0f} MB   anew: {len(done.rebuilt)}"
    )
    return seconds


@asynccontextmanager
async def standstill() -> AsyncIterator[list[float]]:
    """How long others on the loop had to wait, in seconds, each time."""
    waits = [0.0]

    async def watch() -> None:
        while True:
            asked = time.perf_counter()
            await asyncio.sleep(0.01)
            waits.append(time.perf_counter() - asked - 0.01)

    watching = asyncio.create_task(watch())
    try:
        yield waits
    finally:
        watching.cancel()


async def recommended(recommender: Recommender, people: list[str]) -> None:
    """What an answer costs this process, of somebody who was not here before."""
    readers = [Actor(name, USER) for name in people]
    for reader in readers[:20]:
        await recommender.recommend(reader, 20)
    began = time.process_time()
    posts = sum([len((await recommender.recommend(reader, 20)).posts) for reader in readers[20:]])
    each = (time.process_time() - began) / len(readers[20:])
    print(f"  20 recommendations: {each * 1e3:.1f} ms of CPU, {posts / len(readers[20:]):.0f} posts each\n")


async def at_size(share: float) -> None:
    town = Town(share)
    with tempfile.TemporaryDirectory() as folder, running_server() as server:
        sql, valkey = await Sql.open(Settings(data_dir=Path(folder))), await connect(server.url)
        functions = Functions(valkey, [LIBRARY, leases.JOBS])
        await functions.load()
        clock = Clock()
        derived = Derived(sql, functions, clock, MAX_POST_AGE)
        roll = Roll(derived, Leases(functions))
        now = clock.now_ms()
        rows = await fill(sql, CHALLENGE, town.challenge_rows(int(CHALLENGES * share), now))
        rows += await fill(sql, POST, town.post_rows(int(POSTS * share), now, 120))
        rows += await fill(sql, REACTION, town.reaction_rows(1, now))
        tracked = ({"challenge_id": 1, "username": name, "day": day_of(now)} for name in town.people)
        rows += await fill(sql, TRACKING, tracked)
        print(f"The daily job, {share:g} of 100,000 people and 5,000,000 reactions, on SQLite")
        first = await timed("the first roll", roll, rows)
        more = await fill(sql, POST, town.post_rows(int(POSTS * share / 100), now, 0))
        more += await fill(sql, REACTION, town.reaction_rows(town.posts - more + 1, now))
        second = await timed("1% more", roll, more)
        await timed("nothing new", roll, 0)
        print(f"  1% more took {second / first:.1%} of the first roll")
        await recommended(Recommender(derived), town.people[:500])
        await valkey.close()
        await sql.close()


def main() -> None:
    asyncio.run(at_size(float(os.environ.get("BENCH_SHARE", "0.05"))))
