"""Challenges under way: members, days they kept at it, posts and reactions.

The tables are the record, so they are written in bulk, each row under a name of its own that a second run finds taken.
Then Valkey is told what the tables say, as the daily job would.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from sqlalchemy import Table, select
from sqlalchemy.ext.asyncio import AsyncConnection

from plaza.challenges.model import CATEGORY_NAMES, day_number
from plaza.challenges.projection import BATCH, ChallengeProjections
from plaza.challenges.tables import CHALLENGE, MEMBER, POST, REACTION, TRACKING
from plaza.core.sequences import chunks
from plaza.core.sql import Sql
from plaza.demo.generator import HOUR_MS, CommunityPlan
from plaza.demo.phrases import bank, fill, topic
from plaza.demo.users import DAY_MS

MOST_MEMBERS: Final = 24
# How likely somebody keeps at it on a day.
KEPT: Final = 0.72

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class GeneratedChallenge:
    """A challenge that people took up; `members` are their numbers, and `joined` the day of each."""

    operation: str
    row: dict[str, Any]
    members: list[int]
    joined: list[int]
    dice: Random


class ChallengesLoader:
    def __init__(self, sql: Sql, projections: ChallengeProjections, plan: CommunityPlan, count: int) -> None:
        self._sql = sql
        self._projections = projections
        self._plan = plan
        self._count = count
        self._today = day_number(plan.anchor_ms)

    async def load(self, batch: int, size: int) -> int:
        taken = [self._taken(n) for n in range(batch * size, min((batch + 1) * size, self._count))]
        async with self._sql.begin() as tx:
            ids = await self._keep(tx, CHALLENGE, [one.row for one in taken])
            members = [row for one in taken for row in self._members(one, ids)]
            tracked = [row for one in taken for row in self._tracked(one, ids)]
            await self._insert(tx, MEMBER, members)
            await self._insert(tx, TRACKING, tracked)
            told = [(one, self._posts(one, ids)) for one in taken]
            posts = await self._keep(tx, POST, [row for _, rows in told for row in rows])
            reactions = [row for one, rows in told for row in self._reactions(one, rows, posts)]
            await self._insert(tx, REACTION, reactions)
        await self._projections.update_challenges(list(ids.values()))
        await self._projections.update_posts(list(posts.values()))
        await self._projections.update_contributions({row["username"] for row in tracked})
        await self._projections.rewrite_users({row["username"] for row in reactions})
        return len(taken) + len(members) + len(tracked) + len(posts) + len(reactions)

    def _taken(self, n: int) -> GeneratedChallenge:
        every = bank("challenges")["challenges"]
        title, category, public, days, ago, about, creator = every[n % len(every)]
        people, dice = self._plan.people, Random(f"{self._plan.name}/{self._plan.people.size}/challenge/{n}")
        if self._plan.numbered:
            creator = people.name(dice.randrange(people.size))
            title = f"{title}, round {n // len(every) + 2}"
        began = self._plan.anchor_ms - ago * DAY_MS
        operation = _operation(self._plan, "challenge", n)
        row = {
            "title": title, "category": category, "is_public": public, "duration": days, "creator": creator,
            "created_ms": began, "ends_day": day_number(began) + days, "operation": operation,
        }  # fmt: skip
        some = [int(people.size * dice.random()) for _ in range(MOST_MEMBERS)]
        members = sorted({m for m in some if people.topic(m) is topic(about) or dice.random() < 0.45})
        joined = [day_number(began) + min(ago, int(dice.expovariate(0.4))) for _ in members]
        return GeneratedChallenge(operation, row, members, joined, dice)

    def _members(self, one: GeneratedChallenge, ids: dict[str, int]) -> Rows:
        return [
            {"challenge_id": ids[one.operation], "username": self._plan.people.name(n), "joined_day": day}
            for n, day in zip(one.members, one.joined, strict=True)
        ]

    def _tracked(self, one: GeneratedChallenge, ids: dict[str, int]) -> Rows:
        last = min(self._today, one.row["ends_day"] - 1)
        return [
            {"challenge_id": ids[one.operation], "username": self._plan.people.name(n), "day": day}
            for n, joined in zip(one.members, one.joined, strict=True)
            for day in range(joined, last + 1)
            if one.dice.random() < KEPT
        ]

    def _posts(self, one: GeneratedChallenge, ids: dict[str, int]) -> Rows:
        """What members tell, oldest first: the order in which posts get their ids."""
        words, dice = bank("challenges"), one.dice
        sentences = list(words["posts"][CATEGORY_NAMES[one.row["category"] - 1]])
        dice.shuffle(sentences)
        who = [dice.randrange(len(one.members)) for _ in sentences] if one.members else []
        rows = []
        for sentence, at in zip(sentences, who, strict=False):
            is_break = dice.random() < 0.07
            text = dice.choice(words["posts"]["break"]) if is_break else fill(sentence, words["slots"], dice)
            earliest = one.joined[at] * DAY_MS + 7 * HOUR_MS
            created = min(round(dice.uniform(earliest, self._plan.anchor_ms)), self._plan.anchor_ms - 1)
            rows.append({
                "challenge_id": ids[one.operation], "username": self._plan.people.name(one.members[at]),
                "text": text, "is_break": is_break, "created_ms": created, "day": day_number(created),
            })  # fmt: skip
        rows.sort(key=lambda row: row["created_ms"])
        return [{**row, "operation": _operation(self._plan, one.operation, n)} for n, row in enumerate(rows)]

    def _reactions(self, one: GeneratedChallenge, told: Rows, posts: dict[str, int]) -> Rows:
        """Who reacted: anybody, or in a private challenge its members."""
        rows = []
        for post in told:
            count = 0 if post["is_break"] else int(one.dice.expovariate(0.25))
            for name in sorted({self._anyone(one) for _ in range(count)} - {post["username"]}):
                created = min(post["created_ms"] + HOUR_MS, self._plan.anchor_ms)
                id, challenge = posts[post["operation"]], post["challenge_id"]
                rows.append({"post_id": id, "challenge_id": challenge, "username": name, "created_ms": created})
        return rows

    def _anyone(self, one: GeneratedChallenge) -> str:
        people = self._plan.people
        return people.name(one.dice.randrange(people.size) if one.row["is_public"] else one.dice.choice(one.members))

    async def _keep(self, tx: AsyncConnection, table: Table, rows: Rows) -> dict[str, int]:
        """Write rows that have an operation, and give their ids by it."""
        await self._insert(tx, table, rows)
        ids: dict[str, int] = {}
        for some in chunks([row["operation"] for row in rows], BATCH):
            found = await tx.execute(select(table.c.operation, table.c.id).where(table.c.operation.in_(some)))
            ids |= {row.operation: row.id for row in found}
        return ids

    async def _insert(self, tx: AsyncConnection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            await tx.execute(self._sql.insert(table).on_conflict_do_nothing(), list(rows))


def _operation(plan: CommunityPlan, what: str, n: int) -> str:
    """The name of a row, which a second run finds taken."""
    return hashlib.sha256(f"{plan.name}/{plan.people.size}/{what}/{n}".encode()).hexdigest()[:48]
