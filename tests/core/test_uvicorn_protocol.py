"""Clients that send incomplete, endless or invalid requests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import httpx
import msgspec
import pytest

from plaza.core.http import uvicorn_protocol
from tests.core.sample_domain import Shelf, app_of, token
from tests.http_servers import client_of, raw
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
