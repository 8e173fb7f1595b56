"""After any history of operations and days, a run of the job leaves the keys as the tables and the day give them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis.asyncio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule, run_state_machine_as_test
from sqlalchemy import delete, text

from plaza.challenges.challenge_deletion import ChallengeDeletion
from plaza.challenges.library import LIBRARY
from plaza.challenges.model import ChallengeEdit, iso_date
from plaza.challenges.tables import DELETE_LOG, INSERT_LOG, TABLES
from plaza.core import leases
from plaza.core.clock import ManualClock
from plaza.core.errors import PlazaError
from plaza.core.functions import Functions
from plaza.core.keyspace import Key, Layout, use_layout
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from tests.challenges.conftest import ChallengeServices, assemble, user
from tests.challenges.expected_state import assert_matches_tables
from tests.servers import Cluster, Server
from tests.timeouts import connect_for_test

T = TypeVar("T")

USERS = [user(name) for name in ("ana", "ben", "cleo")]
users = st.sampled_from(USERS)


class ChallengesHistory(RuleBasedStateMachine):
    """One history. The servers are shared by all histories and emptied before each."""

    runner: asyncio.Runner
    services: ChallengeServices
    redis_client: Any

    def __init__(self) -> None:
        super().__init__()
        self.run(empty(self.services, self.redis_client))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def attempt(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run an operation; an expected error changes nothing."""
        with suppress(PlazaError):
            return self.run(work)

    def teardown(self) -> None:
        for rebuild_all in (False, True):
            self.run(self.services.daily_job.run(rebuild_all=rebuild_all))
            self.run(assert_matches_tables(self.services, self.redis_client))
            correct, stored = self.run(self.services.projections.totals.read([user.name for user in USERS]))
            assert correct == stored


class ChallengesMachine(ChallengesHistory):
    """What users do in challenges, what another program deletes, and the daily job."""

    challenges = Bundle("challenges")
    posts = Bundle("posts")

    @initialize(target=challenges)
    def begin(self) -> Any:
        return self.run(self.services.joined(*USERS, category=1))

    @rule(target=challenges, category=st.integers(1, 5), days=st.integers(1, 9))
    def start(self, category: int, days: int) -> Any:
        return self.run(self.services.joined(*USERS, category=category, days=days))

    @rule(target=posts, actor=users, challenge=challenges, is_break=st.booleans())
    def post(self, actor: Any, challenge: int, is_break: bool) -> Any:
        made = self.attempt(self.services.post(actor, challenge, is_break=is_break))
        return multiple() if made is None else made.id

    @rule(actor=users, post=posts)
    def react(self, actor: Any, post: int) -> None:
        self.attempt(self.services.posts.react(actor, post))

    @rule(actor=users, post=posts)
    def remove_reaction(self, actor: Any, post: int) -> None:
        self.attempt(self.services.posts.remove_reaction(actor, post))

    @rule(actor=users, challenge=challenges)
    def track(self, actor: Any, challenge: int) -> None:
        self.attempt(self.services.track(actor, challenge))

    @rule(actor=users, challenge=challenges, days_ago=st.integers(0, 2))
    def untrack(self, actor: Any, challenge: int, days_ago: int) -> None:
        date = iso_date(self.services.projections.today() - days_ago)
        self.attempt(self.services.tracking.untrack(actor, challenge, date))

    @rule(actor=users, challenge=challenges)
    def leave(self, actor: Any, challenge: int) -> None:
        self.attempt(self.services.challenges.leave(actor, challenge))

    @rule(actor=users, challenge=challenges, duration=st.integers(0, 12))
    def edit_or_delete_challenge(self, actor: Any, challenge: int, duration: int) -> None:
        if duration:
            self.attempt(self.services.challenges.edit(actor, challenge, ChallengeEdit(duration=duration)))
        else:
            self.attempt(ChallengeDeletion(self.services.projections).delete(actor, challenge))

    @rule(actor=users, post=posts)
    def delete_post(self, actor: Any, post: int) -> None:
        self.attempt(self.services.posts.delete(actor, post))

    @rule(actor=users)
    def delete_user(self, actor: Any) -> None:
        self.run(self.services.personal_data.delete(actor.name))

    @rule(old=users, new=users)
    def rename(self, old: Any, new: Any) -> None:
        if old != new:
            self.run(self.services.personal_data.rename(old.name, new.name))

    @rule(days=st.sampled_from([1, 1, 2, 6, -1, -4]))
    def advance_days(self, days: int) -> None:
        self.services.clock.advance(days=days)

    @rule(table=st.sampled_from(sorted(TABLES)), id=st.integers(1, 5))
    def delete_by_hand(self, table: str, id: int) -> None:
        async def work() -> None:
            async with self.services.sql.begin() as tx:
                await tx.execute(delete(TABLES[table]).where(TABLES[table].c.id == id))

        self.run(work())

    @rule()
    def run_daily_job(self) -> None:
        self.run(self.services.daily_job.run())
        self.run(assert_matches_tables(self.services, self.redis_client))


async def empty(services: ChallengeServices, redis_client: Any) -> None:
    await (redis_client.flushall() if Key.layout is Layout.PLAIN else redis_client.flushall(target_nodes="primaries"))
    services.clock.set(ManualClock().now_ms())
    tables = [*TABLES.values(), DELETE_LOG, INSERT_LOG]
    async with services.sql.begin() as tx:
        if services.sql.dialect == "postgresql":
            names = ", ".join(table.name for table in tables)
            await tx.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
            return
        for table in reversed(tables):
            await tx.execute(delete(table))
        await tx.execute(text("DELETE FROM sqlite_sequence"))


@asynccontextmanager
async def opened(place: Server | Cluster, settings: Settings) -> AsyncIterator[tuple[ChallengeServices, Any]]:
    clustered = isinstance(place, Cluster)
    use_layout(Layout.BRACES if clustered else Layout.PLAIN)
    valkey, sql = await connect_for_test(place.url), await Sql.open(settings)
    port = place.nodes[0].port if isinstance(place, Cluster) else place.port
    client = redis.asyncio.RedisCluster if clustered else redis.asyncio.Redis
    redis_client = client(host="127.0.0.1", port=port, decode_responses=True)
    functions = Functions(valkey, [LIBRARY, leases.JOBS])
    await functions.load()
    try:
        yield assemble(functions, sql, ManualClock()), redis_client
    finally:
        await functions.outbox.drain()
        await redis_client.aclose()
        await sql.close()
        await valkey.close()
        use_layout(Layout.PLAIN)


# On a cluster with PostgreSQL a step takes several times as long.
@pytest.mark.parametrize(("kind", "histories"), [("server", 6), ("cluster", 3)])
def test_after_any_history_the_keys_equal_those_of_a_rebuild(
    kind: str, histories: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place: Server | Cluster = request.getfixturevalue(kind)
    with asyncio.Runner() as runner, ExitStack() as stack:

        def enter(manager: AbstractAsyncContextManager[T]) -> T:
            entered = runner.run(_enter(manager))
            stack.callback(lambda: runner.run(_leave(manager)))
            return entered

        url = enter(request.getfixturevalue("postgres").database()) if kind == "cluster" else ""
        ChallengesMachine.runner = runner
        ChallengesMachine.services, ChallengesMachine.redis_client = enter(
            opened(place, Settings(data_dir=tmp_path, database_url=url))
        )
        run_state_machine_as_test(ChallengesMachine, settings=settings(max_examples=histories, stateful_step_count=25))


async def _enter(manager: AbstractAsyncContextManager[T]) -> T:
    return await manager.__aenter__()


async def _leave(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)
