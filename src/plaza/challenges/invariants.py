"""Compares what Valkey holds of challenges with the SQL tables, for the audit.

Five checks, each from an id to the expected value: a challenge's info, a post's place in the pool, a user's tracked
days, a user's totals in each challenge, a user's reactions. Ids are read page by page from the tables and then from
Valkey, so that missing and surplus values are both found. Requests write SQL first and Valkey right after it, so a
difference is reported only if it is still there after several reads. What the daily job has yet to read is not a
difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import delete, func, or_, select, true

from plaza.challenges import keys as k
from plaza.challenges.daily_job.runner import DailyJob
from plaza.challenges.daily_job.source_tables import JobState
from plaza.challenges.member_totals import MemberRef
from plaza.challenges.model import CATEGORIES, Totals, format_clg_info, is_id
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.queries import log_rows
from plaza.challenges.readable_rows import BATCH
from plaza.challenges.tables import (
    CHALLENGE,
    DELETE_LOG,
    MEMBER,
    POST,
    REACTION,
    REFERENCES,
    TABLES,
    TRACKING,
    pool_condition,
)
from plaza.core.invariants import Violation
from plaza.core.sequences import chunks
from plaza.core.valkey import ReplyError, scan_pages

# How often a difference must be seen, and the pause in between: longer than a busy process takes from SQL to Valkey.
READS = 6
PAUSE_SECONDS = 0.5

Values = Mapping[str, Any]
Difference = tuple[Any, Any]  # the expected and the stored value


class ProjectionCheck(Protocol):
    """Compares one kind of derived value with the tables."""

    name: str  # the repair command, followed by an id
    family: str

    def pages(self) -> AsyncIterator[list[str]]:
        """Yield the ids in SQL, then those in Valkey."""

    async def compare(self, ids: Sequence[str]) -> tuple[Values, Values]:
        """The expected and the stored values of these ids."""

    async def pending(self, ids: Sequence[str], last_run: JobState) -> set[str]:
        """The ids for which the daily job has rows to read."""

    async def repair(self, id: str) -> None: ...


class _Reader:
    """Reads SQL and Valkey for the checks."""

    def __init__(self, projections: ChallengeProjections) -> None:
        self.projections = projections
        self.sql = projections.sql
        self.valkey = projections.valkey

    async def rows(self, statement: Any) -> list[Any]:
        async with self.sql.read() as tx:
            return list((await tx.execute(statement)).all())

    async def ids(self, column: Any, where: Any, first: Any) -> AsyncIterator[list[str]]:
        """Yield the distinct values of a column in order, page by page."""
        last = first
        while True:
            page = select(column).distinct().where(where, column > last).order_by(column).limit(BATCH)
            found = [row[0] for row in await self.rows(page)]
            if not found:
                return
            yield [str(value) for value in found]
            last = found[-1]

    def scan(self, command: str, key: str) -> AsyncIterator[list[str]]:
        return scan_pages(self.valkey, command, key, count=BATCH)


class ChallengeInfoCheck(_Reader):
    name, family = "challenge", k.ON_CLG_INFO.pattern

    async def pages(self) -> AsyncIterator[list[str]]:
        async for ids in self.ids(CHALLENGE.c.id, CHALLENGE.c.ends_day > self.projections.today(), 0):
            yield ids
        async for flat in self.scan("HSCAN", k.ON_CLG_INFO()):
            yield _valid_ids(flat[::2])

    async def compare(self, ids: Sequence[str]) -> tuple[Values, Values]:
        stored = await self.valkey.call("HMGET", k.ON_CLG_INFO(), *ids)
        ongoing = select(CHALLENGE).where(
            CHALLENGE.c.id.in_(map(int, ids)), CHALLENGE.c.ends_day > self.projections.today()
        )
        expected = {str(row.id): format_clg_info(row) for row in await self.rows(ongoing)}
        return expected, _existing(ids, stored)

    async def pending(self, ids: Sequence[str], last_run: JobState) -> set[str]:
        new = select(CHALLENGE.c.id).where(CHALLENGE.c.id > last_run.last_id("clg"), CHALLENGE.c.id.in_(map(int, ids)))
        return {str(row.id) for row in await self.rows(new)}

    async def repair(self, id: str) -> None:
        await self.projections.update_challenges([int(id)])


class PoolCheck(_Reader):
    name, family = "post", k.POST_CLG_PAIR.pattern

    async def pages(self) -> AsyncIterator[list[str]]:
        recent = POST.c.day > self.projections.today() - self.projections.max_post_age
        async for ids in self.ids(POST.c.id, recent, 0):
            yield ids
        async for flat in self.scan("HSCAN", k.POST_CLG_PAIR()):
            yield _valid_ids(flat[::2])
        for category in range(1, CATEGORIES + 1):
            async for flat in self.scan("ZSCAN", k.RECENT_POSTS(category)):
                yield _valid_ids(flat[::2])

    async def compare(self, ids: Sequence[str]) -> tuple[Values, Values]:
        pools = [k.RECENT_POSTS(category) for category in range(1, CATEGORIES + 1)]
        pairs, *scores = await self.valkey.batch(
            [("HMGET", k.POST_CLG_PAIR(), *ids), *(("ZMSCORE", pool, *ids) for pool in pools)]
        )
        stored = {
            id: (pairs[i], [found[i] for found in scores])
            for i, id in enumerate(ids)
            if pairs[i] is not None or any(found[i] is not None for found in scores)
        }
        return await self._expected(ids), stored

    async def _expected(self, ids: Sequence[str]) -> Values:
        today, age = self.projections.today(), self.projections.max_post_age
        rows = await self.rows(
            select(POST.c.id, POST.c.challenge_id, POST.c.day, CHALLENGE.c.category)
            .join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
            .where(POST.c.id.in_(map(int, ids)), pool_condition(today, age))
        )
        return {
            str(row.id): (
                str(row.challenge_id),
                [float(row.day % age) if row.category == n else None for n in range(1, CATEGORIES + 1)],
            )
            for row in rows
        }

    async def pending(self, ids: Sequence[str], last_run: JobState) -> set[str]:
        new = select(POST.c.id).where(POST.c.id > last_run.last_id("post"), POST.c.id.in_(map(int, ids)))
        deleted = select(DELETE_LOG.c.row_id).where(
            DELETE_LOG.c.table_name == "post", DELETE_LOG.c.row_id.in_(map(int, ids))
        )
        return {str(row[0]) for row in [*await self.rows(new), *await self.rows(deleted)]}

    async def repair(self, id: str) -> None:
        await self.projections.update_posts([int(id)])


class ContributionCheck(_Reader):
    name, family = "tracking", k.USER_CONTRIBUTION.pattern

    async def pages(self) -> AsyncIterator[list[str]]:
        async for names in self.ids(TRACKING.c.username, true(), ""):
            yield names
        async for flat in self.scan("HSCAN", k.USER_CONTRIBUTION()):
            yield flat[::2]

    async def compare(self, ids: Sequence[str]) -> tuple[Values, Values]:
        stored = await self.valkey.call("HMGET", k.USER_CONTRIBUTION(), *ids)
        rows = await self.rows(
            select(TRACKING.c.username, CHALLENGE.c.category, func.count().label("days"))
            .join(CHALLENGE, TRACKING.c.challenge_id == CHALLENGE.c.id)
            .where(TRACKING.c.username.in_(ids))
            .group_by(TRACKING.c.username, CHALLENGE.c.category)
        )
        days: dict[str, list[int]] = {}
        for row in rows:
            days.setdefault(row.username, [0] * CATEGORIES)[row.category - 1] = row.days
        return {name: ",".join(map(str, five)) for name, five in days.items()}, _existing(ids, stored)

    async def pending(self, ids: Sequence[str], last_run: JobState) -> set[str]:
        return await _users_pending(self, TRACKING, "tracking", ids, last_run)

    async def repair(self, id: str) -> None:
        await self.projections.contributions.update([id])


class TotalsCheck(_Reader):
    """Compares what `member` says of a user with the tracked days. Both are in SQL."""

    name, family = "totals", k.DB_LEN.pattern

    def pages(self) -> AsyncIterator[list[str]]:
        return self.ids(MEMBER.c.username, true(), "")

    async def compare(self, ids: Sequence[str]) -> tuple[Values, Values]:
        correct, stored = await self.projections.totals.read(ids)
        return _by_user(correct, ids), _by_user(stored, ids)

    async def pending(self, ids: Sequence[str], last_run: JobState) -> set[str]:
        new = await _users_pending(self, MEMBER, "mmbr", ids, last_run)
        return new | await _users_pending(self, TRACKING, "tracking", ids, last_run)

    async def repair(self, id: str) -> None:
        await self.projections.totals.update([id])


class ReactionsCheck(_Reader):
    name, family = "reactions", k.LIKED_POSTS.pattern

    async def pages(self) -> AsyncIterator[list[str]]:
        async for names in self.ids(REACTION.c.username, true(), ""):
            yield names
        for key in (k.LIKED_POSTS, k.CLGS_PREFERENCE):
            for node in self.valkey.primaries():
                async for found in scan_pages(node, "SCAN", match=f"*{key.pattern.partition('>')[2]}", count=BATCH):
                    matches = [k.CATALOGUE.match(name) for name in found]
                    yield [match.parts[0] for match in matches if match is not None and match.key is key]

    async def compare(self, ids: Sequence[str]) -> tuple[Values, Values]:
        replies = await self.valkey.batch([command for name in ids for command in _reaction_commands(name)])
        liked, counts = await self.projections.reactions.read(ids)
        stored = {
            name: (set(replies[2 * i]), {id: float(n) for id, n in replies[2 * i + 1]})
            for i, name in enumerate(ids)
            if replies[2 * i] or replies[2 * i + 1]
        }
        expected = {
            name: ({str(id) for id in liked[name]}, {str(id): float(n) for id, n in counts[name].items()})
            for name in ids
            if liked[name] or counts[name]
        }
        return expected, stored

    async def pending(self, ids: Sequence[str], last_run: JobState) -> set[str]:
        return await _users_pending(self, REACTION, "reaction", ids, last_run)

    async def repair(self, id: str) -> None:
        await self.projections.reactions.rewrite_users([id])


class ChallengesInspector:
    """The audit's inspector of challenges: compares Valkey with the SQL tables."""

    family = "challenges"
    checks_valkey = True

    def __init__(self, projections: ChallengeProjections, daily_job: DailyJob) -> None:
        self._projections = projections
        self._daily_job = daily_job
        self._reader = _Reader(projections)
        self._checks: dict[str, ProjectionCheck] = {
            check.name: check
            for check in (
                ChallengeInfoCheck(projections),
                PoolCheck(projections),
                ContributionCheck(projections),
                TotalsCheck(projections),
                ReactionsCheck(projections),
            )
        }

    async def inspect(self) -> AsyncIterator[Violation]:
        """Yield orphaned rows, and differences that persist.

        Nothing is compared on a day on which the daily job has not run yet.
        """
        async for violation in self._check_references():
            yield violation
        last_run = await JobState.read(self._projections.valkey)
        if last_run.day != self._projections.today():
            return
        async for violation in self._check_job(last_run):
            yield violation
        for check in self._checks.values():
            suspects: dict[str, Difference] = {}
            try:
                async for ids in check.pages():
                    suspects |= await self._differing(check, ids)
                for violation in await self._confirmed(check, suspects, last_run):
                    yield violation
            except ReplyError:
                continue  # a key of another type, which the audit reports by itself

    async def repair(self, violation: Violation) -> None:
        """Repair one violation from the tables."""
        name, _, id = violation.repair.partition(" ")
        if name == "roll":
            await self._daily_job.run()
        elif name == "orphan":
            table, _, row = id.partition(" ")
            await self._delete_orphan(table, int(row))
        else:
            await self._checks[name].repair(id)

    async def _check_references(self) -> AsyncIterator[Violation]:
        """Yield rows whose parent row is missing. SQLite lets a client that leaves foreign keys off delete a parent."""
        for name, column, parent in REFERENCES:
            orphaned = ~select(parent.c.id).where(parent.c.id == column).exists()
            async for ids in self._reader.ids(column.table.c.id, orphaned, 0):
                for id in ids:
                    says = f"row {id} of table {column.table.name} refers to a missing {parent.name}"
                    yield Violation(k.DB_LEN.pattern, "orphan", k.DB_LEN(), f"{name} {id}", says, f"orphan {name} {id}")

    async def _delete_orphan(self, name: str, id: int) -> None:
        """Delete a row if its parent is still missing, and update what is derived from it."""
        table = TABLES[name]
        orphaned = or_(
            *(
                ~select(parent.c.id).where(parent.c.id == column).exists()
                for child, column, parent in REFERENCES
                if child == name
            )
        )
        async with self._projections.sql.begin() as tx:
            rows = (await tx.execute(delete(table).where(table.c.id == id, orphaned).returning(table))).all()
            await log_rows(tx, DELETE_LOG, name, rows)
        if name == "post":
            await self._projections.update_posts([row.id for row in rows])
        elif name == "reaction":
            await self._projections.reactions.update([(row.username, row.post_id, row.challenge_id) for row in rows])
        elif name == "tracking":
            await self._projections.contributions.update([row.username for row in rows])

    async def _differing(self, check: ProjectionCheck, ids: Sequence[str]) -> dict[str, Difference]:
        expected, stored = await check.compare(ids) if ids else ({}, {})
        both = {id: (expected.get(id), stored.get(id)) for id in ids}
        return {id: (sql, valkey) for id, (sql, valkey) in both.items() if sql != valkey}

    async def _confirmed(
        self, check: ProjectionCheck, suspects: dict[str, Difference], last_run: JobState
    ) -> list[Violation]:
        """Return the differences that persist. All are read again after the same pauses: a failover causes many."""
        for _ in range(READS - 1):
            if not suspects:
                return []
            await asyncio.sleep(PAUSE_SECONDS)
            again: dict[str, Difference] = {}
            for ids in chunks(sorted(suspects), BATCH):
                pending = await check.pending(ids, last_run)
                again |= await self._differing(check, [id for id in ids if id not in pending])
            suspects = again
        if self._projections.today() != last_run.day:
            return []  # a new day has begun meanwhile
        return [
            Violation(
                check.family,
                "record",
                check.family,
                id,
                f"is {stored} for {id}, but the SQL tables give {expected}",
                f"{check.name} {id}",
            )
            for id, (expected, stored) in suspects.items()
        ]

    async def _check_job(self, last_run: JobState) -> AsyncIterator[Violation]:
        """Check what the last run wrote: its parameters and row counts."""
        age, day = self._projections.max_post_age, last_run.day
        if last_run.params != {
            "max_post_age": str(age),
            "distinct_category": str(CATEGORIES),
            "day_index": str(day % age),
        }:
            yield Violation(
                k.RS_PARAM.pattern, "record", k.RS_PARAM(), "", f"has {dict(last_run.params)} on day {day}", "roll"
            )
        for name in TABLES:
            for attempt in range(READS):
                if attempt:
                    await asyncio.sleep(PAUSE_SECONDS)
                last_run = await JobState.read(self._projections.valkey)
                expected = await self._rows_counted(name, last_run.counted_id(name))
                if last_run.counts.get(name) == str(expected):
                    break
            else:
                says = f"{name} is {last_run.counts.get(name)}, but there were {expected} rows"
                yield Violation(k.DB_LEN.pattern, "record", k.DB_LEN(), name, says, "roll")

    async def _rows_counted(self, name: str, up_to: int) -> int:
        """The rows that the last run must have counted: those that exist and those that Plaza has deleted since."""
        table = TABLES[name]
        existing = select(func.count()).select_from(table).where(table.c.id <= up_to).scalar_subquery()
        removed = select(func.count()).select_from(DELETE_LOG)
        removed = removed.where(DELETE_LOG.c.table_name == name, DELETE_LOG.c.row_id <= up_to)
        (row,) = await self._reader.rows(select(existing, removed.scalar_subquery()))
        return int(row[0]) + int(row[1])


async def _users_pending(reader: _Reader, table: Any, name: str, ids: Sequence[str], last_run: JobState) -> set[str]:
    new = select(table.c.username).where(table.c.id > last_run.last_id(name), table.c.username.in_(ids))
    deleted = select(DELETE_LOG.c.username).where(DELETE_LOG.c.table_name == name, DELETE_LOG.c.username.in_(ids))
    return {row.username for row in [*await reader.rows(new), *await reader.rows(deleted)]}


def _by_user(totals: Mapping[MemberRef, Totals], names: Sequence[str]) -> Values:
    found: dict[str, dict[int, Totals]] = {name: {} for name in names}
    for (id, name), value in totals.items():
        found[name][id] = value
    return found


def _reaction_commands(name: str) -> list[Sequence[Any]]:
    return [("SMEMBERS", k.LIKED_POSTS(name)), ("ZRANGE", k.CLGS_PREFERENCE(name), 0, -1, "WITHSCORES")]


def _existing(ids: Sequence[str], values: Sequence[Any]) -> Values:
    return {id: value for id, value in zip(ids, values, strict=True) if value is not None}


def _valid_ids(ids: Sequence[str]) -> list[str]:
    """The valid ids among these; the key's own declaration covers the rest."""
    return [id for id in ids if is_id(id)]
