"""Measures the daily job on large tables: the first run, a run with 1% new rows, and a run with nothing new.

The default is a twentieth of the full size; `BENCH_SHARE=1` is 100,000 users, 20,000 challenges, 1,000,000 posts and
5,000,000 reactions. It reports rows per second, the time of the model, the longest time that the event loop was
blocked, and the peak memory of this process.

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

from plaza.challenges.daily_job.runner import DailyJob, DailyJobResult
from plaza.challenges.library import LIBRARY
from plaza.challenges.model import day_number
from plaza.challenges.projection import ChallengeProjections
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

USERS, CHALLENGES, POSTS, REACTIONS = 100_000, 20_000, 1_000_000, 5_000_000
INSERT_BATCH = 5_000
MAX_POST_AGE = 30


class RowGenerator:
    """Generates rows of a busy site: three of four posts are too old for the pool."""

    def __init__(self, share: float) -> None:
        self.rng = random.Random(7)
        self.users = [f"user{n}" for n in range(max(1, int(USERS * share)))]
        self.posts = self.challenges = 0

    def challenge_rows(self, count: int, now: int) -> Iterator[dict[str, Any]]:
        for _ in range(count):
            days = self.rng.randint(-60, 60)
            yield {
                "title": "x",
                "category": self.rng.randint(1, 5),
                "is_public": self.rng.random() < 0.9,
                "duration": 60,
                "creator": self.rng.choice(self.users),
                "created_ms": now,
                "ends_day": day_number(now) + days,
            }
        self.challenges += count

    def post_rows(self, count: int, now: int, oldest: int) -> Iterator[dict[str, Any]]:
        for number in range(self.posts + 1, self.posts + count + 1):
            yield {
                "challenge_id": number % self.challenges + 1,
                "username": self.rng.choice(self.users),
                "text": "Done.",
                "is_break": False,
                "created_ms": now,
                "day": day_number(now) - self.rng.randint(0, oldest),
            }
        self.posts += count

    def reaction_rows(self, first: int, now: int) -> Iterator[dict[str, Any]]:
        """Five reactions to each post from `first` on, by evenly spread users."""
        for post in range(first, self.posts + 1):
            for number in range(REACTIONS // POSTS):
                yield {
                    "post_id": post,
                    "challenge_id": post % self.challenges + 1,
                    "username": self.users[(post * 7_919 + number * 31) % len(self.users)],
                    "created_ms": now,
                }


async def fill(sql: Sql, table: Table, rows: Iterator[dict[str, Any]]) -> int:
    done = 0
    while batch := [row for _, row in zip(range(INSERT_BATCH), rows, strict=False)]:
        async with sql.begin() as tx:
            await tx.execute(insert(table), batch)
        done += len(batch)
    return done


async def run_timed(name: str, daily_job: DailyJob, rows: int) -> float:
    """Run the job and print its figures. Returns its seconds without the model."""
    model_began: list[float] = []

    def progress(step: str, done: int, total: int) -> None:
        if "neighbours" in step:
            model_began.append(time.perf_counter())

    async with loop_delays() as delays:
        began = time.perf_counter()
        done: DailyJobResult = await daily_job.run(progress)
        ended = time.perf_counter()
    seconds = (model_began or [ended])[0] - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rate = f"{rows / seconds:,.0f} rows/s" if rows else ""
    model = f"model {ended - began - seconds:6.2f} s for {done.fitted:,}"
    print(
        f"  {name:16}{rows:>10,} rows{seconds:9.2f} s{rate:>16}   {model}"
        f"   loop {max(delays) * 1000:4.0f} ms   {memory:4.0f} MB   rebuilt: {len(done.rebuilt)}"
    )
    return seconds


@asynccontextmanager
async def loop_delays() -> AsyncIterator[list[float]]:
    """The delays of a task on the event loop, in seconds."""
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


async def measure_recommendations(recommender: Recommender, usernames: list[str]) -> None:
    """Print the CPU time of this process per request, for users without a cache entry."""
    readers = [Actor(name, USER) for name in usernames]
    for reader in readers[:20]:
        await recommender.recommend(reader, 20)
    began = time.process_time()
    posts = sum([len((await recommender.recommend(reader, 20)).posts) for reader in readers[20:]])
    each = (time.process_time() - began) / len(readers[20:])
    print(f"  20 recommendations: {each * 1e3:.1f} ms of CPU, {posts / len(readers[20:]):.0f} posts each\n")


async def run_at_size(share: float) -> None:
    generator = RowGenerator(share)
    with tempfile.TemporaryDirectory() as folder, running_server() as server:
        sql, valkey = await Sql.open(Settings(data_dir=Path(folder))), await connect(server.url)
        functions = Functions(valkey, [LIBRARY, leases.JOBS])
        await functions.load()
        clock = Clock()
        projections = ChallengeProjections(sql, functions, clock, MAX_POST_AGE)
        daily_job = DailyJob(projections, Leases(functions))
        now = clock.now_ms()
        rows = await fill(sql, CHALLENGE, generator.challenge_rows(int(CHALLENGES * share), now))
        rows += await fill(sql, POST, generator.post_rows(int(POSTS * share), now, 120))
        rows += await fill(sql, REACTION, generator.reaction_rows(1, now))
        tracked = ({"challenge_id": 1, "username": name, "day": day_number(now)} for name in generator.users)
        rows += await fill(sql, TRACKING, tracked)
        print(f"The daily job, {share:g} of 100,000 users and 5,000,000 reactions, on SQLite")
        first = await run_timed("first run", daily_job, rows)
        more = await fill(sql, POST, generator.post_rows(int(POSTS * share / 100), now, 0))
        more += await fill(sql, REACTION, generator.reaction_rows(generator.posts - more + 1, now))
        second = await run_timed("1% more", daily_job, more)
        await run_timed("nothing new", daily_job, 0)
        print(f"  1% more took {second / first:.1%} of the first run")
        await measure_recommendations(Recommender(projections), generator.users[:500])
        await valkey.close()
        await sql.close()


def main() -> None:
    asyncio.run(run_at_size(float(os.environ.get("BENCH_SHARE", "0.05"))))
