"""Writes users' reactions, and their number in each challenge, from SQL.

A writer takes a ticket *before* it reads. If a later ticket has written already, the command rejects the write, and the
writer reads again.
"""

from __future__ import annotations

from asyncio import gather
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, func, select, true

from plaza.challenges.keys import user_keys
from plaza.challenges.readable_rows import BATCH, ReadableRows
from plaza.challenges.tables import REACTION
from plaza.core.functions import Functions
from plaza.core.sequences import chunks
from plaza.core.sql import Sql
from plaza.core.valkey import Arg

# Username, post id, challenge id.
ReactionRef = tuple[str, int, int]
# Reads users' reactions from SQL; returns the arguments of `challenges_write_reactions` for each user.
ReadReactions = Callable[[Sequence[str]], Awaitable[dict[str, list[Arg]]]]

# Users per call on one server. Such a call keeps Valkey busy for one or two milliseconds.
USERS_PER_CALL = 100


class ReactionProjection:
    """The reactions of users."""

    def __init__(self, sql: Sql, functions: Functions, readable: ReadableRows) -> None:
        self._sql = sql
        self._functions = functions
        self._valkey = functions.valkey
        self._readable = readable

    async def add(self, rows: Collection[Any]) -> None:
        """Write these rows of `reaction` if they still exist; a request that deletes one updates Valkey itself."""
        for batch in chunks(rows, BATCH):
            ids: dict[str, list[int]] = defaultdict(list)
            for row in batch:
                ids[row.username].append(row.id)

            async def read(names: Sequence[str], ids: dict[str, list[int]] = ids) -> dict[str, list[Arg]]:
                return await self._read_rows(names, [id for name in names for id in ids[name]])

            await self._write_reactions(list(ids), read)

    async def update(self, rows: Collection[ReactionRef]) -> None:
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
                return await self._functions.run("challenges_write_reactions", keys, *args)

            written = await self._call_per_user(waiting, write)
            waiting = [name for name in waiting if not written[name]]

    async def _take_tickets(self, names: Sequence[str]) -> Any:
        return await self._functions.run("challenges_take_tickets", [user_keys(name)[0] for name in names])

    async def _call_per_user(
        self, names: Sequence[str], call: Callable[[Sequence[str]], Awaitable[Sequence[Any]]]
    ) -> dict[str, Any]:
        """A command's replies by username. One call serves many users on one server, one user on a cluster."""
        groups = [*chunks(names, 1 if self._valkey.clustered else USERS_PER_CALL)]
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
                self._readable.condition("reaction", same),
            )
            .scalar_subquery()
        )
        columns = (REACTION.c.username, REACTION.c.post_id, REACTION.c.challenge_id)
        statement = select(*columns, counted.label("reactions")).where(REACTION.c.id.in_(ids))
        posts: dict[str, dict[int, int]] = {name: {} for name in names}
        challenges: dict[str, dict[int, int]] = {name: {} for name in names}
        async with self._sql.read() as tx:
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
        liked, counts = await self.read(names)
        return {name: _write_args("all", dict.fromkeys(liked[name], 1), counts[name]) for name in names}

    async def read(self, names: Sequence[str]) -> tuple[dict[str, set[int]], dict[str, dict[int, int]]]:
        """Users' reactions from SQL: the posts they reacted to, and the number of reactions by challenge."""
        return await self._read_reactions(names, true(), true())

    async def _read_reactions(
        self, names: Sequence[str], of_posts: ColumnElement[bool], of_challenges: ColumnElement[bool]
    ) -> tuple[dict[str, set[int]], dict[str, dict[int, int]]]:
        by_user = and_(REACTION.c.username.in_(names), self._readable.condition("reaction", REACTION))
        posts = select(REACTION.c.username, REACTION.c.post_id).where(by_user, of_posts)
        counted = (
            select(REACTION.c.username, REACTION.c.challenge_id, func.count().label("reactions"))
            .where(by_user, of_challenges)
            .group_by(REACTION.c.username, REACTION.c.challenge_id)
        )
        liked: dict[str, set[int]] = {name: set() for name in names}
        counts: dict[str, dict[int, int]] = {name: {} for name in names}
        async with self._sql.read() as tx:
            for row in await tx.execute(posts):
                liked[row.username].add(row.post_id)
            for row in await tx.execute(counted):
                counts[row.username][row.challenge_id] = row.reactions
        return liked, counts


def _write_args(scope: str, posts: Mapping[int, int], challenges: Mapping[int, int]) -> list[Arg]:
    """The arguments of `challenges_write_reactions` for one user, after the ticket."""
    values = [part for mapping in (posts, challenges) for pair in mapping.items() for part in pair]
    return [scope, len(posts), len(challenges), *values]
