"""Simulates a process that is killed between its calls to Valkey."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

ValkeyCall = Callable[..., Awaitable[Any]]


def fail_from_step(request: ValkeyCall, step: int, when: str = "before") -> ValkeyCall:
    """Wrap a call so that it fails from a step on: before the command is sent, or after it ran without a reply."""
    steps = itertools.count()

    async def call(*args: Any) -> Any:
        killed = next(steps) >= step
        if killed and when == "before":
            raise ConnectionError
        reply = await request(*args)
        if killed:
            raise ConnectionError
        return reply

    return call
