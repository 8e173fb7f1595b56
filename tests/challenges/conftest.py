"""Fixtures: challenges on one server with SQLite and on a cluster with PostgreSQL, with a manual clock."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from plaza.challenges.daily_job.runner import DailyJob
from plaza.challenges.leaderboard import Leaderboards
from plaza.challenges.library import LIBRARY
from plaza.challenges.model import Challenge, ChallengePost, NewChallenge, NewChallengePost, NewTracking
from plaza.challenges.personal_data import ChallengesPersonalData
from plaza.challenges.posts import ChallengePosts
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.recommendation.recommender import Recommender
from plaza.challenges.service import Challenges
from plaza.challenges.tracking import ChallengeTracking
from plaza.core import leases, paging
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.leases import Leases
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey
from plaza.social.read_view import hiding_keys
from tests.databases import database_with_tables, with_tables
from tests.servers import Cluster, Server

MAX_POST_AGE = 5  # days; few, so that slots are reused soon


def user(name: str) -> Actor:
    return Actor(name, "user")


ANA, BEN, CLEO = user("ana"), user("ben"), user("cleo")
ROOT = Actor("root", "admin")


class SocialBlocks:
    """The block lists of social, as the composition root passes them."""

    def block_list_keys(self, viewer: Actor) -> Sequence[str]:
        return hiding_keys(viewer)


@dataclass
class ChallengeServices:
    """All services of challenges."""

    functions: Functions
    sql: Sql
    clock: ManualClock
    projections: ChallengeProjections
    challenges: Challenges
    posts: ChallengePosts
    tracking: ChallengeTracking
    leaderboards: Leaderboards
    daily_job: DailyJob
    recommender: Recommender
    personal_data: ChallengesPersonalData
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
        unit: str | None = None,
    ) -> Challenge:
        new = NewChallenge(title, category, public, days, unit)
        return await self.challenges.create(creator, new, self.operation())

    async def joined(self, *members: Actor, category: int = 1, days: int = 21, unit: str | None = None) -> int:
        """Create a challenge with these members. Returns its id."""
        made = await self.challenge(category=category, days=days, unit=unit)
        for member in members:
            await self.challenges.join(member, made.id)
        return made.id

    async def post(self, author: Actor, challenge: int, *, is_break: bool = False) -> ChallengePost:
        return await self.posts.post(author, challenge, NewChallengePost("Done.", is_break), self.operation())

    async def track(self, actor: Actor, challenge: int, date: str | None = None, amount: float | None = None) -> None:
        await self.tracking.track(actor, challenge, NewTracking(date, amount))


def assemble(functions: Functions, sql: Sql, clock: ManualClock, max_post_age: int = MAX_POST_AGE) -> ChallengeServices:
    projections = ChallengeProjections(sql, functions, clock, max_post_age)
    blocks = SocialBlocks()
    return ChallengeServices(
        functions=functions,
        sql=sql,
        clock=clock,
        projections=projections,
        challenges=Challenges(sql, projections, clock),
        posts=ChallengePosts(projections, blocks),
        tracking=ChallengeTracking(sql, projections, clock),
        leaderboards=Leaderboards(sql, functions.valkey, clock, blocks),
        daily_job=DailyJob(projections, Leases(functions)),
        recommender=Recommender(projections, blocks),
        personal_data=ChallengesPersonalData(projections),
    )


@pytest.fixture
async def sql_settings(
    place: Server | Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Settings]:
    """SQLite on the server, PostgreSQL on the cluster: each once, since Valkey does not depend on the database."""
    if isinstance(place, Server):
        yield Settings(data_dir=with_tables(tmp_path))
        return
    async with database_with_tables(request.getfixturevalue("postgres")) as url:
        yield Settings(data_dir=tmp_path, database_url=url)


@pytest.fixture
async def functions(valkey: Valkey) -> AsyncIterator[Functions]:
    functions = Functions(valkey, [LIBRARY, paging.LIBRARY, leases.JOBS])
    await functions.load()
    yield functions
    await functions.outbox.drain()


@pytest.fixture
def services(functions: Functions, sql: Sql, clock: ManualClock) -> ChallengeServices:
    return assemble(functions, sql, clock)
