"""When and why a process stops: on a signal, or when something failed for good."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# Requests still open this long after a signal are aborted. They take milliseconds; only a slow client takes longer.
DRAIN_SECONDS = 5


class StartInterrupted(Exception):
    """A signal arrived before the start was complete."""


class Shutdown:
    """Why and when this process stops: on a signal, or when something failed for good."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.forced = asyncio.Event()  # by a second signal: do not wait for open requests
        self.exit_status = 0

    def handle_signals(self) -> None:
        """Request a shutdown on SIGINT, SIGTERM and SIGHUP."""
        loop = asyncio.get_running_loop()
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # `nohup` ignores SIGHUP, which is respected. A script's `&` ignores SIGINT, which is not.
            if sig != signal.SIGHUP or signal.getsignal(sig) is not signal.SIG_IGN:
                loop.add_signal_handler(sig, self._on_signal)

    def _on_signal(self) -> None:
        (self.forced if self.requested.is_set() else self.requested).set()

    def request(self, exit_status: int) -> None:
        """Request a shutdown. The highest status of all requests counts."""
        self.exit_status = max(self.exit_status, exit_status)
        self.requested.set()

    def fail(self, reason: str) -> None:
        """Print the reason and request a shutdown with exit status 1."""
        print(f"plaza: {reason}", file=sys.stderr, flush=True)
        self.request(1)

    async def run_unless_requested(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of some work; raises `StartInterrupted` as soon as a shutdown is requested."""
        task = asyncio.ensure_future(work)
        if await completes_before(task, self.requested):
            return task.result()
        task.cancel()
        await asyncio.wait({task})
        raise StartInterrupted


async def completes_before(work: asyncio.Future[Any], event: asyncio.Event) -> bool:
    """Wait for some work or an event, whichever comes first. Returns whether the work is done."""
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return work.done()
