"""Learns from everybody what one reader's own keys cannot tell, and puts it where recommendations read it: which
challenges go together, and which posts are popular.

It reads who reacted in and joined which of the public challenges that go on, one line of text a person, so that five
million reactions are a hundred thousand rows. The arithmetic runs in a thread, in steps that are handed over as
they come: the loop goes on serving, and the whole model is never in memory at once.

Each challenge's neighbours are replaced in one step, so a reader sees yesterday's or today's. Broken off, it is done
again by the next roll, which knows by `db_len:cursor` what the last fit was made from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Any, Final

import numpy as np
from sqlalchemy import String, Table, cast, func, select

from plaza.challenges.keys import CLG_NEIGHBOURS, CLG_POPULAR
from plaza.challenges.projection import BATCH, Derived, batches
from plaza.challenges.rebuild import Progress
from plaza.challenges.recommendation.neighbours import Ints, Neighbours, fit
from plaza.challenges.tables import CHALLENGE, MEMBER, POST, REACTION, pool_of
from plaza.core.valkey import Arg

# It is fitted daily; if no worker runs for a week, a model of last week is worse than none.
LIFETIME_SECONDS: Final = 7 * 86_400
MOST_POPULAR: Final = 200


class Fitting:
    """Learns what goes together."""

    def __init__(self, derived: Derived) -> None:
        self._sql = derived.sql
        self._valkey = derived.valkey
        self._max_post_age = derived.max_post_age

    async def run(self, today: int, progress: Progress = lambda step, done, total: None) -> int:
        """Fit and store; how many challenges have neighbours now."""
        await self._note_popular(today)
        going = await self._going(today)
        progress("challenges' neighbours", 0, len(going))
        people, items = await self._log(going)
        rows = fit(people, items)
        del people, items
        stored: list[Ints] = []
        while batch := await asyncio.to_thread(_written, rows, going):
            await self._valkey.batch(
                [("SET", CLG_NEIGHBOURS(id), text, "EX", LIFETIME_SECONDS) for id, text in batch.items()]
            )
            stored.append(np.fromiter(batch, dtype=np.int64))
            progress("challenges' neighbours", len(batch), len(going))
        kept = np.concatenate(stored) if stored else np.empty(0, dtype=np.int64)
        for alone in batches(np.setdiff1d(going, kept).tolist()):
            await self._valkey.batch([("UNLINK", CLG_NEIGHBOURS(id)) for id in alone])
        return len(kept)

    async def _note_popular(self, today: int) -> None:
        """The pool's posts with most reactions. Replaced in one step."""
        reactions = func.count().label("reactions")
        best = (
            select(REACTION.c.post_id, reactions)
            .join(POST, REACTION.c.post_id == POST.c.id)
            .join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
            .where(pool_of(today, self._max_post_age))
            .group_by(REACTION.c.post_id)
            .order_by(reactions.desc(), REACTION.c.post_id.desc())
            .limit(MOST_POPULAR)
        )
        async with self._sql.read() as tx:
            found = [part for row in await tx.execute(best) for part in (row.reactions, row.post_id)]
        key = CLG_POPULAR()
        commands: list[tuple[Arg, ...]] = [("UNLINK", key)]
        if found:
            commands += [("ZADD", key, *found), ("EXPIRE", key, LIFETIME_SECONDS)]
        await self._valkey.multi(commands)

    async def _going(self, today: int) -> Ints:
        """The challenges to recommend from, by id."""
        shown = select(CHALLENGE.c.id).where(CHALLENGE.c.ends_day > today, CHALLENGE.c.is_public.is_(True))
        async with self._sql.read() as tx:
            return np.array((await tx.execute(shown.order_by(CHALLENGE.c.id))).scalars().all(), dtype=np.int64)

    async def _log(self, going: Ints) -> tuple[Ints, Ints]:
        """Who takes part in what: numbers of people, and places in `going`."""
        number: dict[str, int] = {}
        people, items = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int32)]
        for table in (REACTION, MEMBER):
            async for rows in self._people_of(table):
                ids = np.fromstring(" ".join(row.challenges for row in rows), dtype=np.int64, sep=" ")
                names = [number.setdefault(row.username, len(number)) for row in rows]
                who = np.repeat(names, [row.challenges.count(" ") + 1 for row in rows])
                inside = np.isin(ids, going)
                people.append(who[inside].astype(np.int32))
                items.append(np.searchsorted(going, ids[inside]).astype(np.int32))
        return np.concatenate(people), np.concatenate(items)

    async def _people_of(self, table: Table) -> AsyncIterator[list[Any]]:
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


def _written(rows: Iterator[Neighbours], going: Ints) -> dict[int, str]:
    """The next challenges with their neighbours as they are stored."""
    return {
        int(going[row.item]): " ".join(
            f"{id} {weight:.3g}" for id, weight in zip(going[row.others].tolist(), row.weights.tolist(), strict=True)
        )
        for row in islice(rows, BATCH)
    }
