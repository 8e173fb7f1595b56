"""Real workers are killed while viewers come and go. SQL has every viewing session once."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.live.heartbeats import LiveService
from plaza.live.history import AudienceHistory
from plaza.live.library import LIBRARY
from plaza.live.recorder import AudienceRecorder
from plaza.live.statistics import AudienceFigures
from tests.live.conftest import ViewerActions
from tests.servers import Server
from tests.timeouts import connect_for_test


def start(server: Server, data_dir: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.live.recorder_process", server.url, str(data_dir)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "recording\n"
    return worker


def end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.wait()
    assert worker.stdout is not None
    worker.stdout.close()


async def come_and_go(viewers: ViewerActions, turn: int) -> int:
    """Twenty viewers, each of them watches twice."""

    async def one(name: str) -> None:
        for _ in range(2):
            await viewers.beat(name, "S1")
            await asyncio.sleep(0.002)
            await viewers.leave(name, "S1")
            await asyncio.sleep(0.002)

    await asyncio.gather(*(one(f"p{turn}-{i}") for i in range(20)))
    return 40


async def test_killed_workers_lose_and_duplicate_nothing(server: Server, tmp_path: Path) -> None:
    settings, rng = Settings(data_dir=tmp_path), random.Random(3)
    sql, valkey = await Sql.open(settings), await connect_for_test(server.url)
    functions = Functions(valkey, [LIBRARY])
    await functions.load()
    viewers, history = ViewerActions(LiveService(functions, settings, Clock())), AudienceHistory(sql)
    started = 0
    for turn in range(3):
        worker = await asyncio.to_thread(start, server, tmp_path)
        until = asyncio.get_running_loop().time() + rng.uniform(0.1, 0.4)
        while asyncio.get_running_loop().time() < until:
            started += await come_and_go(viewers, turn)
        await asyncio.to_thread(end, worker)
    await AudienceRecorder(functions, history, settings, Clock()).record()
    viewings = [viewing async for viewing in history.viewings.iterate("E1")]
    figures = AudienceFigures(functions, history, settings, Clock())
    assert len(viewings) == started == (await figures.totals.get("E1")).logins
    assert len({(v.viewer, v.started_at) for v in viewings}) == started
    await valkey.close()
    await sql.close()
