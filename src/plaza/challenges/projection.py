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

from asyncio import gather
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, TypeVar

from sqlalchemy import ColumnElement, func, select, true

from plaza.challenges.keys import (
    CLG_NEIGHBOURS,
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
from plaza.core.valkey import Arg

T = TypeVar("T")

# Who reacted, to which post, in which challenge.
Reacted = tuple[str, int, int]
# What the verb of a person is told about each of these.
Read = Callable[[Sequence[str]], Awaitable[dict[str, list[Arg]]]]

# How many ids go into one statement or command: below SQLite's 32,766 variables and short for Valkey.
BATCH = 500
# A call for so many people takes Valkey a millisecond or two; others' commands wait no longer than that.
PEOPLE_A_CALL = 100


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
        """`on_clg_info` of these challenges. What has ended is no longer anything's neighbour."""
        for batch in batches(ids):
            async with self.sql.read() as tx:
                rows = (await tx.execute(select(CHALLENGE).where(CHALLENGE.c.id.in_(batch)))).all()
            going = {row.id: clg_info(row) for row in rows if row.ends_day > self.today()}
            await self._write_hash(ON_CLG_INFO(), batch, going)
            if ended := [id for id in batch if id not in going]:
                await self.valkey.batch([("UNLINK", CLG_NEIGHBOURS(id)) for id in ended])

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

    async def turn_day(self, today: int) -> None:
        """Make every slot of the pools that of one day, also where that lies back."""
        await self._write_pools([], {}, today, back=True)

    async def _write_pools(self, ids: Sequence[int], inside: dict[int, Any], today: int, *, back: bool) -> None:
        for category in range(1, CATEGORIES + 1):
            here = {id: row.day for id, row in inside.items() if row.category == category}
            # A post never changes its category; one that is not in this pool is taken out, in case it ever was.
            args = [part for id in ids for part in (id, here.get(id, ""))]
            await self.functions.run("challenges_pool", of_pool(category), today, self.max_post_age, int(back), *args)

    async def contributions(self, names: Collection[str], way: Literal["most", "exact"] = "most") -> None:
        """`user_contribution` of these people."""
        for batch in batches(names):
            said = await self._days_of(batch)
            await self._write_days(way, said)
            # Days become fewer when a name is given up. Had that happened before we wrote, ours was an old word.
            while fewer := await self._fewer_than(said):
                await self._write_days("exact", fewer)
                said = fewer

    async def _fewer_than(self, said: Mapping[str, list[int]]) -> dict[str, list[int]]:
        """The days of those who have fewer in some category than was said."""
        now = await self._days_of([name for name, days in said.items() if any(days)])
        return {name: days for name, days in now.items() if any(map(int.__lt__, days, said[name]))}

    async def _days_of(self, names: Sequence[str]) -> dict[str, list[int]]:
        days = {name: [0] * CATEGORIES for name in names}
        if not names:
            return days
        statement = (
            select(TRACKING.c.username, CHALLENGE.c.category, func.count().label("days"))
            .join(CHALLENGE, TRACKING.c.challenge_id == CHALLENGE.c.id)
            .where(TRACKING.c.username.in_(names))
            .group_by(TRACKING.c.username, CHALLENGE.c.category)
        )
        async with self.sql.read() as tx:
            for row in await tx.execute(statement):
                days[row.username][row.category - 1] = row.days
        return days

    async def _write_days(self, way: str, days: Mapping[str, list[int]]) -> None:
        args = [part for name, counts in days.items() for part in (name, ",".join(map(str, counts)))]
        await self.functions.run("challenges_contribution", [USER_CONTRIBUTION()], way, *args)

    async def standing(self, rows: Collection[Any]) -> None:
        """What follows from these rows of `reaction`, as far as they still stand: whoever removes one writes of it."""
        for batch in batches(rows):
            ids: dict[str, list[int]] = defaultdict(list)
            for row in batch:
                ids[row.username].append(row.id)

            async def read(names: Sequence[str], ids: dict[str, list[int]] = ids) -> dict[str, list[Arg]]:
                return await self._told_by(names, [id for name in names for id in ids[name]])

            await self._settle(list(ids), read)

    async def reactions(self, rows: Collection[Reacted]) -> None:
        """Whether these people's reactions to these posts stand, and how many they have in these challenges."""
        # Fewer at a time: a database may look for every one of these people at every one of these posts.
        for batch in batches(rows, BATCH // 5):
            of: dict[str, list[Reacted]] = defaultdict(list)
            for row in batch:
                of[row[0]].append(row)

            async def read(names: Sequence[str], of: dict[str, list[Reacted]] = of) -> dict[str, list[Arg]]:
                return await self._some_of({name: of[name] for name in names})

            await self._settle(list(of), read)

    async def people(self, names: Collection[str]) -> None:
        """All reactions of these people, whatever Valkey had of them."""
        # Fewer at a time, for each has many: others on the loop wait while their rows are read.
        for batch in batches(names, PEOPLE_A_CALL):
            await self._settle(batch, self._all_of)

    async def _settle(self, names: Sequence[str], read: Read) -> None:
        """Take tickets, read, write; and again for those for whom somebody has written who read later."""
        waiting = list(names)
        while waiting:  # not for ever: each refusal means that another one is done
            tickets = await self._of_each(waiting, self._take_tickets)
            says = await read(waiting)

            async def write(
                names: Sequence[str], tickets: Mapping[str, Any] = tickets, says: Mapping[str, list[Arg]] = says
            ) -> Any:
                keys = [key for name in names for key in of_person(name)]
                args = [part for name in names for part in (tickets[name], *says[name])]
                return await self.functions.run("challenges_people", keys, *args)

            written = await self._of_each(waiting, write)
            waiting = [name for name in waiting if not written[name]]

    async def _take_tickets(self, names: Sequence[str]) -> Any:
        return await self.functions.run("challenges_tickets", [of_person(name)[0] for name in names])

    async def _of_each(
        self, names: Sequence[str], call: Callable[[Sequence[str]], Awaitable[Sequence[Any]]]
    ) -> dict[str, Any]:
        """A call's answers by name. On a cluster everybody lives elsewhere; on one server a call serves many."""
        groups = [*batches(names, 1 if self.valkey.clustered else PEOPLE_A_CALL)]
        answers = await gather(*(call(group) for group in groups))
        return {
            name: answer
            for group, found in zip(groups, answers, strict=True)
            for name, answer in zip(group, found, strict=True)
        }

    async def _told_by(self, names: Sequence[str], ids: Sequence[int]) -> dict[str, list[Arg]]:
        same = REACTION.alias()
        counted = (
            select(func.count())
            .where(same.c.username == REACTION.c.username, same.c.challenge_id == REACTION.c.challenge_id)
            .scalar_subquery()
        )
        shown = (POST.c.day, POST.c.is_break, CHALLENGE.c.is_public, CHALLENGE.c.ends_day)
        statement = (
            select(REACTION.c.username, REACTION.c.post_id, REACTION.c.challenge_id, counted.label("reactions"), *shown)
            .join(POST, REACTION.c.post_id == POST.c.id)
            .join(CHALLENGE, REACTION.c.challenge_id == CHALLENGE.c.id)
            .where(REACTION.c.id.in_(ids))
        )
        today = self.today()
        posts: dict[str, dict[int, int]] = {name: {} for name in names}
        challenges: dict[str, dict[int, int]] = {name: {} for name in names}
        async with self.sql.read() as tx:
            for row in await tx.execute(statement):
                posts[row.username][row.post_id] = int(in_pool(row, today, self.max_post_age))
                challenges[row.username][row.challenge_id] = row.reactions if row.ends_day > today else 0
        return {name: _told("some", posts[name], challenges[name]) for name in names}

    async def _some_of(self, of: dict[str, list[Reacted]]) -> dict[str, list[Arg]]:
        posts = {post for rows in of.values() for _, post, _ in rows}
        challenges = {challenge for rows in of.values() for _, _, challenge in rows}
        liked, counts = await self._read_reactions(
            list(of), REACTION.c.post_id.in_(posts), REACTION.c.challenge_id.in_(challenges)
        )
        says: dict[str, list[Arg]] = {}
        for name, rows in of.items():
            about = {post for _, post, _ in rows}
            standing = {post: int(post in liked[name]) for post in about}
            says[name] = _told("some", standing, {place: counts[name].get(place, 0) for _, _, place in rows})
        return says

    async def _all_of(self, names: Sequence[str]) -> dict[str, list[Arg]]:
        liked, counts = await self.read_reactions(names)
        return {name: _told("all", dict.fromkeys(liked[name], 1), counts[name]) for name in names}

    async def read_reactions(self, names: Sequence[str]) -> tuple[dict[str, set[int]], dict[str, dict[int, int]]]:
        """What SQL says of all reactions of these people: posts in the pool, and counts by challenge that goes on."""
        return await self._read_reactions(names, true(), true())

    async def _read_reactions(
        self, names: Sequence[str], of_posts: ColumnElement[bool], of_challenges: ColumnElement[bool]
    ) -> tuple[dict[str, set[int]], dict[str, dict[int, int]]]:
        """The posts in the pool that people reacted to; how often they did, by challenge that goes on."""
        today = self.today()
        oldest = today - self.max_post_age
        in_posts = (
            select(
                REACTION.c.username, POST.c.id, POST.c.day, POST.c.is_break, CHALLENGE.c.is_public, CHALLENGE.c.ends_day
            )
            .select_from(REACTION)
            .join(POST, REACTION.c.post_id == POST.c.id)
            .join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
            .where(REACTION.c.username.in_(names), POST.c.day > oldest, of_posts)
        )
        counted = (
            select(REACTION.c.username, REACTION.c.challenge_id, func.count().label("reactions"))
            .join(CHALLENGE, REACTION.c.challenge_id == CHALLENGE.c.id)
            .where(REACTION.c.username.in_(names), CHALLENGE.c.ends_day > today, of_challenges)
            .group_by(REACTION.c.username, REACTION.c.challenge_id)
        )
        liked: dict[str, set[int]] = {name: set() for name in names}
        counts: dict[str, dict[int, int]] = {name: {} for name in names}
        async with self.sql.read() as tx:
            for row in await tx.execute(in_posts):
                if in_pool(row, today, self.max_post_age):
                    liked[row.username].add(row.id)
            for row in await tx.execute(counted):
                counts[row.username][row.challenge_id] = row.reactions
        return liked, counts

    async def _write_hash(self, key: str, ids: Sequence[int], values: dict[int, str]) -> None:
        commands: list[list[str | int]] = []
        if values:
            commands.append(["HSET", key, *(part for pair in values.items() for part in pair)])
        if gone := [id for id in ids if id not in values]:
            commands.append(["HDEL", key, *gone])
        if commands:
            await self.valkey.batch(commands)


def _told(way: str, posts: Mapping[int, int], challenges: Mapping[int, int]) -> list[Arg]:
    """What the verb of people is told of one, behind the ticket."""
    pairs = [part for told in (posts, challenges) for pair in told.items() for part in pair]
    return [way, len(posts), len(challenges), *pairs]
