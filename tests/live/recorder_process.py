"""A worker that records until it is killed: `python -m tests.live.recorder_process URL DIR`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.live.history import AudienceHistory
from plaza.live.library import LIBRARY
from plaza.live.recorder import AudienceRecorder
from tests.timeouts import connect_for_test


async def record(url: str, data_dir: Path) -> None:
    settings = Settings(data_dir=data_dir)
    sql, valkey = await Sql.open(settings), await connect_for_test(url)
    functions = Functions(valkey, [LIBRARY])
    await functions.load()
    recorder = AudienceRecorder(functions, AudienceHistory(sql), settings, Clock())
    print("recording", flush=True)
    while True:
        await recorder.record()


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1], Path(sys.argv[2])))
