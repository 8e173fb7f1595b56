"""The posts with most reactions lately, which the daily job stores for recommendations."""

from __future__ import annotations

from typing import Final

from sqlalchemy import func, select

from plaza.challenges.keys import CLG_POPULAR
from plaza.challenges.model import DAY_MS
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.tables import CHALLENGE, POST, REACTION, pool_condition
from plaza.core.valkey import Arg

# The daily job replaces what it stores. If no worker runs for a week, no model is better than an outdated one.
LIFETIME_SECONDS: Final = 7 * 86_400
MAX_POPULAR: Final = 200
# Older reactions do not count: what is popular now predicts better what a new user likes.
TREND_DAYS: Final = 30


class PopularPosts:
    """Computes and stores the popular posts."""

    def __init__(self, projections: ChallengeProjections) -> None:
        self._sql = projections.sql
        self._valkey = projections.valkey
        self._max_post_age = projections.max_post_age

    async def store(self, today: int) -> None:
        """Store the pool's posts with most recent reactions, in one transaction."""
        reactions = func.count().label("reactions")
        best = (
            select(REACTION.c.post_id, reactions)
            .join(POST, REACTION.c.post_id == POST.c.id)
            .join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
            .where(
                pool_condition(today, self._max_post_age), REACTION.c.created_ms >= (today - TREND_DAYS + 1) * DAY_MS
            )
            .group_by(REACTION.c.post_id)
            .order_by(reactions.desc(), REACTION.c.post_id.desc())
            .limit(MAX_POPULAR)
        )
        async with self._sql.read() as tx:
            scores = [part for row in await tx.execute(best) for part in (row.reactions, row.post_id)]
        key = CLG_POPULAR()
        commands: list[tuple[Arg, ...]] = [("UNLINK", key)]
        if scores:
            commands += [("ZADD", key, *scores), ("EXPIRE", key, LIFETIME_SECONDS)]
        await self._valkey.multi(commands)
