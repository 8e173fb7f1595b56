"""Loads challenges with members, tracked days, posts and reactions.

The SQL tables are the source data. They are written in bulk; each row has a unique operation id, so a second run writes
nothing. Then the projections in Valkey are updated, as the daily job does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from sqlalchemy import Table, select

from plaza.challenges.events import (
    STREAM,
    ChallengeCreated,
    ChallengeJoined,
    ChallengePosted,
    ChallengeReacted,
    ChallengeTracked,
)
from plaza.challenges.model import CATEGORY_NAMES, day_number, iso_date
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.readable_rows import BATCH
from plaza.challenges.tables import CHALLENGE, MEMBER, POST, REACTION, TRACKING
from plaza.core.async_engine import AsyncConnection
from plaza.core.events import EventData
from plaza.core.sequences import chunks
from plaza.core.sql import Sql
from plaza.core.sql_events import add_events
from plaza.demo.generator import HOUR_MS, CommunityPlan
from plaza.demo.phrases import fill_slots, read_texts, topic
from plaza.demo.users import DAY_MS

MAX_MEMBERS: Final = 24
# The share of days that a member tracks.
TRACKED_SHARE: Final = 0.72

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class GeneratedChallenge:
    """A challenge; `members` are the numbers of users, `joined` the day each joined, and `said` who says what."""

    operation: str
    row: dict[str, Any]
    members: list[int]
    joined: list[int]
    said: list[tuple[int, str]]
    rng: Random


class ChallengesLoader:
    def __init__(self, sql: Sql, projections: ChallengeProjections, plan: CommunityPlan, count: int) -> None:
        self._sql = sql
        self._projections = projections
        self._plan = plan
        self._count = count
        self._today = day_number(plan.anchor_ms)

    async def load(self, batch: int, size: int) -> int:
        generated = [self._generate(n) for n in range(batch * size, min((batch + 1) * size, self._count))]
        async with self._sql.begin() as tx:
            known = await self._ids(tx, CHALLENGE, [challenge.operation for challenge in generated])
            ids = await self._insert_and_get_ids(tx, CHALLENGE, [challenge.row for challenge in generated])
            members = [row for challenge in generated for row in self._members(challenge, ids)]
            tracked = [row for challenge in generated for row in self._tracked(challenge, ids)]
            await self._insert(tx, MEMBER, members)
            await self._insert(tx, TRACKING, tracked)
            posts_by_challenge = [(challenge, self._posts(challenge, ids)) for challenge in generated]
            posts = await self._insert_and_get_ids(tx, POST, [row for _, rows in posts_by_challenge for row in rows])
            reactions = [
                row for challenge, rows in posts_by_challenge for row in self._reactions(challenge, rows, posts)
            ]
            await self._insert(tx, REACTION, reactions)
            post_rows = [{**row, "id": posts[row["operation"]]} for _, rows in posts_by_challenge for row in rows]
            created = [{**challenge.row, "id": ids[challenge.operation]} for challenge in generated]
            # A challenge that exists was loaded with all its rows.
            events = _events(set(ids.values()) - set(known.values()), created, members, tracked, post_rows, reactions)
            await add_events(tx, STREAM, events, self._projections.clock.now_ms(), "import")
        await self._projections.update_challenges(list(ids.values()))
        await self._projections.update_posts(list(posts.values()))
        await self._projections.contributions.update({row["username"] for row in tracked})
        await self._projections.totals.update({row["username"] for row in tracked})
        await self._projections.reactions.rewrite_users({row["username"] for row in reactions})
        return len(generated) + len(members) + len(tracked) + len(posts) + len(reactions)

    def _generate(self, n: int) -> GeneratedChallenge:
        every = read_texts("challenges")["challenges"]
        title, category, public, days, ago, about, creator, *unit = every[n % len(every)]
        users, rng = self._plan.users, Random(f"{self._plan.name}/{self._plan.users.size}/challenge/{n}")
        if self._plan.is_generated:
            creator = users.name(rng.randrange(users.size))
            title = f"{title}, round {n // len(every) + 2}"
        began = self._plan.anchor_ms - ago * DAY_MS
        operation = _operation(self._plan, "challenge", n)
        row = {
            "title": title, "category": category, "is_public": public, "duration": days, "creator": creator,
            "created_ms": began, "ends_day": day_number(began) + days, "operation": operation,
            "unit": unit[0] if unit else "",
        }  # fmt: skip
        some = [int(users.size * rng.random()) for _ in range(MAX_MEMBERS)]
        chosen = {m for m in some if users.topic(m) is topic(about) or rng.random() < 0.45}
        said = [(self._plan.speaker(rng.choice(some), text), text) for text in self._sentences(n, category, rng)]
        members = sorted(chosen | {speaker for speaker, _ in said})
        joined = [day_number(began) + min(ago, int(rng.expovariate(0.4))) for _ in members]
        return GeneratedChallenge(operation, row, members, joined, said, rng)

    def _sentences(self, n: int, category: int, rng: Random) -> list[str]:
        """Return what the members say. In the small community a sentence is said in one challenge of its category."""
        words = read_texts("challenges")
        sentences, breaks = words["posts"][CATEGORY_NAMES[category - 1]], words["posts"]["break"]
        if self._plan.is_generated:
            return [
                rng.choice(breaks) if rng.random() < 0.07 else text for text in rng.sample(sentences, len(sentences))
            ]
        alike = [number for number, other in enumerate(words["challenges"]) if other[1] == category]
        return [*sentences[alike.index(n) :: len(alike)], *breaks[n : n + 1]]

    def _members(self, challenge: GeneratedChallenge, ids: dict[str, int]) -> Rows:
        return [
            {"challenge_id": ids[challenge.operation], "username": self._plan.users.name(n), "joined_day": day}
            for n, day in zip(challenge.members, challenge.joined, strict=True)
        ]

    def _tracked(self, challenge: GeneratedChallenge, ids: dict[str, int]) -> Rows:
        last = min(self._today, challenge.row["ends_day"] - 1)
        return [
            {
                "challenge_id": ids[challenge.operation],
                "username": self._plan.users.name(n),
                "day": day,
                "amount_thousandths": 250 * (24 + (7 * n + 3 * day) % 60) if challenge.row["unit"] else None,
            }
            for n, joined in zip(challenge.members, challenge.joined, strict=True)
            for day in range(joined, last + 1)
            if challenge.rng.random() < TRACKED_SHARE
        ]

    def _posts(self, challenge: GeneratedChallenge, ids: dict[str, int]) -> Rows:
        """Return the members' posts, oldest first, in the order of their ids."""
        words, rng = read_texts("challenges"), challenge.rng
        rows: Rows = []
        for speaker, sentence in challenge.said:
            at = challenge.members.index(speaker)
            earliest = challenge.joined[at] * DAY_MS + 7 * HOUR_MS
            created = min(round(rng.uniform(earliest, self._plan.anchor_ms)), self._plan.anchor_ms - 1)
            rows.append({
                "challenge_id": ids[challenge.operation], "username": self._plan.users.name(speaker),
                "text": fill_slots(sentence, words["slots"], rng), "is_break": sentence in words["posts"]["break"],
                "created_ms": created, "day": day_number(created),
            })  # fmt: skip
        rows.sort(key=lambda row: row["created_ms"])
        return [{**row, "operation": _operation(self._plan, challenge.operation, n)} for n, row in enumerate(rows)]

    def _reactions(self, challenge: GeneratedChallenge, post_rows: Rows, post_ids: dict[str, int]) -> Rows:
        """Return reactions of any users, or of members if the challenge is private."""
        rows = []
        for post in post_rows:
            count = 0 if post["is_break"] else int(challenge.rng.expovariate(0.25))
            for name in sorted({self._choose_reacting_user(challenge) for _ in range(count)} - {post["username"]}):
                created = min(post["created_ms"] + HOUR_MS, self._plan.anchor_ms)
                id, challenge_id = post_ids[post["operation"]], post["challenge_id"]
                rows.append({"post_id": id, "challenge_id": challenge_id, "username": name, "created_ms": created})
        return rows

    def _choose_reacting_user(self, challenge: GeneratedChallenge) -> str:
        users = self._plan.users
        return users.name(
            challenge.rng.randrange(users.size)
            if challenge.row["is_public"]
            else challenge.rng.choice(challenge.members)
        )

    async def _insert_and_get_ids(self, tx: AsyncConnection, table: Table, rows: Rows) -> dict[str, int]:
        """Insert rows that have an operation id, and return their ids by it."""
        await self._insert(tx, table, rows)
        return await self._ids(tx, table, [row["operation"] for row in rows])

    async def _ids(self, tx: AsyncConnection, table: Table, operations: Sequence[str]) -> dict[str, int]:
        """Return the ids of the rows that exist, by operation id."""
        ids: dict[str, int] = {}
        for some in chunks(operations, BATCH):
            found = await tx.execute(select(table.c.operation, table.c.id).where(table.c.operation.in_(some)))
            ids |= {row.operation: row.id for row in found}
        return ids

    async def _insert(self, tx: AsyncConnection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            await tx.execute(self._sql.insert(table).on_conflict_do_nothing(), list(rows))


def _events(
    new: set[int], created: Rows, members: Rows, tracked: Rows, posts: Rows, reactions: Rows
) -> list[EventData]:
    """Return the events of new challenges and their rows, in the order in which they could have happened."""
    authors = {row["id"]: row["username"] for row in posts}

    def of_new(rows: Rows) -> Rows:
        return [row for row in rows if row["challenge_id"] in new]

    return [
        *(ChallengeCreated(row["id"], row["creator"]) for row in created if row["id"] in new),
        *(ChallengeJoined(row["challenge_id"], row["username"]) for row in of_new(members)),
        *(ChallengeTracked(row["challenge_id"], row["username"], iso_date(row["day"])) for row in of_new(tracked)),
        *(ChallengePosted(row["challenge_id"], row["id"], row["username"]) for row in of_new(posts)),
        *(
            ChallengeReacted(row["challenge_id"], row["post_id"], authors[row["post_id"]], row["username"], True)
            for row in of_new(reactions)
        ),
    ]


def _operation(plan: CommunityPlan, what: str, n: int) -> str:
    """Return the operation id of a row. A second run gives the same id and inserts nothing."""
    return hashlib.sha256(f"{plan.name}/{plan.users.size}/{what}/{n}".encode()).hexdigest()[:48]
