"""Posts to choose from, at hand in the process: not what they say, only what a choice goes by.

A post never moves to another challenge or day, and a challenge keeps its category and its end. So nothing here goes out
of date, and nobody has to be told of changes. A post may be gone, and its author may have another name: whoever shows a
post looks it up.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Final

from sqlalchemy import bindparam, select

from plaza.challenges.recommendation.ranking import Candidate
from plaza.challenges.tables import CHALLENGE, POST
from plaza.core.sql import Sql

# Some 300 bytes each.
MOST: Final = 50_000
# Of those that are not at hand, so many are read at a time: a millisecond each time.
STEP: Final = 250

_CANDIDATES = (
    select(
        POST.c.id,
        POST.c.challenge_id,
        POST.c.username,
        POST.c.day,
        POST.c.is_break,
        CHALLENGE.c.category,
        CHALLENGE.c.is_public,
        CHALLENGE.c.ends_day,
    )
    .join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
    .where(POST.c.id.in_(bindparam("ids", expanding=True)))
)


class Candidates:
    """Posts by their ids."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._at_hand: dict[int, Candidate] = {}

    async def of(self, ids: Collection[int]) -> list[Candidate]:
        """Those of these posts that there are. No look for those at hand."""
        missing = [id for id in ids if id not in self._at_hand]
        for start in range(0, len(missing), STEP):
            for row in await self._sql.fetch_all(_CANDIDATES, ids=missing[start : start + STEP]):
                self._at_hand[row.id] = Candidate._make(row)
        found = [self._at_hand[id] for id in ids if id in self._at_hand]
        if len(self._at_hand) > MOST:  # those that came first are the oldest, more or less
            for id in list(islice(self._at_hand, len(self._at_hand) - MOST + MOST // 10)):
                del self._at_hand[id]
        return found
