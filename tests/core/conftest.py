"""The connection is tested on both loops: asyncio's own, and uvloop, which serves in production."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, LoopFactory]:
    loops: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    if item.path.name.startswith("test_wire"):
        loops["uvloop"] = uvloop.new_event_loop
    return loops
