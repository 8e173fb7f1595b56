"""Disconnecting clients, shutdown and streamed responses."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from plaza.core.http import app as http_app
from plaza.core.http import event_stream_sender, streaming
from plaza.core.http.app import App
from plaza.core.http.request import Request
from plaza.core.metrics import exposition
from tests.core.sample_domain import Shelf, app_of, token
from tests.http_servers import client_of, serving
from tests.servers import free_port
from tests.timeouts import TIME_LIMIT_SECONDS, within_time_limit
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]


class RecordingObserver:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, str, int]] = []

    def request_completed(self, request: Request, status: int, seconds: float) -> None:
        assert seconds >= 0
        self.answers.append((request.method, request.template, status))


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def observer() -> RecordingObserver:
    return RecordingObserver()


@pytest.fixture
def app(shelf: Shelf, observer: RecordingObserver) -> App:
    return app_of(shelf, observer=observer)


@pytest.fixture
async def client(app: App) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app, **token()) as client:
        yield client


async def disconnect(client: httpx.AsyncClient, request: bytes, shelf: Shelf) -> None:
    """Send a request, wait until its handler runs, and leave."""
    _, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
    writer.write(request)
    async with within_time_limit():
        await shelf.begun.wait()
    writer.close()


async def test_a_read_is_cancelled_when_its_client_disconnects(
    client: httpx.AsyncClient, app: App, shelf: Shelf, observer: RecordingObserver
) -> None:
    await disconnect(client, b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n", shelf)
    await eventually(lambda: app.in_flight == 0)
    assert shelf.events == ["begun", "cancelled"]
    assert observer.answers == [("GET", "/slow", 499)]


async def test_a_slow_read_completes_for_a_client_that_waits(client: httpx.AsyncClient, shelf: Shelf) -> None:
    asking = asyncio.create_task(client.get("/slow"))
    await shelf.begun.wait()
    await asyncio.sleep(3 * streaming.WATCH_DELAY_SECONDS)
    shelf.go_on.set()
    assert (await asking).json() == {"done": True}
    assert shelf.events == ["begun", "done"]


async def test_a_write_completes_although_its_client_disconnects(
    client: httpx.AsyncClient, app: App, shelf: Shelf, observer: RecordingObserver
) -> None:
    await disconnect(client, b"POST /slow HTTP/1.1\r\nhost: x\r\n\r\n", shelf)
    await asyncio.sleep(3 * streaming.WATCH_DELAY_SECONDS)
    assert shelf.events == ["begun"]
    shelf.go_on.set()
    await eventually(lambda: app.in_flight == 0)
    assert shelf.events == ["begun", "done"]
    assert observer.answers == [("POST", "/slow", 200)]


async def test_the_observer_gets_each_request_once_with_its_template(
    client: httpx.AsyncClient, observer: RecordingObserver
) -> None:
    for method, path in [
        ("GET", "/things/99"),
        ("HEAD", "/me"),
        ("GET", "/nowhere"),
        ("POST", "/me"),
        ("GET", "/errors/bug"),
    ]:
        await client.request(method, path)
    assert observer.answers == [
        ("GET", "/things/{thing}", 404),
        ("HEAD", "/me", 200),
        ("GET", "", 404),
        ("POST", "/me", 405),
        ("GET", "/errors/{name}", 500),
    ]


async def test_requests_in_flight_are_shown_while_there_are_any(
    client: httpx.AsyncClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_app, "SAMPLE_SECONDS", 0.01)
    asking = asyncio.create_task(client.get("/slow"))
    await eventually(lambda: b"plaza_http_requests_in_flight 1.0" in exposition())
    shelf.go_on.set()
    await asking
    await eventually(lambda: b"plaza_http_requests_in_flight 0.0" in exposition())


async def test_events_come_as_they_happen(client: httpx.AsyncClient, shelf: Shelf) -> None:
    async with client.stream("GET", "/events?count=2") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["x-request-id"]
        text = ""
        async for piece in answer.aiter_text():
            text += piece
            if "Lamp" in text:
                break
        assert text == (
            'event: tick evil: 1\nid: 0\nretry: 500\ndata: {"n":0}\n\n'
            'event: tick evil: 1\nid: 1\nretry: 500\ndata: {"n":1}\n\n'
            'data: {"id":1,"title":"Lamp","author":"ana"}\n\n'
        )
    await eventually(lambda: shelf.events == ["closed"])  # the handler's own finally ran


async def test_a_silent_stream_of_events_is_kept_alive(
    client: httpx.AsyncClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream_sender, "KEEP_ALIVE_SECONDS", 0.01)
    async with client.stream("GET", "/events?count=0") as answer:
        text = ""
        async for piece in answer.aiter_text():
            text += piece
            if text.endswith(":\n\n:\n\n"):
                break
    await eventually(lambda: shelf.events == ["closed"])


async def test_a_stream_of_rows_ends_with_its_handler(client: httpx.AsyncClient, shelf: Shelf) -> None:
    answer = await client.get("/rows.csv")
    assert (answer.text, answer.headers["content-type"]) == ("row 0\nrow 1\nrow 2\n", "text/csv; charset=utf-8")
    assert shelf.events == ["closed"]


async def test_a_stream_is_closed_when_its_client_disconnects(
    client: httpx.AsyncClient, app: App, shelf: Shelf
) -> None:
    await disconnect(client, b"GET /rows.csv?count=200 HTTP/1.1\r\nhost: x\r\n\r\n", shelf)
    await eventually(lambda: app.in_flight == 0)
    assert shelf.events == ["closed"]


async def test_a_client_that_does_not_read_pauses_the_stream(client: httpx.AsyncClient, app: App, shelf: Shelf) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port, limit=1024)
    writer.write(b"GET /rows.csv?count=100000000 HTTP/1.1\r\nhost: x\r\n\r\n")
    await eventually(lambda: app.in_flight == 1)
    await asyncio.sleep(0.2)
    assert not shelf.begun.is_set(), "it would have run through if nothing had held it back"
    writer.transport.abort()
    await eventually(lambda: app.in_flight == 0)


async def test_a_failing_stream_breaks_the_connection(client: httpx.AsyncClient) -> None:
    with capture_logs() as log, pytest.raises(httpx.RemoteProtocolError):
        await client.get("/broken.csv")
    assert [line["event"] for line in log] == ["stream_failed"]


async def test_a_draining_server_completes_requests_and_closes_connections(
    client: httpx.AsyncClient, app: App, shelf: Shelf
) -> None:
    asking = asyncio.create_task(client.get("/slow"))
    await shelf.begun.wait()
    app.drain()
    late = await client.get("/me")
    assert (late.status_code, late.headers["connection"]) == (200, "close")
    shelf.go_on.set()
    answer = await asking
    assert (answer.json(), answer.headers["connection"]) == ({"done": True}, "close")


async def test_draining_ends_event_streams_cleanly(client: httpx.AsyncClient, app: App, shelf: Shelf) -> None:
    async with client.stream("GET", "/events") as answer:
        await shelf.begun.wait()
        app.drain()
        text = "".join([piece async for piece in answer.aiter_text()])
    assert text.endswith("\n\n"), "whole events only, and the stream ends without an error"
    assert shelf.events == ["closed"]


async def test_uvicorn_stops_while_events_stream_and_a_write_runs(app: App, shelf: Shelf) -> None:
    async with within_time_limit(), httpx.AsyncClient(verify=False, timeout=TIME_LIMIT_SECONDS) as client:
        async with serving(app) as url:
            writing = asyncio.create_task(client.post(f"{url}/slow"))
            await shelf.begun.wait()
            shelf.begun.clear()
            reading = asyncio.create_task(client.get(f"{url}/events"))
            await shelf.begun.wait()
            app.drain()
            asyncio.get_running_loop().call_later(0.15, shelf.go_on.set)
        assert (await writing).json() == {"done": True}
        assert (await reading).status_code == 200


SERVER = """
import sys
from pathlib import Path

import uvicorn

from tests.core.sample_domain import Shelf, app_of

shelf = Shelf()
app = app_of(shelf)

class Server(uvicorn.Server):
    async def on_tick(self, counter):
        if shelf.begun.is_set():
            Path(sys.argv[2]).touch()
        return await super().on_tick(counter)

    def handle_exit(self, sig, frame):
        app.drain()
        shelf.go_on.set()
        super().handle_exit(sig, frame)

config = uvicorn.Config(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False)
Server(config).run()
"""


Served = tuple[asyncio.subprocess.Process, httpx.AsyncClient, Path]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A server in a process of its own, a client of it, and a file that is there once a slow request has begun."""
    port, begun = free_port(), tmp_path / "begun"
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-c", SERVER, str(port), str(begun)]
    process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=url, verify=False, timeout=TIME_LIMIT_SECONDS) as client:
        yield process, client, begun
    if process.returncode is None:
        process.kill()
        await process.wait()


async def is_up(client: httpx.AsyncClient) -> bool:
    with contextlib.suppress(httpx.ConnectError):
        return (await client.get("/me")).is_success
    return False


async def test_a_process_completes_requests_before_it_stops(served: Served) -> None:
    process, client, begun = served
    await eventually(lambda: is_up(client))
    asking = asyncio.create_task(client.post("/slow"))
    await eventually(begun.exists)
    process.send_signal(signal.SIGTERM)
    assert (await asking).json() == {"done": True}
    async with within_time_limit():
        assert await process.wait() in (0, -signal.SIGTERM)
