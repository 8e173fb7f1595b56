"""Challenges on one server with SQLite and on a cluster with PostgreSQL, with a clock that tests can set."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from plaza.challenges.daily_job import Roll
from plaza.challenges.library import LIBRARY
from plaza.challenges.model import Challenge, NewChallenge, NewPost, NewTracking, Post
from plaza.challenges.personal_data import Participants
from plaza.challenges.posts import Posts
from plaza.challenges.projection import Derived
from plaza.challenges.recommendation.recommender import Recommender
from plaza.challenges.service import Challenges
from plaza.core import leases, paging
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.leases import Leases
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey
from tests.postgres import Postgres
from tests.servers import Cluster, Server

MAX_POST_AGE = 5  # days, so that slots come round soon


def person(name: str) -> Actor:
    return Actor(name, "user")


ANA, BEN, CLEO = person("ana"), person("ben"), person("cleo")
ROOT = Actor("root", "admin")


@dataclass
class World:
    """Everything challenges have."""

    functions: Functions
    sql: Sql
    clock: ManualClock
    derived: Derived
    challenges: Challenges
    posts: Posts
    roll: Roll
    recommender: Recommender
    people: Participants
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def operation(self) -> str:
        return f"test-{next(self.numbers)}"

    async def challenge(
        self,
        creator: Actor = ANA,
        *,
        category: int = 1,
        public: bool = True,
        days: int = 21,
        title: str = "Run every day",
    ) -> Challenge:
        new = NewChallenge(title, category, public, days)
        return await self.challenges.create(creator, new, self.operation())

    async def joined(self, *people: Actor, category: int = 1, days: int = 21) -> int:
        """A challenge of Ana's with these members."""
        made = await self.challenge(category=category, days=days)
        for one in people:
            await self.challenges.join(one, made.id)
        return made.id

    async def post(self, author: Actor, challenge: int, *, is_break: bool = False) -> Post:
        return await self.posts.post(author, challenge, NewPost("Done.", is_break), self.operation())

    async def track(self, actor: Actor, challenge: int, date: str | None = None) -> None:
        await self.challenges.track(actor, challenge, NewTracking(date))


def assemble(functions: Functions, sql: Sql, clock: ManualClock, max_post_age: int = MAX_POST_AGE) -> World:
    derived = Derived(sql, functions, clock, max_post_age)
    return World(
        functions=functions,
        sql=sql,
        clock=clock,
        derived=derived,
        challenges=Challenges(sql, derived, clock),
        posts=Posts(sql, derived, clock),
        roll=Roll(derived, Leases(functions)),
        recommender=Recommender(derived),
        people=Participants(derived),
    )


@pytest.fixture
async def sql_settings(
    place: Server | Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Settings]:
    """Each database once: what a test does to Valkey does not depend on which of the two it is."""
    if isinstance(place, Server):
        yield Settings(data_dir=tmp_path)
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    async with postgres.database() as url:
        yield Settings(data_dir=tmp_path, database_url=url)


@pytest.fixture
async def functions(valkey: Valkey) -> AsyncIterator[Functions]:
    functions = Functions(valkey, [LIBRARY, paging.LIBRARY, leases.JOBS])
    await functions.load()
    yield functions
    await functions.outbox.drain()


@pytest.fixture
def world(functions: Functions, sql: Sql, clock: ManualClock) -> World:
    return assemble(functions, sql, clock)
