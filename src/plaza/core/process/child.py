"""Starts child processes that die with this process, and stops them in bounded time.

Each child has a session of its own. A Ctrl-C at a terminal goes to every process of the foreground group. If Valkey
were among them, it would exit before the requests that still need it. So only the parent gets the signal, and stops
its children in the right order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from plaza.core.process import launch

# How a child notices that its parent died: by a signal from the kernel, or by a closed pipe.
Watch = Literal["kernel", "pipe"]
WATCH: Watch = "kernel" if sys.platform == "linux" else "pipe"


class RunningProcess(Protocol):
    """A child that was spawned or forked."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...


async def spawn(
    command: Sequence[str],
    *,
    inherit: Sequence[int] = (),
    quiet: bool = False,
    watch: Watch = WATCH,
) -> Process:
    """Start a program that dies with this process. It inherits the file descriptors in `inherit`.

    `quiet` discards its output. Call this from the main thread: the kernel ties the child's life to the thread that
    started it.
    """
    launcher = [sys.executable, "-I", "-S", str(Path(launch.__file__)), watch, str(os.getpid())]
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *launcher,
            *command,
            stdin=PIPE if watch == "pipe" else DEVNULL,
            stdout=DEVNULL if quiet else None,
            stderr=DEVNULL if quiet else None,
            pass_fds=tuple(inherit),
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The process may already exist, and no other code knows its id.
        await terminate(await starting, 0)
        raise


def signal_child(process: RunningProcess, number: signal.Signals) -> None:
    """Send a signal to a child, if it still runs.

    `Process.send_signal` also takes the exit status of a child that just ended. asyncio waits for the same status in a
    thread, finds none, logs an unknown child process and reports 255.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def terminate(process: RunningProcess, grace_seconds: float) -> int:
    """Send SIGTERM, and SIGKILL after the grace period. Returns the exit status."""
    signal_child(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(grace_seconds):
            return await process.wait()
    except TimeoutError:
        signal_child(process, signal.SIGKILL)
        return await process.wait()


class Backoff:
    """The wait before a restart. It doubles each time, and starts again after a process ran for a while."""

    def __init__(self, first_seconds: float = 0.05, max_seconds: float = 5.0, healthy_seconds: float = 60.0) -> None:
        self._first_seconds = first_seconds
        self._max_seconds = max_seconds
        self._healthy_seconds = healthy_seconds
        self._next_seconds = first_seconds

    def wait_after(self, lived_seconds: float) -> float:
        """The seconds to wait after a process that ran this long."""
        if lived_seconds >= self._healthy_seconds:
            self._next_seconds = self._first_seconds
        wait, self._next_seconds = self._next_seconds, min(self._next_seconds * 2, self._max_seconds)
        return wait
