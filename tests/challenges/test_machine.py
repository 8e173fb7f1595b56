"""Whatever is done, in whatever order and on whatever days: after a roll the keys are as the tables and the day say."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis.asyncio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule, run_state_machine_as_test
from sqlalchemy import delete

from plaza.challenges.domain import LIBRARY
from plaza.challenges.tables import BY_NAME
from plaza.core import leases
from plaza.core.clock import SetClock
from plaza.core.errors import PlazaError
from plaza.core.functions import Functions
from plaza.core.keys import Layout, use_layout
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.wire import connect
from tests.challenges.conftest import World, assemble, person
from tests.challenges.truth import assert_true
from tests.servers import Server

PEOPLE = [person(name) for name in ("ana", "ben", "cleo")]
people = st.sampled_from(PEOPLE)


class Machine(RuleBasedStateMachine):
    server: Server
    empty: Path  # a database with the tables, to copy
    challenges = Bundle("challenges")
    posts = Bundle("posts")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp())
        self.world = self.run(self.open())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    async def open(self) -> World:
        use_layout(Layout.PLAIN)
        self.stranger: Any = redis.asyncio.Redis(port=self.server.port, decode_responses=True)
        await self.stranger.flushall()
        shutil.copy(self.empty / "plaza.sqlite", self.folder)
        sql, valkey = await Sql.open(Settings(data_dir=self.folder)), await connect(self.server.url)
        functions = Functions(valkey, [LIBRARY, leases.JOBS])
        await functions.load()
        return assemble(functions, sql, SetClock())

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
        self.run(self.world.people.forget(who.name))

    @rule(days=st.sampled_from([1, 1, 2, 6, -1, -4]))
    def pass_days(self, days: int) -> None:
        self.world.clock.forward(days=days)

    @rule(table=st.sampled_from(sorted(BY_NAME)), id=st.integers(1, 5))
    def delete_by_hand(self, table: str, id: int) -> None:
        async def work() -> None:
            async with self.world.sql.begin() as tx:
                await tx.execute(delete(BY_NAME[table]).where(BY_NAME[table].c.id == id))

        self.run(work())

    @rule()
    def roll(self) -> None:
        self.run(self.world.roll.run())
        self.run(assert_true(self.world, self.stranger))

    def teardown(self) -> None:
        async def close() -> None:
            await self.world.roll.run()
            await assert_true(self.world, self.stranger)
            await self.world.roll.run(anew=True)
            await assert_true(self.world, self.stranger)

        async def end() -> None:
            await self.world.functions.valkey.close()
            await self.world.sql.close()
            await self.stranger.aclose()

        try:
            self.run(close())
        finally:
            self.run(end())
            self.runner.close()
            shutil.rmtree(self.folder)


def test_after_any_history_the_keys_are_those_of_a_rebuild(server: Server, tmp_path: Path) -> None:
    async def make() -> None:
        await (await Sql.open(Settings(data_dir=tmp_path))).close()

    asyncio.run(make())
    Machine.server, Machine.empty = server, tmp_path
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=6, stateful_step_count=25, deadline=None, suppress_health_check=checks, database=None
        ),
    )
