"""Clients that reset their connection at any point leave nothing in the log but the requests that they sent."""

from __future__ import annotations

import json
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.processes import serving, until

CONNECTIONS: Final = 500
# `SO_LINGER` with a time of zero: `close` sends a reset and drops what was not read.
RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)


def request(path: str, method: str = "GET", *headers: str) -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "host: localhost", *headers, "", "")).encode()


# What a client sends, and whether it then waits for the first bytes of the response.
STAGES: Final = {
    "connected": (b"", False),
    "in the headers": (request("/ping")[:-4], False),
    "in the body": (request("/auth/register", "POST", "content-length: 900") + b'{"username": "an', False),
    "in a large body": (request("/auth/register", "POST", "content-length: 900000") + b" " * 300_000, False),
    "before the body": (request("/auth/register", "POST", "content-length: 9", "expect: 100-continue"), False),
    "waiting for the response": (request("/feed/explore"), False),
    "waiting for a page": (request("/app"), False),
    "in a large response": (request("/openapi.json"), True),
    "in an event stream": (request("/feed/explore/stream"), True),
    "with requests in line": (request("/feed/explore") * 200, True),
    "with requests in line and a response": (request("/openapi.json") * 5 + request("/ping") * 5, True),
    "invalid": (b"\x16\x03\x01\r\n\r\n", False),
}


def reset_at(address: tuple[str, int], sent: bytes, waits: bool) -> None:
    with socket.create_connection(address) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(sent)
        if waits:
            assert client.recv(16)


def test_no_exception_is_logged_when_clients_reset_their_connections(tmp_path: Path) -> None:
    with serving(tmp_path / "var", PLAZA_RATE_LIMITS="off") as server:
        parts = urlsplit(server.url)
        address = (str(parts.hostname), parts.port or 0)
        stages = list(STAGES.values())
        with ThreadPoolExecutor(20) as clients:
            sent = [clients.submit(reset_at, address, *stages[n % len(stages)]) for n in range(CONNECTIONS)]
        for done in sent:
            error = done.exception()
            assert error is None or isinstance(error, ConnectionError), error
        until(lambda: server.get("/readyz").status_code == 200)
        assert server.stop() == 0
        lines = [json.loads(line) for line in server.errors.read_text().splitlines()]
    assert [line for line in lines if line["level"] == "error" or "exception" in line] == []
