"""Opening the port: what goes wrong is said so that it can be put right."""

from __future__ import annotations

import socket

import pytest

from plaza.core.process.listening_socket import CannotListen, address_of, listen


def test_port_0_picks_a_free_one_and_its_address_can_be_opened() -> None:
    with listen("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        assert address_of(sock) == f"http://127.0.0.1:{port}"
        with socket.create_connection(("127.0.0.1", port)):
            pass


def test_every_address_of_the_machine_is_shown_as_one_that_a_browser_can_open() -> None:
    with listen("0.0.0.0", 0) as sock:
        assert address_of(sock).startswith("http://127.0.0.1:")


def test_version_6_addresses_work() -> None:
    with listen("::1", 0) as sock:
        assert address_of(sock) == f"http://[::1]:{sock.getsockname()[1]}"


def test_a_taken_port_is_named() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(CannotListen, match=f"Port {port} of 127.0.0.1 is taken"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("no such host", "PLAZA_HOST 'no such host' is not an address"),
        ("203.0.113.1", "PLAZA_HOST 203.0.113.1 is not an address of this machine"),
    ],
)
def test_a_host_that_is_none_of_ours_is_named(host: str, said: str) -> None:
    with pytest.raises(CannotListen, match=said):
        listen(host, 0)
