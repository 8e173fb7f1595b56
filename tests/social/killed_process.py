"""A process that is killed on the way, as its calls of Valkey see it."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

ValkeyCall = Callable[..., Awaitable[Any]]


def dying(request: ValkeyCall, step: int, when: str = "before") -> ValkeyCall:
    """Calls of a process that is killed at a step: before it, or after it was done and not yet heard of."""
    steps = itertools.count()

    async def dies(*args: Any) -> Any:
        last = next(steps) >= step
        if last and when == "before":
            raise ConnectionError
        reply = await request(*args)
        if last:
            raise ConnectionError
        return reply

    return dies
