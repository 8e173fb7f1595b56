"""Plaza inside another program: as an ASGI application, or its services without HTTP.

from plaza import asgi

app = FastAPI(lifespan=asgi.lifespan)
app.mount("/community", asgi)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import structlog

from plaza import app
from plaza.app import Plaza
from plaza.core.domain import Domain
from plaza.core.errors import OperatorError, Unavailable
from plaza.core.health_history import HealthHistory
from plaza.core.http.exchange import Receive, Send
from plaza.core.http.problem_details import PROBLEM, problem
from plaza.core.http.responses import encode
from plaza.core.settings import Settings
from plaza.valkey_discovery import find_valkey

log = structlog.get_logger("plaza.embedding")

_HOW_TO_START = (
    "Plaza is not started. Frameworks do not start what is mounted in them: "
    "run `plaza.asgi.lifespan` in the lifespan of your application."
)


@asynccontextmanager
async def running(
    settings: Settings | None = None, *, domains: Sequence[Domain] | None = None, with_worker: bool = False
) -> AsyncIterator[Plaza]:
    """Open Plaza in this process: `p.get(Posts)` returns a service. Without settings, they come from `PLAZA_*`.

    Without `PLAZA_VALKEY_URL` it uses the Valkey of the server that runs in the data directory, or else starts one for
    the duration of the block. `domains` are those to run, by default those that the settings say. `with_worker` also
    runs timers and event consumers, as a server does.
    """
    async with find_valkey(settings or Settings.from_env()) as found, app.running(found, domains) as plaza:
        worker = asyncio.create_task(plaza.worker.run()) if with_worker else None
        if worker is not None:
            worker.add_done_callback(_report_end)
        try:
            yield plaza
        finally:
            if worker is not None:
                worker.cancel()
                await asyncio.wait({worker})


def _report_end(worker: asyncio.Task[None]) -> None:
    if not worker.cancelled():
        log.error("worker_stopped", exc_info=worker.exception())


class AsgiPlaza:
    """Plaza as an ASGI application, with its worker. It runs from the start of its lifespan to the end.

    An ASGI server runs the lifespan by itself. In another application, that application's lifespan runs `lifespan`.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings
        self._plaza: Plaza | None = None

    @property
    def plaza(self) -> Plaza:
        """The open Plaza: `asgi.plaza.get(Posts)`. Raises `OperatorError` before the start."""
        if self._plaza is None:
            raise OperatorError(_HOW_TO_START)
        return self._plaza

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Run Plaza during the block. `FastAPI(lifespan=asgi.lifespan)` calls it with the application."""
        async with running(self._settings, with_worker=True) as plaza, plaza.get(HealthHistory).recording():
            self._plaza = plaza
            try:
                yield
            finally:
                plaza.app.drain()
                self._plaza = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif self._plaza is not None:
            await self._plaza.app(scope, receive, send)
        elif scope["type"] == "http":
            await _refuse(send)
        else:
            await send({"type": "websocket.close"})

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        phase = "startup"
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except Exception as error:
            await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
            if phase == "shutdown" or not isinstance(error, OperatorError):
                raise
        else:
            await send({"type": "lifespan.shutdown.complete"})


async def _refuse(send: Send) -> None:
    """Respond that Plaza was not started, and how to do it."""
    error = Unavailable(_HOW_TO_START)
    headers = [(b"content-type", PROBLEM.encode())]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": encode(problem(error, "").body)})


asgi = AsgiPlaza()
