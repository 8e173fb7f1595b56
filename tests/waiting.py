"""Waits for conditions, instead of a guessed time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from tests.timeouts import TIME_LIMIT_SECONDS


async def eventually(check: Callable[[], Any]) -> Any:
    """Call `check` (and await its result) until it is true, and return the result. Fails after the time limit."""
    deadline = asyncio.get_running_loop().time() + TIME_LIMIT_SECONDS
    while True:
        result = check()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return result
        late = asyncio.get_running_loop().time() > deadline
        assert not late, f"not within {TIME_LIMIT_SECONDS} s: {check}"
        await asyncio.sleep(0.01)
