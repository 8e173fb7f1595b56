"""Measures the CPU time of recommendations, by default with 20,000 posts and 300 challenges.

Viewers have reacted in 80 challenges on average. The first round is their first visit; in later ones they have been
shown posts before. The CPU time is that of this process, without Valkey.

    python -m bench recommendations
    BENCH_POSTS=1000000 BENCH_CHALLENGES=4000 python -m bench recommendations
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop

from bench.challenges import MAX_POST_AGE, RowGenerator, fill
from plaza.challenges.daily_job.runner import DailyJob
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

VIEWERS, ROUNDS = 200, 12
REACTIONS_PER_POST, REACTIONS_PER_USER = 5, 100


def _reactions(generator: RowGenerator, now: int) -> Iterator[dict[str, Any]]:
    for post in range(1, generator.posts + 1):
        for name in set(generator.rng.choices(generator.users, k=REACTIONS_PER_POST)):
            challenge = post % generator.challenges + 1
            yield {"post_id": post, "challenge_id": challenge, "username": name, "created_ms": now}


async def run_at_size(challenges: int, posts: int) -> None:
    generator = RowGenerator(share=posts * REACTIONS_PER_POST / REACTIONS_PER_USER / 100_000)
    with tempfile.TemporaryDirectory() as folder, running_server() as server:
        sql, valkey = await Sql.open(Settings(data_dir=Path(folder))), await connect(server.url)
        functions = Functions(valkey, [LIBRARY, leases.JOBS])
        await functions.load()
        clock = Clock()
        projections = ChallengeProjections(sql, functions, clock, MAX_POST_AGE)
        now = clock.now_ms()
        today = day_number(now)
        ongoing = {"ends_day": today + 30, "is_public": True}
        await fill(sql, CHALLENGE, (row | ongoing for row in generator.challenge_rows(challenges, now)))
        await fill(sql, POST, generator.post_rows(posts, now, MAX_POST_AGE - 1))
        await fill(sql, REACTION, _reactions(generator, now))
        tracked = ({"challenge_id": 1, "username": name, "day": today} for name in generator.users)
        await fill(sql, TRACKING, tracked)
        await DailyJob(projections, Leases(functions)).run()
        recommender = Recommender(projections)
        viewers = [Actor(name, USER) for name in generator.users[:VIEWERS]]
        rounds = [await _cpu_ms(recommender, viewers) for _ in range(ROUNDS)]
        print(
            f"{posts:,} posts, {challenges:,} challenges: {rounds[0]:.2f} ms of CPU at the first visit, later"
            f" {min(rounds[1:]):.2f} at least, {statistics.median(rounds[1:]):.2f} in the median of {ROUNDS - 1} rounds"
        )
        await valkey.close()
        await sql.close()


async def _cpu_ms(recommender: Recommender, viewers: list[Actor]) -> float:
    began = time.process_time()
    for viewer in viewers:
        await recommender.recommend(viewer, 20)
    return (time.process_time() - began) * 1e3 / len(viewers)


def main() -> None:
    sizes = [int(os.environ.get(*pair)) for pair in (("BENCH_CHALLENGES", "300"), ("BENCH_POSTS", "20000"))]
    uvloop.run(run_at_size(*sizes))
