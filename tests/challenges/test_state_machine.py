"""Whatever is done, in whatever order and on whatever days: after a roll the keys are as the tables and the day say."""

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

from plaza.challenges.library import LIBRARY
from plaza.challenges.tables import ARRIVAL, BY_NAME, REMOVAL
from plaza.core import leases
from plaza.core.clock import ManualClock
from plaza.core.errors import PlazaError
from plaza.core.functions import Functions
from plaza.core.keyspace import Key, Layout, use_layout
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from tests.challenges.conftest import World, assemble, person
from tests.challenges.expected_state import assert_true
from tests.servers import Cluster, Server
from tests.timeouts import connect_for_test

T = TypeVar("T")

PEOPLE = [person(name) for name in ("ana", "ben", "cleo")]
people = st.sampled_from(PEOPLE)


class Machine(RuleBasedStateMachine):
    """One history. The place is opened once for all of them, and emptied."""

    runner: asyncio.Runner
    world: World
    redis_client: Any
    challenges = Bundle("challenges")
    posts = Bundle("posts")

    def __init__(self) -> None:
        super().__init__()
        self.run(empty(self.world, self.redis_client))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def attempt(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do it if it is allowed; what is refused changes nothing."""
        with suppress(PlazaError):
            return self.run(work)

    @initialize(target=challenges)
    def begin(self) -> Any:
        return self.run(self.world.joined(*PEOPLE, category=1))

    @rule(target=challenges, category=st.integers(1, 5), days=st.integers(1, 9))
    def start(self, category: int, days: int) -> Any:
        return self.run(self.world.joined(*PEOPLE, category=category, days=days))

    @rule(target=posts, who=people, challenge=challenges, is_break=st.booleans())
    def post(self, who: Any, challenge: int, is_break: bool) -> Any:
        made = self.attempt(self.world.post(who, challenge, is_break=is_break))
        return multiple() if made is None else made.id

    @rule(who=people, post=posts)
    def react(self, who: Any, post: int) -> None:
        self.attempt(self.world.posts.react(who, post))

    @rule(who=people, post=posts)
    def take_back(self, who: Any, post: int) -> None:
        self.attempt(self.world.posts.take_back(who, post))

    @rule(who=people, challenge=challenges)
    def track(self, who: Any, challenge: int) -> None:
        self.attempt(self.world.track(who, challenge))

    @rule(who=people, challenge=challenges)
    def leave(self, who: Any, challenge: int) -> None:
        self.attempt(self.world.challenges.leave(who, challenge))

    @rule(who=people)
    def forget(self, who: Any) -> None:
        self.run(self.world.people.delete(who.name))

    @rule(old=people, new=people)
    def rename(self, old: Any, new: Any) -> None:
        if old != new:
            self.run(self.world.people.rename(old.name, new.name))

    @rule(days=st.sampled_from([1, 1, 2, 6, -1, -4]))
    def pass_days(self, days: int) -> None:
        self.world.clock.advance(days=days)

    @rule(table=st.sampled_from(sorted(BY_NAME)), id=st.integers(1, 5))
    def delete_by_hand(self, table: str, id: int) -> None:
        async def work() -> None:
            async with self.world.sql.begin() as tx:
                await tx.execute(delete(BY_NAME[table]).where(BY_NAME[table].c.id == id))

        self.run(work())

    @rule()
    def roll(self) -> None:
        self.run(self.world.roll.run())
        self.run(assert_true(self.world, self.redis_client))

    def teardown(self) -> None:
        for anew in (False, True):
            self.run(self.world.roll.run(anew=anew))
            self.run(assert_true(self.world, self.redis_client))


async def empty(world: World, redis_client: Any) -> None:
    await (redis_client.flushall() if Key.layout is Layout.PLAIN else redis_client.flushall(target_nodes="primaries"))
    world.clock.set(ManualClock().now_ms())
    tables = [*BY_NAME.values(), REMOVAL, ARRIVAL]
    async with world.sql.begin() as tx:
        if world.sql.dialect == "postgresql":
            names = ", ".join(table.name for table in tables)
            await tx.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
            return
        for table in reversed(tables):
            await tx.execute(delete(table))
        await tx.execute(text("DELETE FROM sqlite_sequence"))


@asynccontextmanager
async def opened(place: Server | Cluster, settings: Settings) -> AsyncIterator[tuple[World, Any]]:
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
def test_after_any_history_the_keys_are_those_of_a_rebuild(
    kind: str, histories: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place: Server | Cluster = request.getfixturevalue(kind)
    with asyncio.Runner() as runner, ExitStack() as stack:

        def enter(manager: AbstractAsyncContextManager[T]) -> T:
            entered = runner.run(_enter(manager))
            stack.callback(lambda: runner.run(_leave(manager)))
            return entered

        url = enter(request.getfixturevalue("postgres").database()) if kind == "cluster" else ""
        Machine.runner = runner
        Machine.world, Machine.redis_client = enter(opened(place, Settings(data_dir=tmp_path, database_url=url)))
        run_state_machine_as_test(Machine, settings=settings(max_examples=histories, stateful_step_count=25))


async def _enter(manager: AbstractAsyncContextManager[T]) -> T:
    return await manager.__aenter__()


async def _leave(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)
