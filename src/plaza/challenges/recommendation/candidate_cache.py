"""A cache of recommendation candidates in the process: not the posts' texts, only what the selection needs.

A post never moves to another challenge or day, and a challenge keeps its category and its end. So entries never become
outdated. But a post can be deleted and its author renamed, so the recommender reads the posts it shows from SQL.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from sqlalchemy import bindparam, select

from plaza.challenges.recommendation.ranking import Candidate
from plaza.challenges.tables import CHALLENGE, POST
from plaza.core.sequences import chunks
from plaza.core.sql import Sql

# About 300 bytes each.
MAX_CACHED: Final = 50_000
# Missing candidates per query, which takes a millisecond.
READ_BATCH: Final = 250

_CANDIDATES = (
    select(
        POST.c.day,
        POST.c.id,
        POST.c.challenge_id,
        POST.c.username,
        POST.c.is_break,
        CHALLENGE.c.category,
        CHALLENGE.c.is_public,
        CHALLENGE.c.ends_day,
    )
    .join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
    .where(POST.c.id.in_(bindparam("ids", expanding=True)))
)


class CandidateCache:
    """Candidates by post id."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._cached: dict[int, Candidate] = {}
        self._today = 0

    async def get(self, ids: frozenset[int], today: int) -> list[Candidate]:
        """The candidates of these posts, without deleted ones. Cached ones need no query.

        Those of an ended challenge are not cached: it may have been prolonged.
        """
        cached = self._cached
        if today != self._today:
            self._today = today
            for id in [id for id, known in cached.items() if known.ends_day <= today]:
                del cached[id]
        for ids_to_read in chunks(ids.difference(cached), READ_BATCH):
            for row in await self._sql.fetch_all(_CANDIDATES, ids=ids_to_read):
                if row.ends_day > today:
                    cached[row.id] = Candidate._make(row)
        found = [cached[id] for id in ids if id in cached]
        if len(cached) > MAX_CACHED:  # the first inserted are roughly the oldest posts
            for id in list(islice(cached, len(cached) - MAX_CACHED + MAX_CACHED // 10)):
                del cached[id]
        return found
