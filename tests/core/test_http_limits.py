"""Rate limits over HTTP: reads do not wait for them, refused writes do no work."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from plaza.core.functions import Functions
from plaza.core.metrics import exposition
from plaza.core.rate_limits import LIBRARY, Limiter, Policy, Quota
from plaza.core.telemetry import RequestLog
from tests.core.sample_domain import Shelf, app_of, token
from tests.http_servers import client_of, is_problem
from tests.servers import Server
from tests.timeouts import connect_for_test

# What an address may write comes back so slowly that a hundred requests, however long they take, bring none of it back.
POLICIES = {"read": Policy(Quota(3, 60), Quota(100, 60)), "write": Policy(Quota(2, 60), Quota(100, 36_000))}


class RecordingProxy:
    """Stands between us and Valkey and keeps what each write held."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.writes: list[bytes] = []
        self.connections = asyncio.Semaphore(0)  # those that have ended

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_valkey, to_valkey = await asyncio.open_connection("127.0.0.1", self.port)

        async def back() -> None:
            while data := await from_valkey.read(65_536):
                writer.write(data)

        async def forth() -> None:
            while data := await reader.read(65_536):
                self.writes.append(data)
                to_valkey.write(data)
            to_valkey.close()

        with contextlib.suppress(ConnectionError):
            await asyncio.gather(back(), forth())
        for end in (writer, to_valkey):
            end.close()
            await end.wait_closed()
        self.connections.release()


class LimitedApp:
    def __init__(self, client: httpx.AsyncClient, shelf: Shelf, proxy: RecordingProxy, log: io.StringIO) -> None:
        self.client, self.shelf, self.proxy, self.log = client, shelf, proxy, log


@pytest.fixture
async def limited(server: Server) -> AsyncIterator[LimitedApp]:
    proxy = RecordingProxy(server.port)
    listening = await asyncio.start_server(proxy.forward, "127.0.0.1", 0)
    valkey = await connect_for_test(f"valkey://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    functions = Functions(valkey, [LIBRARY])
    await functions.load()
    shelf, log = Shelf(valkey=valkey), io.StringIO()
    app = app_of(shelf, limiter=Limiter(functions, policies=POLICIES), observer=RequestLog(log, pretty=False))
    async with client_of(app, **token()) as client:
        yield LimitedApp(client, shelf, proxy, log)
    await valkey.close()
    await proxy.connections.acquire()
    listening.close()
    await listening.wait_closed()


async def test_the_limit_of_a_read_is_sent_with_its_own_command_in_one_write(limited: LimitedApp) -> None:
    limited.proxy.writes.clear()
    answer = await limited.client.get("/trips/1")
    assert answer.status_code == 200
    assert len(limited.proxy.writes) == 1
    assert b"limits_spend" in limited.proxy.writes[0]
    assert b"PING" in limited.proxy.writes[0]
    assert '2 round trips"' in answer.headers["server-timing"]


async def test_a_read_over_the_limit_is_429_whatever_its_handler_returns(limited: LimitedApp) -> None:
    left = [(await limited.client.get("/trips/0")).headers["ratelimit"] for _ in range(3)]
    assert [text.split(";")[1] for text in left] == ["r=2", "r=1", "r=0"]
    for path in ("/trips/1", "/errors/gone", "/errors/bug", "/things?limit=0"):
        refused = await limited.client.get(path)
        is_problem(refused, 429, "too_fast")
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["ratelimit"].startswith('"read";r=0;')
        assert refused.headers["ratelimit-policy"] == '"read";q=3;w=60'


async def test_wrong_credentials_on_an_open_route_count_by_address_only(limited: LimitedApp) -> None:
    answer = await limited.client.get("/trips/0", headers={"authorization": "Bearer stale"})
    assert answer.status_code == 200
    assert answer.headers["ratelimit-policy"] == '"read";q=100;w=60'


async def test_guessing_credentials_uses_up_the_limit_of_the_address(limited: LimitedApp) -> None:
    wrong = {"authorization": "Bearer guessed"}
    answers = [await limited.client.post("/things", json={"title": "x"}, headers=wrong) for _ in range(102)]
    assert [answer.status_code for answer in answers] == [401] * 100 + [429] * 2
    assert not limited.shelf.things


async def test_a_write_over_the_limit_does_not_run(limited: LimitedApp) -> None:
    answers = [await limited.client.post("/things", json={"title": "x"}) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [201, 201, 429, 429]
    assert len(limited.shelf.things) == 2
    assert answers[0].headers["ratelimit"].startswith('"write";r=1;')


async def test_health_and_documents_are_not_limited(limited: LimitedApp) -> None:
    for _ in range(10):
        assert (await limited.client.get("/openapi.json")).status_code == 200
        assert "ratelimit" not in (await limited.client.get("/metrics")).headers


async def test_each_request_has_one_line_without_secrets_and_is_counted_by_its_template(limited: LimitedApp) -> None:
    secret = token()["authorization"]
    await limited.client.get("/things/7?cursor=hush-hush", headers={"x-request-id": "r1", "authorization": secret})
    await limited.client.get("/trips/2", headers={"x-request-id": "r2"})
    await asyncio.sleep(0)
    lines = [json.loads(line) for line in limited.log.getvalue().splitlines()]
    assert [line["request_id"] for line in lines] == ["r1", "r2"]
    assert (lines[1]["method"], lines[1]["route"], lines[1]["status"], lines[1]["trips"]) == (
        "GET",
        "/trips/{count}",
        200,
        3,
    )
    assert lines[1]["ms"] > 0
    assert "hush-hush" not in limited.log.getvalue()
    assert secret[7:] not in limited.log.getvalue()
    numbers = exposition().decode()
    assert 'plaza_http_requests_total{method="GET",route="/trips/{count}",status="2xx"}' in numbers
    assert "/trips/2" not in numbers
    for _ in range(4):
        await limited.client.get("/me")
    assert 'plaza_http_rate_limited_total{kind="read"}' in (await limited.client.get("/metrics")).text


async def test_a_refused_read_neither_runs_its_handler_nor_uses_valkey(limited: LimitedApp) -> None:
    for _ in range(4):
        last = await limited.client.get("/trips/0")
    is_problem(last, 429, "too_fast")
    limited.proxy.writes.clear()
    refused = await limited.client.get("/trips/1")
    is_problem(refused, 429, "too_fast")
    assert refused.headers["ratelimit"].startswith('"read";r=0;')
    assert limited.proxy.writes == []
    is_problem(await limited.client.get("/errors/gone", headers={"authorization": "Bearer wrong"}), 410, "gone")


async def test_a_costly_read_is_counted_before_its_handler_runs(limited: LimitedApp) -> None:
    for _ in range(3):
        assert (await limited.client.get("/costly")).status_code == 200
    is_problem(await limited.client.get("/costly"), 429, "too_fast")
    assert limited.shelf.events == ["costly"] * 3
