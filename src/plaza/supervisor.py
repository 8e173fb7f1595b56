"""Supervises child processes: several API processes on one listening socket, and one worker.

The parent handles no requests, so no request can stop it. A child that dies is restarted after a wait that grows with
repeated deaths; the other children serve its connections meanwhile. If a child fails in its first start, everything
stops: the operator must fix something, and the child has printed what.
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
from plaza.core.process.child import Backoff, spawn, terminate
from plaza.core.process.shared_memory_dir import SharedMemoryDir
from plaza.core.settings import Settings
from plaza.shutdown import DRAIN_SECONDS, Shutdown, completes_before
from plaza.worker import STOP_SECONDS

log = structlog.get_logger("plaza.supervisor")

# A child's time to stop: requests drain, or jobs end and are cancelled; plus some time to close its connections.
CHILD_STOP_SECONDS = max(DRAIN_SECONDS, 2 * STOP_SECONDS) + 5


class Supervisor:
    """Starts the children, restarts the ones that die, and stops them in order."""

    def __init__(self, settings: Settings, sock: socket.socket, shutdown: Shutdown) -> None:
        self._shutdown = shutdown
        self._sock = sock
        self._api_count = settings.workers
        # Children read the same environment, plus the URL of the embedded Valkey and where they share their metrics.
        self._metrics_dir = SharedMemoryDir(settings.data_dir.absolute() / "metrics")
        shared = metrics.share(self._metrics_dir.path)
        self._environment = {**os.environ, "PLAZA_VALKEY_URL": settings.valkey_url, **shared}
        self._ready_count = 0
        self._all_ready = asyncio.Event()

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Keep the children alive until a shutdown is requested. API processes stop first, then the worker."""
        worker_stopping = asyncio.Event()
        read, write = os.pipe()
        asyncio.get_running_loop().add_reader(read, self._count_ready, read)
        try:
            apis = [
                asyncio.create_task(self._supervise("api", [self._sock.fileno(), write], self._shutdown.requested))
                for _ in range(self._api_count)
            ]
            worker = asyncio.create_task(self._supervise("worker", [write], worker_stopping))
            all_ready = asyncio.create_task(self._all_ready.wait())
            await asyncio.wait({all_ready, *apis, worker}, return_when=asyncio.FIRST_COMPLETED)
            all_ready.cancel()
            if not self._shutdown.requested.is_set():
                on_ready()
            await asyncio.gather(*apis)
            worker_stopping.set()
            await worker
        finally:
            asyncio.get_running_loop().remove_reader(read)
            os.close(read)
            os.close(write)
            self._metrics_dir.close()

    def _count_ready(self, read: int) -> None:
        self._ready_count += len(os.read(read, 64))
        if self._ready_count > self._api_count:  # all API processes and the worker
            self._all_ready.set()

    async def _supervise(self, role: str, handles: list[int], stopping: asyncio.Event) -> None:
        """Run one child, again after it dies, until `stopping` is set."""
        backoff = Backoff()
        command = [sys.executable, "-m", "plaza.serve", role, *map(str, handles)]
        while not stopping.is_set():
            started = time.monotonic()
            process = await spawn(command, inherit=handles, env=self._environment)
            exited = asyncio.ensure_future(process.wait())
            if not await completes_before(exited, stopping):
                await terminate(process, CHILD_STOP_SECONDS)
                return
            if not self._all_ready.is_set():
                # The other children may have failed for the same reason, or stop because of it.
                status = 2 if exited.result() == 2 else 1
                self._shutdown.request(status)
                return
            wait = backoff.wait_after(time.monotonic() - started)
            log.error("process_died", role=role, pid=process.pid, status=exited.result(), restart_in_seconds=wait)
            pause = asyncio.ensure_future(asyncio.sleep(wait))
            await completes_before(pause, stopping)
            pause.cancel()
