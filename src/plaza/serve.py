"""Starts and stops the processes of `plaza serve` and `plaza worker`.

With `PLAZA_WORKERS=1` one process does everything. With more, a parent holds the listening socket and the embedded
Valkey, and keeps its API processes and one worker alive (`supervisor.py`); it handles no requests.

Shutdown has an order, because each part needs the next: open requests complete, the worker finishes its running jobs,
connections close, and Valkey stops last, when its file is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
import uvicorn
import uvloop

from plaza import __version__
from plaza.app import Plaza, configured_domains, running, runs_demo, shows_pages
from plaza.cli_errors import EXPECTED, print_error
from plaza.core.clock import Clock
from plaza.core.embedded_valkey import EmbeddedValkey
from plaza.core.errors import OperatorError
from plaza.core.health_history import HealthHistory
from plaza.core.http.admission import AdmissionControl
from plaza.core.http.admission_queue import AdmissionQueue
from plaza.core.http.app import App
from plaza.core.http.connection_limits import ConnectionLimits
from plaza.core.http.uvicorn_protocol import limited_protocol
from plaza.core.process.fork import ParentLink
from plaza.core.process.gc_freeze import freeze_gc
from plaza.core.process.idle_collector import IdleCollector
from plaza.core.process.listening_socket import accepting_sockets, listen, local_url
from plaza.core.settings import Settings
from plaza.core.valkey.address import parse_url
from plaza.demo.admin_password import PASSWORD_FILE, admin_password
from plaza.demo.keys import DEMO
from plaza.demo.lifecycle import is_open, may_load_demo, request_demo
from plaza.http_application import routes_of
from plaza.shutdown import DRAIN_SECONDS, Shutdown, StartInterrupted, completes_before
from plaza.supervisor import Supervisor
from plaza.valkey_discovery import open_connection, wait_for_server

log = structlog.get_logger("plaza.serve")

# Longer than reverse proxies keep idle connections (60 s is usual), so that the proxy closes first.
KEEP_ALIVE_SECONDS = 75


def serve(settings: Settings, *, empty: bool = False) -> int:
    """Run `plaza serve` until a signal. Returns the exit status."""
    with listen(settings.host, settings.port) as sock:
        wants_demo = not empty and may_load_demo(settings) and runs_demo(configured_domains(settings))
        return uvloop.run(_serve(settings, sock, may_load_demo=wants_demo))


async def _serve(settings: Settings, sock: socket.socket, *, may_load_demo: bool) -> int:
    shutdown = Shutdown()
    shutdown.handle_signals()
    for doubt in settings.warnings():
        log.warning("doubtful_setting", reason=doubt)
    with contextlib.suppress(StartInterrupted):
        async with valkey_for(settings, shutdown) as settings:
            loads_demo = may_load_demo and await _request_demo(settings)
            on_ready = partial(print_start_message, settings, sock, await _demo_lines(settings, loads_demo))
            if settings.workers == 1:
                await run_api(settings, sock, shutdown, on_ready, with_worker=True)
            else:
                routes_of(configured_domains(settings))  # imports what the processes share
                api = partial(run_child, partial(run_api, settings, sock))
                worker = partial(run_child, partial(run_worker, settings))
                await Supervisor(settings, shutdown, api, worker).run(on_ready)
    return shutdown.exit_status


async def _request_demo(settings: Settings) -> bool:
    """Request demo data if Valkey is empty; a worker loads it later. Returns whether it was requested."""
    async with open_connection(settings.valkey_url) as valkey:
        return await request_demo(valkey, Clock().now_ms())


async def _demo_lines(settings: Settings, loads_demo: bool) -> list[str]:
    """Return what the start message says about the demo. The admin's password is shown only on a terminal."""
    lines = ["sample data is being loaded; `plaza serve --empty` starts without it"] if loads_demo else []
    async with open_connection(settings.valkey_url) as valkey:
        if not is_open(settings) or await valkey.call("HGET", DEMO(), "on") != "1":
            return lines
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    shown = admin_password(settings.data_dir) if is_terminal else f"in {(settings.data_dir / PASSWORD_FILE).absolute()}"
    return [*lines, f"sign in as robin, an admin, with the password {shown}"]


@asynccontextmanager
async def valkey_for(settings: Settings, shutdown: Shutdown) -> AsyncIterator[Settings]:
    """Start an embedded Valkey if none is configured. Yields the settings with its URL."""
    if settings.valkey_url:
        yield settings
        return
    valkey = EmbeddedValkey(settings.data_dir, settings.fsync, settings.maxmemory_bytes)
    await shutdown.run_unless_requested(valkey.start())
    try:
        assert valkey.failure is not None
        valkey.failure.add_done_callback(lambda reason: shutdown.fail(reason.result()))
        yield replace(settings, valkey_url=valkey.url)
    finally:
        await valkey.stop()


async def run_api(
    settings: Settings, sock: socket.socket, shutdown: Shutdown, ready: Callable[[], None], *, with_worker: bool = False
) -> None:
    """Handle requests in this process until a shutdown is requested."""
    async with contextlib.AsyncExitStack() as stack:
        plaza = await shutdown.run_unless_requested(stack.enter_async_context(running(settings)))
        if with_worker:
            await stack.enter_async_context(background_worker(plaza, shutdown))
        await stack.enter_async_context(plaza.get(HealthHistory).recording())
        api = ApiServer(plaza.app, settings)
        serving = asyncio.ensure_future(api.serve(sockets=accepting_sockets(sock)))
        await completes_before(serving, api.started_event)
        freeze_gc()
        await stack.enter_async_context(IdleCollector(lambda: api.server_state.total_requests).running())
        ready()
        await completes_before(serving, shutdown.requested)
        await api.drain(serving, shutdown)


@asynccontextmanager
async def background_worker(plaza: Plaza, shutdown: Shutdown) -> AsyncIterator[None]:
    """Run the worker during the block, then cancel it; it gives back what it cannot finish in time.

    If the worker ever ends by itself, the server stops too: a server without its jobs would look healthy for too long.
    """

    def on_done(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            shutdown.fail(f"The worker stopped unexpectedly: {task.exception()!r}.")

    task = asyncio.create_task(plaza.worker.run())
    task.add_done_callback(on_done)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


class ApiServer(uvicorn.Server):
    """uvicorn on a socket that is already open, without signal handlers of its own."""

    def __init__(self, app: App, settings: Settings) -> None:
        self.app = app
        self.started_event = asyncio.Event()
        self._stop_delay_seconds = settings.stop_delay_seconds
        limits = ConnectionLimits(settings.connections_per_address, app.proxies) if settings.rate_limits else None
        admission = None
        if settings.queue_ms:
            read_seconds = settings.queue_ms / 1000
            admission = AdmissionControl(app, AdmissionQueue(), read_seconds, settings.mount_path, app.cors)
        super().__init__(
            uvicorn.Config(
                app,
                http=limited_protocol(limits, admission),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,  # `core/http/trusted_proxies.py` trusts only the configured proxies
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.started_event.set()

    async def drain(self, serving: asyncio.Future[None], shutdown: Shutdown) -> None:
        """Say that this server stops, then accept no more connections, complete open requests, and stop.

        An idle connection is closed at once then. A request that a proxy sends into it in that moment is lost, so a
        proxy needs time to notice.
        """
        self.app.drain()
        if self._stop_delay_seconds:
            delay = asyncio.ensure_future(asyncio.sleep(self._stop_delay_seconds))
            await completes_before(delay, shutdown.forced)
            delay.cancel()
        self.should_exit = True
        if not await completes_before(serving, shutdown.forced):
            self.force_exit = True
            for connection in list(self.server_state.connections):
                connection.transport.abort()
        await serving


def print_start_message(settings: Settings, sock: socket.socket, demo: Sequence[str] = ()) -> None:
    """Print the URLs and paths of this server, and lines about its demo."""
    url = local_url(sock) + settings.mount_path
    lines = [
        f"Plaza {__version__} is running.",
        *([f"  Pages   {url}/app"] if shows_pages(configured_domains(settings)) else []),
        f"  API     {url}",
        f"  Docs    {url}/docs",
        f"  Data    {settings.data_dir.absolute()}",
        f"  Valkey  {_valkey_addresses(settings)}",
        *(f"  {'' if n else 'Demo':7} {line}" for n, line in enumerate(demo)),
        "Ctrl-C stops it.",
    ]
    print_safely("\n".join(lines))


def print_safely(text: str) -> None:
    """Print, but go on if stdout is not writable: a closed pipe or a full disk must not stop a server."""
    try:
        print(text, flush=True)
    except OSError as error:
        log.warning("stdout_not_writable", error=error.strerror)
        # Discard the buffered rest, also at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _valkey_addresses(settings: Settings) -> str:
    addresses, clustered = parse_url(settings.valkey_url)
    text = ", ".join(map(str, addresses))  # an address never shows its password
    return f"{text} (cluster)" if clustered else text


def work(settings: Settings) -> int:
    """Run `plaza worker` until a signal. Returns the exit status."""
    return uvloop.run(_work(settings))


async def _work(settings: Settings) -> int:
    shutdown = Shutdown()
    shutdown.handle_signals()
    with contextlib.suppress(StartInterrupted):
        url: str | None = settings.valkey_url or await shutdown.run_unless_requested(wait_for_server(settings.data_dir))
        if url is None:
            raise OperatorError(
                f"No server runs in {settings.data_dir.absolute()}, so there is no Valkey to connect to. "
                "Start `plaza serve`, or set PLAZA_VALKEY_URL."
            )
        await run_worker(replace(settings, valkey_url=url), shutdown, lambda: print_safely("The worker is running."))
    return shutdown.exit_status


async def run_worker(settings: Settings, shutdown: Shutdown, ready: Callable[[], None]) -> None:
    """Run timers and consumers in this process until a shutdown is requested."""
    async with contextlib.AsyncExitStack() as stack:
        plaza = await shutdown.run_unless_requested(stack.enter_async_context(running(settings)))
        await stack.enter_async_context(background_worker(plaza, shutdown))
        freeze_gc()
        ready()
        await shutdown.requested.wait()


def run_child(run: Callable[[Shutdown, Callable[[], None]], Coroutine[Any, Any, None]], link: ParentLink) -> int:
    """Run a forked child of the supervisor until a signal, or until its parent is gone. Returns the exit status."""

    async def run_until_signal() -> int:
        shutdown = Shutdown()
        shutdown.handle_signals()
        link.on_parent_end(lambda: shutdown.request(1))
        with contextlib.suppress(StartInterrupted):
            await run(shutdown, link.report_ready)
        return shutdown.exit_status

    try:
        return uvloop.run(run_until_signal())
    except EXPECTED as error:
        return print_error(error)
