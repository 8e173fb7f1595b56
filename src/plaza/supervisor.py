"""A parent and its children: several API processes on one listening socket, and one worker.

The parent answers no requests, so nothing a request does can stop it. A child that dies is replaced after a wait that
grows when it happens often; its share of the connections goes to the others meanwhile. If a child cannot even start
the first time, everything ends: there is something an operator must put right, and the child has said what.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable

import structlog

from plaza.core import metrics
from plaza.core.process.child import Backoff, end, spawn
from plaza.core.process.shared_memory_dir import MemoryFolder
from plaza.core.settings import Settings
from plaza.serve import DRAIN_SECONDS, Life, first
from plaza.worker import STOP_SECONDS

log = structlog.get_logger("plaza.supervisor")

# A child's own time to end: requests drain, or jobs end and are broken off; and a little to close its connections.
END_SECONDS = max(DRAIN_SECONDS, 2 * STOP_SECONDS) + 5


class Family:
    def __init__(self, settings: Settings, sock: socket.socket, life: Life) -> None:
        self.life = life
        self.sock = sock
        self.apis = settings.workers
        # Children read the same environment. News to them: the embedded Valkey's address, and that they count together.
        self.numbers = MemoryFolder(settings.data_dir.absolute() / "metrics")
        shared = metrics.share(self.numbers.path)
        self.environment = {**os.environ, "PLAZA_VALKEY_URL": settings.valkey_url, **shared}
        self.ready = 0
        self._complete = asyncio.Event()

    async def run(self, announce: Callable[[], None]) -> None:
        """Keep the family alive until life ends; then the API processes go first, and the worker after them."""
        worker_ending = asyncio.Event()
        read, write = os.pipe()
        asyncio.get_running_loop().add_reader(read, self._count, read)
        try:
            apis = [
                asyncio.create_task(self._keep("api", [self.sock.fileno(), write], self.life.ending))
                for _ in range(self.apis)
            ]
            worker = asyncio.create_task(self._keep("worker", [write], worker_ending))
            complete = asyncio.create_task(self._complete.wait())
            await asyncio.wait({complete, *apis, worker}, return_when=asyncio.FIRST_COMPLETED)
            complete.cancel()
            if not self.life.ending.is_set():
                announce()
            await asyncio.gather(*apis)
            worker_ending.set()
            await worker
        finally:
            asyncio.get_running_loop().remove_reader(read)
            os.close(read)
            os.close(write)
            self.numbers.close()

    def _count(self, read: int) -> None:
        self.ready += len(os.read(read, 64))
        if self.ready > self.apis:
            self._complete.set()

    async def _keep(self, role: str, handles: list[int], ending: asyncio.Event) -> None:
        backoff = Backoff()
        command = [sys.executable, "-m", "plaza.serve", role, *map(str, handles)]
        while not ending.is_set():
            born = time.monotonic()
            process = await spawn(command, keep=handles, env=self.environment)
            dead = asyncio.ensure_future(process.wait())
            if not await first(dead, ending):
                await end(process, END_SECONDS)
                return
            if not self._complete.is_set():
                # The others may have failed for the same reason, or end because of it.
                self.life.status = max(self.life.status, 2 if dead.result() == 2 else 1)
                self.life.ending.set()
                return
            wait = backoff.after(time.monotonic() - born)
            log.error("process_died", role=role, pid=process.pid, status=dead.result(), restart_in_seconds=wait)
            pause = asyncio.ensure_future(asyncio.sleep(wait))
            await first(pause, ending)
            pause.cancel()
