"""Clients that send incomplete, endless or invalid requests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import httpx
import msgspec
import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from plaza.core.http import uvicorn_protocol
from plaza.core.http.exchange import ClientDisconnected
from plaza.core.http.http_exchange import HttpExchange, header_block
from plaza.core.http.streaming import CancelOnDisconnect
from plaza.core.http.uvicorn_protocol import GuardedHttpProtocol
from tests.core.sample_domain import Shelf, app_of, token
from tests.http_servers import client_of, raw, serving
from tests.timeouts import within_time_limit

GET = b"GET /echo/a HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture
async def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
async def port(shelf: Shelf) -> AsyncIterator[int]:
    async with client_of(app_of(shelf)) as client:
        assert client.base_url.port is not None
        yield client.base_url.port


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(uvicorn_protocol, "HEADER_TIMEOUT_SECONDS", 0.1)


async def used_connection(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has had a response. Its timeout restarts with the first byte of the next request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(GET + b"\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert msgspec.json.decode(await reader.readuntil(b"}")) == {"text": "a"}
    return reader, writer


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Return all bytes until the server closes the connection."""
    async with within_time_limit():
        return await reader.read()


def problem_of(answer: bytes) -> httpx.Response:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
    response = httpx.Response(int(first.split()[1]), headers=headers, content=body)
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["connection"] == "close"
    assert response.headers["x-request-id"] == response.json()["request_id"]
    assert response.headers["server-timing"].startswith('valkey;desc="0 round trips"')
    return response


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x00\xa5\x01\x00",
        b"hello\r\n\r\n",
        GET + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /things HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /things HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nno number\r\n",
    ],
)
async def test_an_invalid_request_gets_a_problem_document(port: int, sent: bytes) -> None:
    refused = problem_of(await raw(port, sent))
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_request")


async def test_trailers_are_not_headers(port: int) -> None:
    authorization = token()["authorization"].encode()
    head = b"POST /things HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    trailers = b"authorization: " + authorization + b"\r\nx-request-id: smuggled\r\n"
    answer = await raw(port, head + b'd\r\n{"title":"x"}\r\n0\r\n' + trailers + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"smuggled" not in answer


async def test_endless_headers_are_431(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in (GET + b"x: ", *[b"y" * 10_000] * 7):
        writer.write(piece)
        await asyncio.sleep(0.02)
    refused = problem_of(await rest(reader))
    assert (refused.status_code, refused.json()["limit"]) == (431, uvicorn_protocol.MAX_HEADER_BYTES)
    writer.close()


async def test_large_complete_headers_are_accepted(port: int) -> None:
    cookies = b"".join(b"x-%d: %s\r\n" % (i, b"y" * 1000) for i in range(30))
    assert (await raw(port, GET + cookies + b"connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_headers_that_arrive_slowly_are_ended(port: int, short_timeouts: Callable[[], None]) -> None:
    short_timeouts()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(GET)

    async def drip() -> None:
        while True:
            writer.write(b"x: y\r\n")
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    with contextlib.suppress(ConnectionResetError):  # a drop after the end may cost the client its answer
        await rest(reader)
    dripping.cancel()
    writer.close()


async def test_incomplete_headers_are_408_also_on_a_used_connection(
    port: int, short_timeouts: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = await used_connection(port)
    short_timeouts()
    writer.write(GET)
    assert problem_of(await rest(reader)).status_code == 408
    writer.close()
    # A first one's time begins with the connection: on a busy machine half of it must still come before it is over.
    monkeypatch.setattr(uvicorn_protocol, "HEADER_TIMEOUT_SECONDS", 1.0)
    assert problem_of(await raw(port, GET)).json()["code"] == "too_slow"


@pytest.mark.parametrize("before", [False, True])
async def test_a_silent_connection_is_closed(port: int, before: bool, short_timeouts: Callable[[], None]) -> None:
    if before:
        reader, writer = await used_connection(port)
        short_timeouts()
    else:
        short_timeouts()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\r\n")
    assert await rest(reader) == b""
    writer.close()


async def test_a_response_in_progress_is_not_interrupted_by_an_incomplete_request(
    port: int, shelf: Shelf, short_timeouts: Callable[[], None]
) -> None:
    reader, writer = await used_connection(port)
    short_timeouts()
    writer.write(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n" + GET)
    await shelf.begun.wait()
    await asyncio.sleep(0.3)
    shelf.go_on.set()
    answer = await rest(reader)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 408" in answer
    writer.close()


async def test_a_client_that_reads_nothing_is_disconnected(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_protocol, "READ_TIMEOUT_SECONDS", 0.1)
    text = b"a" * 4_000
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", port))

        async def ask_without_reading() -> None:
            while True:
                await loop.sock_sendall(client, b"GET /echo/%s HTTP/1.1\r\nhost: x\r\n\r\n" % text)

        async with within_time_limit():
            with pytest.raises(ConnectionError):
                await ask_without_reading()


class CountedTransport:
    """A transport that counts what is written."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.writes: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self._transport.write(data)


async def test_a_response_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    transports: list[CountedTransport] = []
    made = GuardedHttpProtocol.connection_made

    def counted(protocol: GuardedHttpProtocol, transport: Any) -> None:
        transports.append(CountedTransport(transport))
        made(protocol, cast(asyncio.Transport, transports[-1]))

    monkeypatch.setattr(GuardedHttpProtocol, "connection_made", counted)
    async with client_of(app_of()) as client:
        assert (await client.get("/echo/a")).json() == {"text": "a"}
    assert [len(transport.writes) for transport in transports] == [1]


async def test_a_read_that_is_done_is_not_cancelled_because_its_client_was_gone_before_it_began() -> None:
    config = Config(app_of(), log_config=None)
    config.load()
    exchange = HttpExchange(GuardedHttpProtocol(config, ServerState(), {}), "GET", "/", b"", {})
    exchange.task = asyncio.create_task(asyncio.sleep(0))
    exchange.disconnect()
    with CancelOnDisconnect(exchange):
        pass
    await exchange.task
    exchange.task = asyncio.create_task(asyncio.Event().wait())
    with pytest.raises(ClientDisconnected), CancelOnDisconnect(exchange):
        await exchange.task


async def test_pipelined_requests_are_answered_in_order_one_at_a_time(port: int, shelf: Shelf) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n" + GET.replace(b"echo/a", b"echo/b") + b"\r\n" + GET + b"\r\n")
    async with within_time_limit():
        await shelf.begun.wait()
        shelf.go_on.set()
        bodies = [(await reader.readuntil(b"}")).rpartition(b"\r\n")[2] for _ in range(3)]
    assert bodies == [b'{"done":true}', b'{"text":"b"}', b'{"text":"a"}']
    writer.close()


async def test_a_stream_for_http_1_0_ends_with_its_connection(port: int) -> None:
    head, _, body = (await raw(port, b"GET /rows.csv HTTP/1.0\r\nhost: x\r\n\r\n")).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert body == b"row 0\nrow 1\nrow 2\n"


async def test_a_connection_ends_if_nobody_knows_whether_a_body_follows(port: int) -> None:
    head = b"POST /things HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 200\r\n\r\n"
    answer = await raw(port, head)  # without a token, so that the body is not wanted
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"connection: close\r\n" in answer


async def test_a_client_that_asks_first_is_told_to_send_its_body(port: int) -> None:
    body = b'{"title":"x"}'
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /things HTTP/1.1\r\nhost: x\r\nauthorization: {token()['authorization']}\r\n"
    writer.write(head.encode() + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body))
    async with within_time_limit():
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201")
    writer.close()


async def test_what_follows_an_upgrade_is_not_a_request(port: int) -> None:
    upgrade = GET + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
    answer = await raw(port, upgrade + GET.replace(b"/echo/a", b"/echo/b") + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"connection: close\r\n" in answer


@pytest.mark.parametrize("target", [b"/echo/a#b", b"http://x/echo/a", b"http://x/echo/a?"])
async def test_other_forms_of_a_target_reach_their_path(port: int, target: bytes) -> None:
    answer = await raw(port, b"GET %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % target)
    assert answer.endswith(b'{"text":"a"}')


async def test_an_idle_connection_is_closed(shelf: Shelf) -> None:
    async with serving(app_of(shelf), timeout_keep_alive=0.05) as url:
        reader, writer = await used_connection(int(url.rpartition(":")[2]))
        assert await rest(reader) == b""
        writer.close()


@pytest.mark.parametrize(
    "pair", [(b"x-a\r\nb", b"c"), (b"x-a", b"b\r\nx-c: d"), (b"X-A", b"b"), (b"", b"b"), (b"x a", b"b")]
)
def test_no_header_can_begin_another(pair: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="not valid"):
        header_block((pair,))
