"""The listening socket, and its errors."""

from __future__ import annotations

import socket

import pytest

from plaza.core.process.listening_socket import CannotListen, listen, local_url


def test_port_0_picks_a_free_port() -> None:
    with listen("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        assert local_url(sock) == f"http://127.0.0.1:{port}"
        with socket.create_connection(("127.0.0.1", port)):
            pass


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
