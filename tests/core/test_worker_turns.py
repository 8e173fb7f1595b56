"""Loops that every worker runs."""

from __future__ import annotations

import asyncio

import pytest

from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from plaza.core.valkey import Valkey
from plaza.worker import LIBRARIES, Worker
from tests.waiting import eventually


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    functions = Functions(valkey, LIBRARIES)
    await functions.load()
    return functions


async def test_every_worker_runs_the_loop_and_continues_after_a_failure(functions: Functions) -> None:
    turns: list[str] = []

    def work(name: str) -> Worker:
        async def turn() -> float:
            turns.append(name)
            if turns.count(name) == 2:
                raise Unavailable("Away for a moment.")
            return 0.001

        return Worker(functions, loops={"shared": turn})

    tasks = [asyncio.create_task(work(name).run()) for name in ("one", "two")]
    await eventually(lambda: min(turns.count("one"), turns.count("two")) > 5)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_running_turn_may_end_when_its_worker_stops(functions: Functions) -> None:
    started, ended = asyncio.Event(), []

    async def turn() -> float:
        started.set()
        await asyncio.sleep(0.2)
        ended.append(True)
        return 0.0

    task = asyncio.create_task(Worker(functions, loops={"slow": turn}).run())
    await started.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert ended == [True]
