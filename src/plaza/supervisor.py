"""Supervises child processes: several API processes on one listening socket, and one worker.

They are forked from the parent, which has imported everything once.

The parent handles no requests, so no request can stop it. A child that dies is restarted after a wait that grows with
repeated deaths; the other children serve its connections meanwhile. If a child fails in its first start, everything
stops: the operator must fix something, and the child has printed what.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from plaza.core import metrics
from plaza.core.process.child import Backoff, terminate
from plaza.core.process.fork import ForkedProcess, ParentLink, fork
from plaza.core.process.gc_freeze import freeze_gc
from plaza.core.process.shared_memory_dir import SharedMemoryDir
from plaza.core.settings import Settings
from plaza.shutdown import DRAIN_SECONDS, Shutdown, completes_before
from plaza.worker import STOP_SECONDS

log = structlog.get_logger("plaza.supervisor")

# A child's time to stop: requests drain, or jobs end and are cancelled; plus some time to close its connections.
CHILD_STOP_SECONDS = max(DRAIN_SECONDS, 2 * STOP_SECONDS) + 5


RunChild = Callable[[ParentLink], int]


class Supervisor:
    """Forks the children, again if one dies, and stops them in order."""

    def __init__(self, settings: Settings, shutdown: Shutdown, run_api: RunChild, run_worker: RunChild) -> None:
        self._shutdown = shutdown
        self._run_api, self._run_worker = run_api, run_worker
        self._api_count = settings.workers
        self._stop_seconds = CHILD_STOP_SECONDS + settings.stop_delay_seconds
        self._metrics_dir = SharedMemoryDir(settings.data_dir.absolute() / "metrics")
        metrics.share(self._metrics_dir.path)
        self._ready_count = 0
        self._all_ready = asyncio.Event()

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Keep the children alive until a shutdown is requested. API processes stop first, then the worker."""
        worker_stopping = asyncio.Event()
        freeze_gc()  # the children share the memory of what exists now, and do not trace it
        try:
            apis = [
                asyncio.create_task(self._supervise("plaza-api", self._run_api, self._shutdown.requested))
                for _ in range(self._api_count)
            ]
            worker = asyncio.create_task(self._supervise("plaza-worker", self._run_worker, worker_stopping))
            all_ready = asyncio.create_task(self._all_ready.wait())
            await asyncio.wait({all_ready, *apis, worker}, return_when=asyncio.FIRST_COMPLETED)
            all_ready.cancel()
            if not self._shutdown.requested.is_set():
                on_ready()
            await asyncio.gather(*apis)
            worker_stopping.set()
            await worker
        finally:
            self._metrics_dir.close()

    async def _count_when_ready(self, process: ForkedProcess) -> None:
        await process.ready.wait()
        self._ready_count += 1
        if self._ready_count > self._api_count:  # all API processes and the worker
            self._all_ready.set()

    async def _supervise(self, name: str, run: RunChild, stopping: asyncio.Event) -> None:
        """Run one child, again after it dies, until `stopping` is set."""
        backoff = Backoff()
        while not stopping.is_set():
            started = time.monotonic()
            process = fork(name, run)
            counting = asyncio.ensure_future(self._count_when_ready(process))
            exited = asyncio.ensure_future(process.wait())
            if not await completes_before(exited, stopping):
                await terminate(process, self._stop_seconds)
                return
            counting.cancel()
            if not self._all_ready.is_set():
                # The other children may have failed for the same reason, or stop because of it.
                status = 2 if exited.result() == 2 else 1
                self._shutdown.request(status)
                return
            wait = backoff.wait_after(time.monotonic() - started)
            log.error("process_died", role=name, pid=process.pid, status=exited.result(), restart_in_seconds=wait)
            pause = asyncio.ensure_future(asyncio.sleep(wait))
            await completes_before(pause, stopping)
            pause.cancel()
