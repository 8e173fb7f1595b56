"""Computes similar challenges from all users' activity, and stores them. Needs numpy: the extra `recommend`.

It reads which users reacted in or joined which public ongoing challenges, one row per user, so five million reactions
become a hundred thousand rows. The arithmetic runs in a thread and yields results step by step: the event loop keeps
serving, and the complete model is never in memory.

A challenge's neighbours are replaced in one command, so a reader sees the old or the new ones. If training is
interrupted, the next run of the daily job repeats it: `db_len:cursor` says from which rows the last one was made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Any

import numpy as np
from sqlalchemy import String, Table, cast, func, select

from plaza.challenges.daily_job.rebuild import Progress
from plaza.challenges.keys import CLG_NEIGHBOURS
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.readable_rows import BATCH
from plaza.challenges.recommendation.neighbours import Ints, Neighbours, fit
from plaza.challenges.recommendation.popular_posts import LIFETIME_SECONDS
from plaza.challenges.recommendation.stored_neighbours import encode_neighbours
from plaza.challenges.tables import CHALLENGE, MEMBER, REACTION
from plaza.core.sequences import chunks


class NeighbourTraining:
    """Computes and stores the neighbours of challenges."""

    def __init__(self, projections: ChallengeProjections) -> None:
        self._sql = projections.sql
        self._valkey = projections.valkey
        self._max_post_age = projections.max_post_age

    async def run(self, today: int, progress: Progress = lambda step, done, total: None) -> int:
        """Train and store the model. Returns the number of challenges that have neighbours."""
        ongoing = await self._ongoing(today)
        progress("challenges' neighbours", 0, len(ongoing))
        users, items = await self._read_log(ongoing)
        rows = fit(users, items)
        del users, items
        stored: list[Ints] = []
        while batch := await asyncio.to_thread(_next_values, rows, ongoing):
            await self._valkey.batch(
                [("SET", CLG_NEIGHBOURS(id), value, "EX", LIFETIME_SECONDS) for id, value in batch.items()]
            )
            stored.append(np.fromiter(batch, dtype=np.int64))
            progress("challenges' neighbours", len(batch), len(ongoing))
        trained = np.concatenate(stored) if stored else np.empty(0, dtype=np.int64)
        for ids in chunks(np.setdiff1d(ongoing, trained).tolist(), BATCH):
            await self._valkey.batch([("UNLINK", CLG_NEIGHBOURS(id)) for id in ids])
        return len(trained)

    async def _ongoing(self, today: int) -> Ints:
        """The ids of public ongoing challenges, sorted."""
        public = select(CHALLENGE.c.id).where(CHALLENGE.c.ends_day > today, CHALLENGE.c.is_public.is_(True))
        async with self._sql.read() as tx:
            return np.array((await tx.execute(public.order_by(CHALLENGE.c.id))).scalars().all(), dtype=np.int64)

    async def _read_log(self, ongoing: Ints) -> tuple[Ints, Ints]:
        """Pairs of user numbers and indexes into `ongoing`."""
        number: dict[str, int] = {}
        users, items = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int32)]
        for table in (REACTION, MEMBER):
            async for rows in self._challenges_by_user(table):
                ids = np.fromstring(" ".join(row.challenges for row in rows), dtype=np.int64, sep=" ")
                names = [number.setdefault(row.username, len(number)) for row in rows]
                row_users = np.repeat(names, [row.challenges.count(" ") + 1 for row in rows])
                selected = np.isin(ids, ongoing)
                users.append(row_users[selected].astype(np.int32))
                items.append(np.searchsorted(ongoing, ids[selected]).astype(np.int32))
        return np.concatenate(users), np.concatenate(items)

    async def _challenges_by_user(self, table: Table) -> AsyncIterator[list[Any]]:
        ids = func.aggregate_strings(cast(table.c.challenge_id, String), " ").label("challenges")
        statement = select(table.c.username, ids).group_by(table.c.username).order_by(table.c.username).limit(BATCH)
        last = ""
        while True:
            async with self._sql.read() as tx:
                rows = list((await tx.execute(statement.where(table.c.username > last))).all())
            if not rows:
                return
            yield rows
            last = rows[-1].username


def _next_values(rows: Iterator[Neighbours], ongoing: Ints) -> dict[int, bytes]:
    """The next batch of challenges with their neighbours, as stored."""
    return {int(ongoing[row.item]): encode_neighbours(ongoing[row.others], row.weights) for row in islice(rows, BATCH)}
