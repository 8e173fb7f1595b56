"""The listening socket, and its errors."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
import uvloop

from plaza.core.process.listening_socket import (
    ACCEPTS_PER_TURN,
    CannotListen,
    accepting_sockets,
    listen,
    local_url,
)
from tests.timeouts import within_time_limit


def test_port_0_picks_a_free_port() -> None:
    with listen("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        assert local_url(sock) == f"http://127.0.0.1:{port}"
        with socket.create_connection(("127.0.0.1", port)):
            pass


def test_several_connections_are_accepted_in_a_turn_of_the_event_loop() -> None:
    accepted: list[asyncio.BaseTransport] = []

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(transport)

    async def turns_to_accept(sockets: list[socket.socket], count: int) -> int:
        loop, turns = asyncio.get_running_loop(), 0
        servers = [await loop.create_server(Accepted, sock=sock) for sock in sockets]
        with contextlib.ExitStack() as clients:
            for _ in range(count):
                clients.enter_context(socket.create_connection(sockets[0].getsockname()))
            async with within_time_limit():
                while len(accepted) < count:
                    await asyncio.sleep(0)
                    turns += 1
        for server in servers:
            server.close()
        for transport in accepted:
            transport.close()
        return turns

    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(sock) for sock in accepting_sockets(listen("127.0.0.1", 0))]
        assert uvloop.run(turns_to_accept(sockets, 20 * ACCEPTS_PER_TURN)) < 40


def test_every_local_url_the_machine_is_shown_as_one_that_a_browser_can_open() -> None:
    with listen("0.0.0.0", 0) as sock:
        assert local_url(sock).startswith("http://127.0.0.1:")


def test_ipv6_addresses_work() -> None:
    with listen("::1", 0) as sock:
        assert local_url(sock) == f"http://[::1]:{sock.getsockname()[1]}"


def test_a_port_in_use_is_named_in_the_error() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(CannotListen, match=f"Port {port} of 127.0.0.1 is in use"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("no such host", "PLAZA_HOST 'no such host' is not an address"),
        ("203.0.113.1", "PLAZA_HOST 203.0.113.1 is not an address of this machine"),
    ],
)
def test_an_address_of_another_machine_is_named_in_the_error(host: str, message: str) -> None:
    with pytest.raises(CannotListen, match=message):
        listen(host, 0)
