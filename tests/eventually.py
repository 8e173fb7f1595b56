"""Waiting for what must become true, instead of for a guessed while."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def eventually(check: Callable[[], Any], seconds: float = 10.0) -> Any:
    """What `check` gives (awaited if need be) as soon as that is true; an assertion fails if it never is."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        result = check()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return result
        late = asyncio.get_running_loop().time() > deadline
        assert not late, f"not within {seconds} s: {check}"
        await asyncio.sleep(0.01)
