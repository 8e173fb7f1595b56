"""What Valkey holds of challenges, each thing by itself computed anew from the tables.

Everything is written here and nowhere else: right after a change of SQL, by the daily job and by a rebuild alike. Each
write says how a thing *is* (a post is in the pool or is not, a person has so many reactions in a challenge), never what
changed, so it may be repeated, come twice, or be done again from the start.

Two that write about the same thing could still do so in another order than they read. Challenges and posts only come
and never change, and tracked days only become more, so there the larger wins. Reactions come and go: whoever writes a
person's reactions takes a ticket *before* reading, and a ticket older than the last that wrote is refused, whereupon
its holder reads again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any, Literal, TypeVar

from sqlalchemy import func, select

from plaza.challenges.keys import (
    ON_CLG_INFO,
    POST_CLG_PAIR,
    USER_CONTRIBUTION,
    of_person,
    of_pool,
)
from plaza.challenges.model import CATEGORIES, clg_info, day_of, in_pool
from plaza.challenges.tables import CHALLENGE, POST, REACTION, TRACKING
from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.sql import Sql

T = TypeVar("T")

# How many ids go into one statement or command: below SQLite's 32,766 variables and short for Valkey.
BATCH = 500

# A person's reactions are written by few at once; whoever still loses leaves it to the others, who read later.
MOST_TRIES = 20


def batches(things: Iterable[T], size: int = BATCH) -> Iterable[list[T]]:
    waiting = iter(things)
    while batch := list(islice(waiting, size)):
        yield batch


class Derived:
    """Keeps Valkey as the tables say."""

    def __init__(self, sql: Sql, functions: Functions, clock: Clock, max_post_age: int) -> None:
        self.sql = sql
        self.functions = functions
        self.valkey = functions.valkey
        self.clock = clock
        self.max_post_age = max_post_age

    def today(self) -> int:
        return day_of(self.clock.now_ms())

    async def challenges(self, ids: Collection[int]) -> None:
        """`on_clg_info` of these challenges."""
        for batch in batches(ids):
            async with self.sql.read() as tx:
                rows = (await tx.execute(select(CHALLENGE).where(CHALLENGE.c.id.in_(batch)))).all()
            going = {row.id: clg_info(row) for row in rows if row.ends_day > self.today()}
            await self._write_hash(ON_CLG_INFO(), batch, going)

    async def posts(self, ids: Collection[int], *, today: int | None = None) -> None:
        """Pool and `post_clg_pair` of these posts. Given `today`, that is the day, even if it lies back."""
        day = self.today() if today is None else today
        for batch in batches(ids):
            statement = select(POST, CHALLENGE).join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
            statement = statement.with_only_columns(
                POST.c.id,
                POST.c.challenge_id,
                POST.c.day,
                POST.c.is_break,
                CHALLENGE.c.category,
                CHALLENGE.c.is_public,
                CHALLENGE.c.ends_day,
            )
            async with self.sql.read() as tx:
                rows = (await tx.execute(statement.where(POST.c.id.in_(batch)))).all()
            inside = {row.id: row for row in rows if in_pool(row, day, self.max_post_age)}
            await self._write_pools(batch, inside, day, back=today is not None)
            await self._write_hash(POST_CLG_PAIR(), batch, {id: str(row.challenge_id) for id, row in inside.items()})

    async def _write_pools(self, ids: Sequence[int], inside: dict[int, Any], today: int, *, back: bool) -> None:
        for category in range(1, CATEGORIES + 1):
            here = {id: row.day for id, row in inside.items() if row.category == category}
            # A post never changes its category; one that is not in this pool is taken out, in case it ever was.
            args = [part for id in ids for part in (id, here.get(id, ""))]
            await self.functions.call("challenges_pool", of_pool(category), today, self.max_post_age, int(back), *args)

    async def contributions(self, names: Collection[str], way: Literal["most", "exact"] = "most") -> None:
        """`user_contribution` of these people."""
        for batch in batches(names):
            statement = (
                select(TRACKING.c.username, CHALLENGE.c.category, func.count().label("days"))
                .join(CHALLENGE, TRACKING.c.challenge_id == CHALLENGE.c.id)
                .where(TRACKING.c.username.in_(batch))
                .group_by(TRACKING.c.username, CHALLENGE.c.category)
            )
            days = {name: [0] * CATEGORIES for name in batch}
            async with self.sql.read() as tx:
                for row in await tx.execute(statement):
                    days[row.username][row.category - 1] = row.days
            args = [part for name in batch for part in (name, ",".join(map(str, days[name])))]
            await self.functions.call("challenges_contribution", [USER_CONTRIBUTION()], way, *args)

    async def reactions(self, name: str, posts: Collection[int], challenges: Collection[int]) -> None:
        """One person's liked posts among these, and preference of these challenges."""
        keys = of_person(name)
        for _ in range(MOST_TRIES):
            ticket = await self.functions.call("challenges_ticket", keys[:1])
            liked, counts = await self._reactions_of(name, posts, challenges)
            args = [part for post in posts for part in (post, int(post in liked))]
            args += [part for challenge in challenges for part in (challenge, counts.get(challenge, 0))]
            if await self.functions.call("challenges_person", keys, ticket, len(posts), *args):
                return

    async def _reactions_of(
        self, name: str, posts: Collection[int], challenges: Collection[int]
    ) -> tuple[set[int], dict[int, int]]:
        """Which of these posts are in the pool with a reaction of this person; how many reactions, by challenge."""
        today = self.today()
        mine = REACTION.c.username == name
        in_posts = (
            select(POST.c.id, POST.c.day, POST.c.is_break, CHALLENGE.c.is_public, CHALLENGE.c.ends_day)
            .select_from(REACTION)
            .join(POST, REACTION.c.post_id == POST.c.id)
            .join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
            .where(mine)
        )
        counted = (
            select(REACTION.c.challenge_id, func.count().label("count"))
            .join(CHALLENGE, REACTION.c.challenge_id == CHALLENGE.c.id)
            .where(mine, CHALLENGE.c.ends_day > today)
            .group_by(REACTION.c.challenge_id)
        )
        liked: set[int] = set()
        counts: dict[int, int] = defaultdict(int)
        async with self.sql.read() as tx:
            for batch in batches(posts):
                rows = await tx.execute(in_posts.where(POST.c.id.in_(batch)))
                liked |= {row.id for row in rows if in_pool(row, today, self.max_post_age)}
            for batch in batches(challenges):
                rows = await tx.execute(counted.where(REACTION.c.challenge_id.in_(batch)))
                counts |= {row.challenge_id: row.count for row in rows}
        return liked, counts

    async def _write_hash(self, key: str, ids: Sequence[int], values: dict[int, str]) -> None:
        commands: list[list[str | int]] = []
        if values:
            commands.append(["HSET", key, *(part for pair in values.items() for part in pair)])
        if gone := [id for id in ids if id not in values]:
            commands.append(["HDEL", key, *gone])
        if commands:
            await self.valkey.batch(commands)
