"""What users are served: the whole path from the tables to the response, on a Plaza of its own.

Every film is a public challenge with one post, whose day is that of the film's first rating. A rating is a reaction to
that post and a tracked day. After a run of the daily job, every user asks for recommendations as over HTTP. Valkey and
SQLite are in a temporary directory. Films have one post each, so the source `challenge` (more posts of own challenges)
has none here, and its places go to similar challenges.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from sqlalchemy import Table, insert

from plaza.challenges.daily_job.runner import DailyJob
from plaza.challenges.library import LIBRARY
from plaza.challenges.model import CATEGORIES, DAY_MS, day_number
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.recommendation.evaluation.contenders import Scores
from plaza.challenges.recommendation.evaluation.movielens import Ratings
from plaza.challenges.recommendation.neighbours import Ints
from plaza.challenges.recommendation.recommender import Recommender
from plaza.challenges.tables import CHALLENGE, POST, REACTION, TRACKING
from plaza.core import leases
from plaza.core.auth import USER, Actor
from plaza.core.clock import ManualClock
from plaza.core.embedded_valkey import EmbeddedValkey
from plaza.core.functions import Functions
from plaza.core.leases import Leases
from plaza.core.sequences import chunks
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.valkey import connect

# A response of the default length.
LIMIT: Final = 20
# A post that is not older is new.
NEW_DAYS: Final = 7
# Every film stays in the pool: the data set spans seven months.
MAX_POST_AGE: Final = 365
INSERT_BATCH: Final = 5_000


@dataclass(frozen=True, slots=True)
class Variety:
    """How much of everything users are served."""

    coverage: float  # the share of all posts that at least one user is served
    fresh: float  # the share of places with a post of the last 7 days
    unfamiliar: float  # the share of responses with a post of a category other than the user's main one
    categories: float  # the mean number of categories in a response


class ServedRecommendations:
    """A contender: its scores are the places that recommendations have in the response. Collects their variety."""

    def __init__(self) -> None:
        self.varieties: list[Variety] = []

    def __call__(self, log: Ratings) -> Scores:
        tables = FilmTables(log)
        served = asyncio.run(_serve(tables))
        self.varieties.append(_variety(tables, served))
        scores = np.zeros(log.shape, dtype=np.float32)
        for user, films in enumerate(served):
            scores[user, films] = np.arange(len(films), 0, -1)
        return scores


class FilmTables:
    """The rows of the SQL tables that stand for ratings."""

    def __init__(self, log: Ratings) -> None:
        self.log = log
        self.now_ms = (int(log.times.max()) + 1) * 1_000
        self.categories = np.argmax(log.genres, axis=1) % CATEGORIES + 1
        first = np.full(log.shape[1], self.now_ms // 1_000)
        np.minimum.at(first, log.items, log.times)
        self.days = first * 1_000 // DAY_MS

    def rows(self) -> Iterator[tuple[Table, Iterable[dict[str, Any]]]]:
        """The rows of each table, parents first. Ids of films begin with 1."""
        films = range(self.log.shape[1])
        today = day_number(self.now_ms)
        yield CHALLENGE, ({**self._challenge(film), "ends_day": today + 1} for film in films)
        yield POST, (self._post(film) for film in films)
        ratings = self._ratings()
        yield REACTION, map(self._reaction, ratings)
        yield TRACKING, map(self._tracked_day, ratings)

    def _ratings(self) -> list[int]:
        """The places of the ratings in the log, oldest first as the ids of rows; of repeated ones, the newest."""
        order = np.lexsort((-self.log.items, self.log.times))
        pairs = self.log.users[order].astype(np.int64) * self.log.shape[1] + self.log.items[order]
        _, from_end = np.unique(pairs[::-1], return_index=True)
        newest: list[int] = order[np.sort(len(order) - 1 - from_end)].tolist()
        return newest

    def _challenge(self, film: int) -> dict[str, Any]:
        category = int(self.categories[film])
        made = {"creator": f"author{film}", "created_ms": 0}
        return {"id": film + 1, "title": f"Film {film}", "category": category, "is_public": True, "duration": 1, **made}

    def _post(self, film: int) -> dict[str, Any]:
        day = int(self.days[film])
        made = {"username": f"author{film}", "created_ms": day * DAY_MS, "day": day}
        return {"id": film + 1, "challenge_id": film + 1, "text": "Seen.", "is_break": False, **made}

    def _reaction(self, n: int) -> dict[str, Any]:
        film = int(self.log.items[n]) + 1
        made_ms = int(self.log.times[n]) * 1_000
        return {"post_id": film, "challenge_id": film, "username": self._user(n), "created_ms": made_ms}

    def _tracked_day(self, n: int) -> dict[str, Any]:
        day = day_number(int(self.log.times[n]) * 1_000)
        return {"challenge_id": int(self.log.items[n]) + 1, "username": self._user(n), "day": day}

    def _user(self, n: int) -> str:
        return f"user{self.log.users[n]}"


async def _serve(tables: FilmTables) -> list[Ints]:
    """The films recommended to each user, first place first."""
    async with _own_plaza(tables.now_ms) as (sql, projections, daily_job):
        for table, rows in tables.rows():
            for batch in chunks(rows, INSERT_BATCH):
                async with sql.begin() as tx:
                    await tx.execute(insert(table), batch)
        await daily_job.run()
        recommender = Recommender(projections)
        served = []
        for user in range(tables.log.shape[0]):
            found = await recommender.recommend(Actor(f"user{user}", USER), LIMIT)
            served.append(np.array([one.post.id - 1 for one in found.posts], dtype=np.int64))
        return served


@asynccontextmanager
async def _own_plaza(now_ms: int) -> AsyncIterator[tuple[Sql, ChallengeProjections, DailyJob]]:
    """Challenges on a Valkey and a SQLite of their own, at a fixed time."""
    with TemporaryDirectory(prefix="plaza-evaluation-") as folder:
        settings = Settings(data_dir=Path(folder))
        async with EmbeddedValkey(settings.data_dir, settings.fsync, settings.maxmemory_bytes, for_command=True) as own:
            sql, valkey = await Sql.open(settings), await connect(own.url)
            try:
                functions = Functions(valkey, [LIBRARY, leases.JOBS])
                await functions.load()
                projections = ChallengeProjections(sql, functions, ManualClock(now_ms), MAX_POST_AGE)
                yield sql, projections, DailyJob(projections, Leases(functions))
            finally:
                await valkey.close()
                await sql.close()


def _variety(tables: FilmTables, served: list[Ints]) -> Variety:
    log, categories = tables.log, tables.categories
    days = np.zeros((log.shape[0], CATEGORIES + 1), dtype=np.int64)
    np.add.at(days, (log.users, categories[log.items]), 1)
    main = days.argmax(axis=1)
    everything = np.concatenate(served)
    return Variety(
        coverage=len(np.unique(everything)) / log.shape[1],
        fresh=float((tables.days[everything] > day_number(tables.now_ms) - NEW_DAYS).mean()),
        unfamiliar=float(np.mean([(categories[films] != main[user]).any() for user, films in enumerate(served)])),
        categories=float(np.mean([len(np.unique(categories[films])) for films in served])),
    )
