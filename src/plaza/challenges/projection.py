"""Writes what Valkey holds of challenges, computed from the SQL tables.

All writes of derived keys are here: after each change of SQL, in the daily job and in a rebuild. A write states a value
(a post is in the pool or not, a user has n reactions in a challenge), not a change. So it can be repeated.

Two concurrent writers could write in another order than they read. Challenges and posts never change. A writer of
tracked days reads them again after its write, and repeats the write if they have changed. A writer of reactions takes a
ticket *before* it reads; if a later ticket has written already, the command rejects the write, and the writer reads
again.
"""

from __future__ import annotations

from asyncio import gather
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select, true

from plaza.challenges.keys import (
    CLG_NEIGHBOURS,
    ON_CLG_INFO,
    POST_CLG_PAIR,
    USER_CONTRIBUTION,
    pool_keys,
    user_keys,
)
from plaza.challenges.model import CATEGORIES, day_number, format_clg_info, in_pool
from plaza.challenges.tables import CHALLENGE, INSERT_LOG, POST, REACTION, TRACKING
from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.sequences import chunks
from plaza.core.sql import Sql
from plaza.core.valkey import Arg

# Username, post id, challenge id.
ReactionRef = tuple[str, int, int]
# Reads users' reactions from SQL; returns the arguments of `challenges_write_reactions` for each user.
ReadReactions = Callable[[Sequence[str]], Awaitable[dict[str, list[Arg]]]]

# Ids per SQL statement or Valkey command: below SQLite's 32,766 variables, and a short step for Valkey.
BATCH = 500
# Users per call on one server. Such a call keeps Valkey busy for one or two milliseconds.
USERS_PER_CALL = 100


class ChallengeProjections:
    """Updates the derived keys of challenges."""

    def __init__(
        self,
        sql: Sql,
        functions: Functions,
        clock: Clock,
        max_post_age: int,
        ceilings: Mapping[str, int] | None = None,
    ) -> None:
        self.sql = sql
        self.functions = functions
        self.valkey = functions.valkey
        self.clock = clock
        self.max_post_age = max_post_age
        self._ceilings = ceilings

    def up_to(self, ceilings: Mapping[str, int]) -> ChallengeProjections:
        """The same for a run of the daily job, which reads rows up to these ids, and newer ones that Plaza has logged.

        A newer row that another program inserted may be deleted before any run counts it, and no run would notice.
        """
        return ChallengeProjections(self.sql, self.functions, self.clock, self.max_post_age, ceilings)

    def _readable(self, name: str, rows: Any) -> ColumnElement[bool]:
        if self._ceilings is None:
            return true()
        logged = select(INSERT_LOG.c.id).where(INSERT_LOG.c.table_name == name, INSERT_LOG.c.row_id == rows.c.id)
        return or_(rows.c.id <= self._ceilings[name], logged.exists())

    def today(self) -> int:
        return day_number(self.clock.now_ms())

    async def update_challenges(self, ids: Collection[int]) -> None:
        """Update `on_clg_info` for these challenges, and delete the neighbours of ended ones."""
        for batch in chunks(ids, BATCH):
            async with self.sql.read() as tx:
                rows = (await tx.execute(select(CHALLENGE).where(CHALLENGE.c.id.in_(batch)))).all()
            ongoing = {row.id: format_clg_info(row) for row in rows if row.ends_day > self.today()}
            await self._write_hash(ON_CLG_INFO(), batch, ongoing)
            if ended := [id for id in batch if id not in ongoing]:
                await self.valkey.batch([("UNLINK", CLG_NEIGHBOURS(id)) for id in ended])

    async def update_posts(self, ids: Collection[int], *, today: int | None = None) -> None:
        """Update the pool and `post_clg_pair` for these posts. `today` may be earlier than the last day written."""
        day = self.today() if today is None else today
        for batch in chunks(ids, BATCH):
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
            in_pools = {row.id: row for row in rows if in_pool(row, day, self.max_post_age)}
            await self._write_pools(batch, in_pools, day, may_go_back=today is not None)
            await self._write_hash(POST_CLG_PAIR(), batch, {id: str(row.challenge_id) for id, row in in_pools.items()})

    async def clear_old_slots(self, today: int) -> None:
        """Clear the pools' slots of days outside the window that ends today. `today` may be earlier than before."""
        await self._write_pools([], {}, today, may_go_back=True)

    async def _write_pools(
        self, ids: Sequence[int], in_pools: dict[int, Any], today: int, *, may_go_back: bool
    ) -> None:
        for category in range(1, CATEGORIES + 1):
            days = {id: row.day for id, row in in_pools.items() if row.category == category}
            # Posts of other categories are removed too, in case another service added them.
            args = [part for id in ids for part in (id, days.get(id, ""))]
            await self.functions.run(
                "challenges_write_pool", pool_keys(category), today, self.max_post_age, int(may_go_back), *args
            )

    async def update_contributions(self, names: Collection[str]) -> None:
        """Update `user_contribution` for these users.

        After the write, SQL is read again. If another transaction has changed the days meanwhile, they are written
        again, so of several concurrent writers the last one has read the last state.
        """
        for batch in chunks(names, BATCH):
            written = await self._read_days(batch)
            await self._write_days(written)
            while changed := await self._read_changed_days(written):
                await self._write_days(changed)
                written = changed

    async def _read_changed_days(self, written: Mapping[str, list[int]]) -> dict[str, list[int]]:
        """The days of users who have other days now than were written."""
        now = await self._read_days(list(written))
        return {name: days for name, days in now.items() if days != written[name]}

    async def _read_days(self, names: Sequence[str]) -> dict[str, list[int]]:
        days = {name: [0] * CATEGORIES for name in names}
        if not names:
            return days
        statement = (
            select(TRACKING.c.username, CHALLENGE.c.category, func.count().label("days"))
            .join(CHALLENGE, TRACKING.c.challenge_id == CHALLENGE.c.id)
            .where(TRACKING.c.username.in_(names), self._readable("tracking", TRACKING))
            .group_by(TRACKING.c.username, CHALLENGE.c.category)
        )
        async with self.sql.read() as tx:
            for row in await tx.execute(statement):
                days[row.username][row.category - 1] = row.days
        return days

    async def _write_days(self, days: Mapping[str, list[int]]) -> None:
        args = [part for name, counts in days.items() for part in (name, ",".join(map(str, counts)))]
        await self.functions.run("challenges_write_contributions", [USER_CONTRIBUTION()], *args)

    async def add_reactions(self, rows: Collection[Any]) -> None:
        """Write these rows of `reaction` if they still exist; a request that deletes one updates Valkey itself."""
        for batch in chunks(rows, BATCH):
            ids: dict[str, list[int]] = defaultdict(list)
            for row in batch:
                ids[row.username].append(row.id)

            async def read(names: Sequence[str], ids: dict[str, list[int]] = ids) -> dict[str, list[Arg]]:
                return await self._read_rows(names, [id for name in names for id in ids[name]])

            await self._write_reactions(list(ids), read)

    async def update_reactions(self, rows: Collection[ReactionRef]) -> None:
        """Update users' reactions to these posts, and their counts in these challenges."""
        # Smaller chunks: the database may check every user against every post.
        for batch in chunks(rows, BATCH // 5):
            by_user: dict[str, list[ReactionRef]] = defaultdict(list)
            for row in batch:
                by_user[row[0]].append(row)

            async def read(
                names: Sequence[str], by_user: dict[str, list[ReactionRef]] = by_user
            ) -> dict[str, list[Arg]]:
                return await self._read_some({name: by_user[name] for name in names})

            await self._write_reactions(list(by_user), read)

    async def rewrite_users(self, names: Collection[str]) -> None:
        """Replace all reactions of these users."""
        # Smaller chunks: a user can have many rows, and reading them keeps the event loop busy.
        for batch in chunks(names, USERS_PER_CALL):
            await self._write_reactions(batch, self._read_all)

    async def _write_reactions(self, names: Sequence[str], read: ReadReactions) -> None:
        """Take tickets, read, write. Repeat for users whose write was rejected because of a later one."""
        waiting = list(names)
        while waiting:  # ends: each rejection means that another writer has finished
            tickets = await self._call_per_user(waiting, self._take_tickets)
            reactions = await read(waiting)

            async def write(
                names: Sequence[str],
                tickets: Mapping[str, Any] = tickets,
                reactions: Mapping[str, list[Arg]] = reactions,
            ) -> Any:
                keys = [key for name in names for key in user_keys(name)]
                args = [part for name in names for part in (tickets[name], *reactions[name])]
                return await self.functions.run("challenges_write_reactions", keys, *args)

            written = await self._call_per_user(waiting, write)
            waiting = [name for name in waiting if not written[name]]

    async def _take_tickets(self, names: Sequence[str]) -> Any:
        return await self.functions.run("challenges_take_tickets", [user_keys(name)[0] for name in names])

    async def _call_per_user(
        self, names: Sequence[str], call: Callable[[Sequence[str]], Awaitable[Sequence[Any]]]
    ) -> dict[str, Any]:
        """A command's replies by username. One call serves many users on one server, one user on a cluster."""
        groups = [*chunks(names, 1 if self.valkey.clustered else USERS_PER_CALL)]
        replies = await gather(*(call(group) for group in groups))
        return {
            name: reply
            for group, found in zip(groups, replies, strict=True)
            for name, reply in zip(group, found, strict=True)
        }

    async def _read_rows(self, names: Sequence[str], ids: Sequence[int]) -> dict[str, list[Arg]]:
        same = REACTION.alias()
        counted = (
            select(func.count())
            .where(
                same.c.username == REACTION.c.username,
                same.c.challenge_id == REACTION.c.challenge_id,
                self._readable("reaction", same),
            )
            .scalar_subquery()
        )
        columns = (REACTION.c.username, REACTION.c.post_id, REACTION.c.challenge_id)
        statement = select(*columns, counted.label("reactions")).where(REACTION.c.id.in_(ids))
        posts: dict[str, dict[int, int]] = {name: {} for name in names}
        challenges: dict[str, dict[int, int]] = {name: {} for name in names}
        async with self.sql.read() as tx:
            for row in await tx.execute(statement):
                posts[row.username][row.post_id] = 1
                challenges[row.username][row.challenge_id] = row.reactions
        return {name: _write_args("some", posts[name], challenges[name]) for name in names}

    async def _read_some(self, by_user: dict[str, list[ReactionRef]]) -> dict[str, list[Arg]]:
        posts = {post for rows in by_user.values() for _, post, _ in rows}
        challenges = {challenge for rows in by_user.values() for _, _, challenge in rows}
        liked, counts = await self._read_reactions(
            list(by_user), REACTION.c.post_id.in_(posts), REACTION.c.challenge_id.in_(challenges)
        )
        reactions: dict[str, list[Arg]] = {}
        for name, rows in by_user.items():
            is_liked = {post: int(post in liked[name]) for _, post, _ in rows}
            number = {challenge: counts[name].get(challenge, 0) for _, _, challenge in rows}
            reactions[name] = _write_args("some", is_liked, number)
        return reactions

    async def _read_all(self, names: Sequence[str]) -> dict[str, list[Arg]]:
        liked, counts = await self.read_reactions(names)
        return {name: _write_args("all", dict.fromkeys(liked[name], 1), counts[name]) for name in names}

    async def read_reactions(self, names: Sequence[str]) -> tuple[dict[str, set[int]], dict[str, dict[int, int]]]:
        """Users' reactions from SQL: the posts they reacted to, and the number of reactions by challenge."""
        return await self._read_reactions(names, true(), true())

    async def _read_reactions(
        self, names: Sequence[str], of_posts: ColumnElement[bool], of_challenges: ColumnElement[bool]
    ) -> tuple[dict[str, set[int]], dict[str, dict[int, int]]]:
        by_user = and_(REACTION.c.username.in_(names), self._readable("reaction", REACTION))
        posts = select(REACTION.c.username, REACTION.c.post_id).where(by_user, of_posts)
        counted = (
            select(REACTION.c.username, REACTION.c.challenge_id, func.count().label("reactions"))
            .where(by_user, of_challenges)
            .group_by(REACTION.c.username, REACTION.c.challenge_id)
        )
        liked: dict[str, set[int]] = {name: set() for name in names}
        counts: dict[str, dict[int, int]] = {name: {} for name in names}
        async with self.sql.read() as tx:
            for row in await tx.execute(posts):
                liked[row.username].add(row.post_id)
            for row in await tx.execute(counted):
                counts[row.username][row.challenge_id] = row.reactions
        return liked, counts

    async def _write_hash(self, key: str, ids: Sequence[int], values: dict[int, str]) -> None:
        commands: list[list[str | int]] = []
        if values:
            commands.append(["HSET", key, *(part for pair in values.items() for part in pair)])
        if removed := [id for id in ids if id not in values]:
            commands.append(["HDEL", key, *removed])
        if commands:
            await self.valkey.batch(commands)


def _write_args(scope: str, posts: Mapping[int, int], challenges: Mapping[int, int]) -> list[Arg]:
    """The arguments of `challenges_write_reactions` for one user, after the ticket."""
    values = [part for mapping in (posts, challenges) for pair in mapping.items() for part in pair]
    return [scope, len(posts), len(challenges), *values]
