"""The life of the processes: from a free port to the last byte on disk.

With `PLAZA_WORKERS=1` one process does everything. With more there is a parent that answers no requests: it holds the
listening socket and the embedded Valkey, and keeps its API processes and one worker alive (`supervisor.py`).

The end has an order, because each part needs the next: requests are answered to the end, the worker finishes what it
has in hand, connections close, and Valkey goes last, once its file is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import structlog
import uvicorn
import uvloop

from plaza import __version__
from plaza.app import Plaza, running
from plaza.cli_errors import FORESEEN, complain
from plaza.core.clock import Clock
from plaza.core.embedded_valkey import EmbeddedValkey
from plaza.core.errors import OperatorError
from plaza.core.http.uvicorn_protocol import GuardedHttpProtocol
from plaza.core.process.gc_freeze import settle
from plaza.core.process.listening_socket import address_of, listen
from plaza.core.settings import Settings
from plaza.core.telemetry import configure_logs
from plaza.core.valkey.address import parse_url
from plaza.demo.service import ask_for, suits
from plaza.valkey_discovery import connected, servers_url

T = TypeVar("T")

log = structlog.get_logger("plaza.serve")

# Requests still open this long after a signal are broken off. Ours take milliseconds; only a slow client takes longer.
DRAIN_SECONDS = 5
# Longer than the proxies in front of us keep idle connections (60 s is usual), so that they close first, not we.
KEEP_ALIVE_SECONDS = 75


class Ended(Exception):
    """A signal came before the start was complete."""


class Life:
    """From the start to the first reason to end: a signal, or something that cannot go on."""

    def __init__(self) -> None:
        self.ending = asyncio.Event()
        self.impatient = asyncio.Event()  # a second signal: do not wait for requests
        self.status = 0

    def heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Under `nohup` a hang-up is to be ignored. An interrupt never is, though the `&` of a script asks for that.
            if sig != signal.SIGHUP or signal.getsignal(sig) is not signal.SIG_IGN:
                loop.add_signal_handler(sig, self._signalled)

    def _signalled(self) -> None:
        (self.impatient if self.ending.is_set() else self.ending).set()

    def fail(self, reason: str) -> None:
        """End everything: this cannot go on."""
        print(f"plaza: {reason}", file=sys.stderr, flush=True)
        self.status = 1
        self.ending.set()

    async def unless_ended(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of some work, or `Ended` as soon as a signal comes."""
        working = asyncio.ensure_future(work)
        if await first(working, self.ending):
            return working.result()
        working.cancel()
        await asyncio.wait({working})
        raise Ended


async def first(work: asyncio.Future[Any], event: asyncio.Event) -> bool:
    """Wait for some work or an event, whichever comes first; whether the work is done."""
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return work.done()


def serve(settings: Settings, *, empty: bool = False) -> int:
    """`plaza serve`: run until a signal, and give the exit status."""
    with listen(settings.host, settings.port) as sock:
        return uvloop.run(_serve(settings, sock, may_fill=not empty and suits(settings)))


async def _serve(settings: Settings, sock: socket.socket, *, may_fill: bool) -> int:
    life = Life()
    life.heed_signals()
    for doubt in settings.doubts():
        log.warning("a setting is doubtful", doubt=doubt)
    with contextlib.suppress(Ended):
        async with valkey_of(settings, life) as settings:
            filling = may_fill and await _fill(settings)
            if settings.workers == 1:
                await answer(settings, sock, life, lambda: announce(settings, sock, filling), with_worker=True)
            else:
                from plaza.supervisor import Family

                await Family(settings, sock, life).run(lambda: announce(settings, sock, filling))
    return life.status


async def _fill(settings: Settings) -> bool:
    """Ask for a community to look at, if there is nothing here yet. A worker loads it once the server answers."""
    async with connected(settings.valkey_url) as valkey:
        return await ask_for(valkey, Clock().now_ms())


@asynccontextmanager
async def valkey_of(settings: Settings, life: Life) -> AsyncIterator[Settings]:
    """The settings, with the address of an embedded Valkey in them if none is configured."""
    if settings.valkey_url:
        yield settings
        return
    valkey = EmbeddedValkey(settings.data_dir, settings.fsync)
    await life.unless_ended(valkey.start())
    try:
        assert valkey.given_up is not None
        valkey.given_up.add_done_callback(lambda reason: life.fail(reason.result()))
        yield replace(settings, valkey_url=valkey.url)
    finally:
        await valkey.stop()


async def answer(
    settings: Settings, sock: socket.socket, life: Life, ready: Callable[[], None], *, with_worker: bool = False
) -> None:
    """Response requests in this process until life ends."""
    async with contextlib.AsyncExitStack() as stack:
        plaza = await life.unless_ended(stack.enter_async_context(running(settings)))
        if with_worker:
            await stack.enter_async_context(working(plaza, life))
        api = Api(plaza)
        serving = asyncio.ensure_future(api.serve(sockets=[sock]))
        await first(serving, api.up)
        settle()
        ready()
        await first(serving, life.ending)
        await api.drain(serving, life)


@asynccontextmanager
async def working(plaza: Plaza, life: Life) -> AsyncIterator[None]:
    """Have the worker run meanwhile. It ends when it is cancelled, giving back what it cannot finish in time.

    Should it ever end by itself, everything does: a server whose jobs stand still looks well for far too long.
    """

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            life.fail(f"The worker has ended: {task.exception()!r}.")

    task = asyncio.create_task(plaza.worker.run())
    task.add_done_callback(ended)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


class Api(uvicorn.Server):
    """uvicorn on a socket that is open already, which leaves signals to us."""

    def __init__(self, plaza: Plaza) -> None:
        self.plaza = plaza
        self.up = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                plaza.app,
                http=GuardedHttpProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,  # `core/http/trusted_proxies.py` believes only the proxies that a setting names
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    async def drain(self, serving: asyncio.Future[None], life: Life) -> None:
        """Take no more connections, answer what has been asked, and end."""
        self.plaza.app.drain()
        self.should_exit = True
        if not await first(serving, life.impatient):
            self.force_exit = True
            for connection in list(self.server_state.connections):
                connection.transport.abort()
        await serving


def announce(settings: Settings, sock: socket.socket, filling: bool = False) -> None:
    """Tell the operator where to look."""
    url = address_of(sock)
    lines = [
        f"Plaza {__version__} is running.",
        f"  Pages   {url}/app",
        f"  API     {url}",
        f"  Docs    {url}/docs",
        f"  Data    {settings.data_dir.absolute()}",
        f"  Valkey  {_valkey(settings)}",
        *(["  Demo    a small community is moving in; `plaza serve --empty` starts without it"] if filling else []),
        "Ctrl-C stops it.",
    ]
    say("\n".join(lines))


def say(words: str) -> None:
    """Print it, if anybody reads it: a server runs also where its output is a pipe that was closed, or a full disk."""
    try:
        print(words, flush=True)
    except OSError as error:
        log.warning("nobody hears what is printed", error=error.strerror)
        # What is left to be written goes nowhere, also at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _valkey(settings: Settings) -> str:
    addresses, clustered = parse_url(settings.valkey_url)
    places = ", ".join(map(str, addresses))  # an address never shows its password
    return f"{places} (cluster)" if clustered else places


def work(settings: Settings) -> int:
    """`plaza worker`: run a worker alone until a signal."""
    return uvloop.run(_work(settings))


async def _work(settings: Settings) -> int:
    life = Life()
    life.heed_signals()
    with contextlib.suppress(Ended):
        url: str | None = settings.valkey_url or await life.unless_ended(servers_url(settings.data_dir))
        if url is None:
            raise OperatorError(
                f"No server runs in {settings.data_dir.absolute()}, so there is no Valkey to work on. "
                "Start `plaza serve`, or set PLAZA_VALKEY_URL."
            )
        await labour(replace(settings, valkey_url=url), life, lambda: say("The worker is running."))
    return life.status


async def labour(settings: Settings, life: Life, ready: Callable[[], None]) -> None:
    """Run timers and consumers in this process until life ends."""
    async with contextlib.AsyncExitStack() as stack:
        plaza = await life.unless_ended(stack.enter_async_context(running(settings)))
        await stack.enter_async_context(working(plaza, life))
        ready()
        await life.ending.wait()


def child(arguments: list[str]) -> int:
    """What a process of the family does: `api LISTENING_SOCKET READY` or `worker READY`."""
    configure_logs()
    role, *handles = arguments
    ready = int(handles.pop())

    def tell() -> None:
        os.write(ready, b".")
        os.close(ready)

    async def run() -> int:
        life = Life()
        life.heed_signals()
        settings = Settings.from_env()
        with contextlib.suppress(Ended):
            if role == "api":
                with socket.socket(fileno=int(handles[0])) as sock:
                    await answer(settings, sock, life, tell)
            else:
                await labour(settings, life, tell)
        return life.status

    try:
        return uvloop.run(run())
    except FORESEEN as error:
        return complain(error)


if __name__ == "__main__":
    sys.exit(child(sys.argv[1:]))
