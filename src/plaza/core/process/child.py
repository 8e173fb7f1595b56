"""Child processes: they die with us, and end in bounded time when told to.

Each child gets a session of its own. An interrupt typed at a terminal goes to every process of the foreground group;
were Valkey among them it would leave before the requests that still need it. So only the parent hears it, and
ends its children in the right order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from plaza.core.process import launch

Watch = Literal["kernel", "pipe"]
WATCH: Watch = "kernel" if sys.platform == "linux" else "pipe"


async def spawn(
    command: Sequence[str],
    *,
    keep: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    quiet: bool = False,
    watch: Watch = WATCH,
) -> Process:
    """Start a program that dies with this process. `keep` are open files it inherits; `quiet` hides what it prints.

    Call it from the main thread: the kernel ties the child's life to the thread that started it.
    """
    launcher = [sys.executable, "-I", "-S", str(Path(launch.__file__)), watch, str(os.getpid())]
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *launcher,
            *command,
            stdin=PIPE if watch == "pipe" else DEVNULL,
            stdout=DEVNULL if quiet else None,
            stderr=DEVNULL if quiet else None,
            pass_fds=tuple(keep),
            env=dict(env) if env is not None else None,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # It may have been born already, and nobody else would know its name.
        await end(await starting, 0)
        raise


async def end(process: Process, patience_seconds: float) -> int:
    """Ask a child to end, insist after a while, and give its exit status."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        return await asyncio.wait_for(process.wait(), patience_seconds)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return await process.wait()


class Backoff:
    """How long to wait before the next start: longer each time, from the beginning after a long life."""

    def __init__(self, first_seconds: float = 0.05, most_seconds: float = 5.0, healthy_seconds: float = 60.0) -> None:
        self.first = first_seconds
        self.most = most_seconds
        self.healthy = healthy_seconds
        self.wait = first_seconds

    def after(self, lived_seconds: float) -> float:
        """The wait after a life of this length."""
        if lived_seconds >= self.healthy:
            self.wait = self.first
        now, self.wait = self.wait, min(self.wait * 2, self.most)
        return now
