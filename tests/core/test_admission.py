"""An overloaded process refuses some requests, answers the others, and always answers health checks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest

from plaza.core import metrics
from plaza.core.http import admission_queue
from plaza.core.http.admission import HEALTH_PATHS, AdmissionControl
from plaza.core.http.admission_queue import LATE_SECONDS, MIN_RUNNING, TICK_SECONDS, AdmissionQueue, CompletionRate
from plaza.core.http.exchange import EVENT_STREAM, Exchange
from plaza.core.http.headers import Cors
from plaza.core.http.uvicorn_protocol import limited_protocol
from tests.http_servers import is_problem, serving
from tests.timeouts import TIME_LIMIT_SECONDS, within_time_limit
from tests.waiting import eventually

FOREVER = 600.0


class GatedApp:
    """Answers `/gated` when the gate is open; an event stream begins at once and ends when the gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.started = 0

    async def handle(self, exchange: Exchange) -> None:
        self.started += 1
        if exchange.path == "/stream":
            await exchange.start(200, [EVENT_STREAM], [])
            await exchange.write(b"data: 1\n\n")
            await self.gate.wait()
            await exchange.finish()
            return
        if exchange.path == "/gated":
            await self.gate.wait()
        await exchange.respond(200, (), [(b"content-length", b"0")], b"")


class OverloadedServer:
    """A server that runs one request at a time, and a client."""

    def __init__(self, max_waiting: int) -> None:
        self.app = GatedApp()
        self.queue = AdmissionQueue(max_waiting=max_waiting)
        cors = Cors(["https://shop.example"])
        self.control = AdmissionControl(self.app, self.queue, FOREVER, "/root", cors)
        self.client = httpx.AsyncClient()
        self.blocked: list[asyncio.Task[httpx.Response]] = []

    async def block(self, count: int = 1) -> None:
        """Send requests that take until the gate is open. One runs, the others wait."""
        for _ in range(count):
            self.blocked.append(asyncio.create_task(self.client.get("/gated")))
            await eventually(lambda: self.queue.running + len(self.queue) == len(self.blocked))

    async def unblock(self) -> list[int]:
        """Let them complete. Returns their statuses."""
        self.app.gate.set()
        return [answer.status_code for answer in await asyncio.gather(*self.blocked)]


@pytest.fixture
async def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OverloadedServer]:
    monkeypatch.setattr(admission_queue, "MIN_RUNNING", 1)
    monkeypatch.setattr(admission_queue, "STARTS_PER_TICK", 0)
    monkeypatch.setattr(admission_queue, "REFUSAL_SECONDS", 0.0)
    overloaded = OverloadedServer(request.param)
    async with serving(overloaded.app, lifespan="off", http=limited_protocol(None, overloaded.control)) as url:
        options: dict[str, Any] = {"timeout": TIME_LIMIT_SECONDS, "verify": False}
        async with httpx.AsyncClient(base_url=url, **options) as client:
            overloaded.client = client
            yield overloaded
            await overloaded.unblock()


def shed(reason: str) -> float:
    return float(metrics.HTTP_SHED.labels(reason)._value.get())


@pytest.mark.parametrize("server", [100], indirect=True)
async def test_a_request_that_waits_too_long_is_refused_and_counted(server: OverloadedServer) -> None:
    before = shed("waited")
    await server.block()
    server.control.read_seconds = 0.05
    refused = await server.client.get("/other")
    assert "try again later" in is_problem(refused, 503, "overloaded")["detail"].lower()
    assert refused.headers["retry-after"] == "1"
    assert server.app.started == 1
    await eventually(lambda: shed("waited") == before + 1)
    assert await server.unblock() == [200]
    server.control.read_seconds = FOREVER
    assert (await server.client.get("/other")).status_code == 200


@pytest.mark.parametrize("server", [1], indirect=True)
async def test_scripts_of_allowed_origins_can_read_a_refusal(server: OverloadedServer) -> None:
    async def refused(origin: str) -> httpx.Headers:
        answer = await server.client.get("/other", headers={"origin": origin})
        assert answer.status_code == 503
        return answer.headers

    await server.block()
    server.control.read_seconds = 0.05
    waited = await refused("https://shop.example")
    server.control.read_seconds = FOREVER
    await server.block()
    on_arrival = await refused("https://shop.example")
    for headers in (waited, on_arrival):
        assert headers["access-control-allow-origin"] == "https://shop.example"
        assert "retry-after" in headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in await refused("https://other.example")


@pytest.mark.parametrize("server", [1], indirect=True)
async def test_health_checks_are_answered_by_an_overloaded_process(server: OverloadedServer) -> None:
    await server.block(2)
    assert (await server.client.get("/other")).status_code == 503
    for path in HEALTH_PATHS:
        assert (await server.client.get(path)).status_code == 200
        assert (await server.client.get(f"/root{path}")).status_code == 200


@pytest.mark.parametrize("server", [100], indirect=True)
async def test_requests_that_can_wait_are_all_answered(server: OverloadedServer) -> None:
    await server.block(4)
    assert server.app.started == 1
    assert await server.unblock() == [200] * 4
    assert (server.queue.running, len(server.queue)) == (0, 0)


@pytest.mark.parametrize("server", [1], indirect=True)
async def test_a_request_refused_on_arrival_leaves_its_connection_usable(server: OverloadedServer) -> None:
    await server.block(2)
    before = shed("queue_full")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client.base_url.port)
    async with within_time_limit():
        # A body that looks like a request, a request that waits behind the refusal, and one after it.
        body = b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n"
        writer.write(b"POST /other HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        writer.write(b"GET /other?page=2 HTTP/1.1\r\nhost: x\r\n\r\n")
        for _ in range(2):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503")
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            assert b'"code":"overloaded"' in await reader.readexactly(int(length))
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()
    assert server.app.started == 2  # the blocked one and the health check
    await eventually(lambda: shed("queue_full") == before + 2)


@pytest.mark.parametrize("server", [5], indirect=True)
async def test_a_burst_is_refused_on_arrival(server: OverloadedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_queue, "REFUSAL_SECONDS", FOREVER)
    before = shed("queue_full")
    connections = [await asyncio.open_connection("127.0.0.1", server.client.base_url.port) for _ in range(20)]
    for _, writer in connections:  # all before the server reads the first
        writer.write(b"GET /gated HTTP/1.1\r\nhost: x\r\n\r\n")
    await eventually(lambda: shed("queue_full") == before + 14)
    assert (server.queue.running, len(server.queue), len(server.queue._refused)) == (1, 5, 14)
    for _, writer in connections:
        writer.close()


async def test_responses_to_refused_requests_take_a_small_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_queue, "REFUSAL_SECONDS", 0.0)
    monkeypatch.setattr(admission_queue, "REFUSAL_SHARE", 0.0)
    queue, responded = AdmissionQueue(), list[int]()
    for number in range(9):
        queue.refuse_later(partial(responded.append, number))
    queue._tick()
    assert responded == [0]
    await eventually(lambda: responded == list(range(9)))


@pytest.mark.parametrize("server", [1], indirect=True)
async def test_a_refused_connection_that_cannot_go_on_is_closed(server: OverloadedServer) -> None:
    await server.block(2)
    for request in (
        b"GET /other HTTP/1.0\r\nhost: x\r\n\r\n",
        b"POST /other HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.client.base_url.port)
        writer.write(request)
        async with within_time_limit():
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"connection: close\r\n" in answer
        writer.close()


@pytest.mark.parametrize("server", [100], indirect=True)
async def test_open_event_streams_do_not_count_as_running(server: OverloadedServer) -> None:
    async with server.client.stream("GET", "/stream") as stream:
        assert await anext(stream.aiter_bytes()) == b"data: 1\n\n"
        assert server.queue.running == 0
        assert (await server.client.get("/other")).status_code == 200
    server.app.gate.set()


async def test_requests_that_wait_for_something_slow_keep_no_other_from_starting() -> None:
    queue = AdmissionQueue()
    async with within_time_limit():
        for _ in range(MIN_RUNNING * 10):
            assert await queue.enter(time.monotonic(), FOREVER)
    assert queue.running == MIN_RUNNING * 10
    for _ in range(MIN_RUNNING * 10):
        queue.leave()


async def test_a_late_event_loop_starts_nothing_until_it_recovers() -> None:
    queue = AdmissionQueue()
    for _ in range(MIN_RUNNING):
        assert await queue.enter(time.monotonic(), FOREVER)
    time.sleep(TICK_SECONDS + 2 * LATE_SECONDS)  # noqa: ASYNC251 (it blocks the loop, as a long computation does)
    waiting = asyncio.create_task(queue.enter(time.monotonic(), FOREVER))
    await asyncio.sleep(0)
    assert len(queue) == 1
    async with within_time_limit():
        assert await waiting
    for _ in range(MIN_RUNNING + 1):
        queue.leave()


def test_a_pause_does_not_lower_what_a_process_is_known_to_complete() -> None:
    rate, now = CompletionRate(), time.monotonic()
    rates = []
    for second, completed in enumerate((0, 100, 0, 20), start=1):
        rate.completed = completed
        rate.measure(now + second, is_saturated=True)
        rates.append(rate.per_second)
    assert rates == [None, *[pytest.approx(100, rel=0.1)] * 3]
    rate.measure(now + 5, is_saturated=False)
    assert rate.per_second is None


async def test_time_before_the_first_step_of_a_request_counts_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_queue, "STARTS_PER_TICK", 0)
    queue = AdmissionQueue()
    for _ in range(MIN_RUNNING):
        assert await queue.enter(time.monotonic() - 1.0, 0.5)  # a pause of the process is no overload
    assert not await queue.enter(time.monotonic() - 1.0, 0.5)
    for _ in range(MIN_RUNNING):
        queue.leave()


async def test_a_cancelled_request_leaves_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_queue, "STARTS_PER_TICK", 0)
    queue = AdmissionQueue()
    for _ in range(MIN_RUNNING):
        await queue.enter(time.monotonic(), FOREVER)
    cancelled, admitted, waits = (asyncio.create_task(queue.enter(time.monotonic(), FOREVER)) for _ in range(3))
    await eventually(lambda: len(queue) == 3)
    cancelled.cancel()
    queue.leave()  # skips the cancelled one, and admits the next
    admitted.cancel()  # before it knows
    async with within_time_limit():
        assert await waits
    assert queue.running == MIN_RUNNING
    for _ in range(MIN_RUNNING):
        queue.leave()
    assert queue.running == 0
