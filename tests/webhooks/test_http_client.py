"""Requests to endpoints: where they may go, what they wait for, and what a misbehaving receiver can do."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from plaza.core.errors import Invalid
from plaza.webhooks import endpoint_connections
from plaza.webhooks.endpoint_connections import AddressRefused, EndpointConnections
from plaza.webhooks.http_client import WebhookClient, system_lookup
from plaza.webhooks.model import CONCURRENCY, SendOutcome
from plaza.webhooks.targets import check_url, is_public
from tests.webhooks.receiver import (
    Receiver,
    answer,
    close_in_the_middle,
    close_without_answer,
    hang,
    never_ending_body,
    receiving,
)

PRIVATE = [
    *("127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1"),
    *("255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1", "ff02::1"),
    *("2001:db8::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1"),
    *("2002:7f00:1::", "2002:a00:1::", "2001:0:4136:e378:8000:63bf:80ff:fffe", "localhost", ""),
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


def test_only_public_addresses_are_public() -> None:
    assert [address for address in PRIVATE if is_public(address)] == []
    assert [address for address in PUBLIC if not is_public(address)] == []


@pytest.mark.parametrize(
    "url",
    ["http://example.org/", "https://127.0.0.1/", "https://[::1]/", "https://[::ffff:10.0.0.1]/", "https://10.1/"],
)
def test_a_private_url_is_refused_early_where_it_is_obvious(url: str) -> None:
    check_url(url, allow_private=True)
    if url == "https://10.1/":  # a name, until the system reads it as an address: refused when it connects
        check_url(url, allow_private=False)
        return
    with pytest.raises(Invalid):
        check_url(url, allow_private=False)


@pytest.fixture
async def connections() -> AsyncIterator[EndpointConnections]:
    opened = WebhookClient(allow_private=True).connections()
    yield opened
    await opened.close()


async def post(connections: EndpointConnections, url: str) -> SendOutcome:
    return await connections.post(url, b"{}", {"webhook-id": "1"})


def answering(*addresses: str) -> Any:
    """A name server that gives one address after the other, the last one again and again."""
    left = list(addresses)

    def lookup(host: str, port: int) -> list[Any]:
        address = left.pop(0) if len(left) > 1 else left[0]
        return socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)

    return lookup


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "localhost", "127.1", "2130706433"]
)
async def test_an_internal_address_is_refused_when_it_connects(receiver: Receiver, host: str) -> None:
    opened = WebhookClient(allow_private=False).connections()
    try:
        outcome = await post(opened, f"http://{host}:{receiver.port}/")
    finally:
        await opened.close()
    assert not outcome.is_delivered
    assert outcome.reason is not None
    assert receiver.connections == 0
    if host not in ("127.1", "2130706433"):  # these are refused as no valid host
        assert outcome.reason == AddressRefused.MESSAGE


async def test_a_name_that_is_rebound_to_loopback_is_refused(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is public, the next ones are loopback: what was checked once does not count later."""
    monkeypatch.setattr(endpoint_connections, "DNS_SECONDS", 0)
    monkeypatch.setattr(endpoint_connections, "CONNECT_SECONDS", 0.2)
    # An address of the test network's public side, which does not answer.
    opened = WebhookClient(allow_private=False, lookup=answering("192.88.99.1", "127.0.0.1")).connections()
    try:
        first = await post(opened, f"http://rebinding.example:{receiver.port}/")
        second = await post(opened, f"http://rebinding.example:{receiver.port}/")
    finally:
        await opened.close()
    assert first.reason != AddressRefused.MESSAGE
    assert second.reason == AddressRefused.MESSAGE
    assert receiver.connections == 0


async def test_of_several_addresses_only_public_ones_are_used(receiver: Receiver) -> None:
    def lookup(host: str, port: int) -> list[Any]:
        both = ("127.0.0.1", "::1")
        return [entry for each in both for entry in socket.getaddrinfo(each, port, type=socket.SOCK_STREAM)]

    opened = WebhookClient(allow_private=False, lookup=lookup).connections()
    try:
        outcome = await post(opened, f"http://both.example:{receiver.port}/")
    finally:
        await opened.close()
    assert outcome.reason == AddressRefused.MESSAGE
    assert receiver.connections == 0


async def test_host_and_certificate_name_stay_those_of_the_url(tmp_path: Path) -> None:
    server, client = self_signed(tmp_path, "hooks.example")
    async with receiving(server) as receiver:
        opened = WebhookClient(allow_private=True, lookup=answering("127.0.0.1"), tls=client).connections()
        right = await post(opened, f"https://hooks.example:{receiver.port}/")
        wrong = await post(opened, f"https://other.example:{receiver.port}/")
        await opened.close()
    assert right.is_delivered
    assert receiver.requests[0].headers["host"] == f"hooks.example:{receiver.port}"
    assert receiver.names[0] == "hooks.example"
    assert wrong.reason == "The certificate of the endpoint is not valid."
    assert len(receiver.requests) == 1


async def test_a_redirect_is_not_followed(receiver: Receiver, connections: EndpointConnections) -> None:
    async with receiving() as internal:
        receiver.respond = answer(302, b"", f"location: {internal.url}")
        outcome = await post(connections, receiver.url)
        assert outcome.reason == "HTTP 302: redirects are not followed."
        assert internal.connections == 0


async def test_connections_are_used_again(receiver: Receiver, connections: EndpointConnections) -> None:
    for _ in range(3):
        assert (await post(connections, receiver.url)).is_delivered
    assert receiver.connections == 1


@pytest.mark.parametrize("respond", [close_without_answer, close_in_the_middle])
async def test_a_receiver_that_closes_early_has_not_got_it(
    receiver: Receiver, connections: EndpointConnections, respond: Any
) -> None:
    receiver.respond = respond
    outcome = await post(connections, receiver.url)
    assert (outcome.is_delivered, outcome.code) == (False, None)
    assert outcome.reason


async def test_a_receiver_that_hangs_is_given_up(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_connections, "TOTAL_SECONDS", 0.2)
    receiver.respond = hang
    opened = WebhookClient(allow_private=True).connections()
    outcome = await post(opened, receiver.url)
    await opened.close()
    assert outcome.reason == "No response within 0.2 s."


async def test_a_body_without_end_is_not_read(receiver: Receiver, connections: EndpointConnections) -> None:
    receiver.respond = never_ending_body
    outcome = await post(connections, receiver.url)
    assert outcome.is_delivered  # the status said so
    assert (await post(connections, receiver.url)).is_delivered
    assert receiver.connections == 2


async def test_an_answer_that_is_not_http_is_a_failure(receiver: Receiver, connections: EndpointConnections) -> None:
    async def nonsense(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")

    receiver.respond = nonsense
    outcome = await post(connections, receiver.url)
    assert outcome.reason is not None
    assert "not valid HTTP" in outcome.reason


async def test_a_name_server_that_hangs_delays_no_other_endpoint(receiver: Receiver) -> None:
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def lookup(host: str, port: int) -> list[Any]:
        if host == "localhost":
            return system_lookup(host, port)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        return []

    client = WebhookClient(allow_private=True, lookup=lookup)
    slow = [client.connections() for _ in range(2 * CONCURRENCY)]
    waiting = [asyncio.create_task(post(each, "http://slow.example/")) for each in slow]
    quick = client.connections()
    assert (await post(quick, f"http://localhost:{receiver.port}/")).is_delivered
    release.set()
    assert [outcome.is_delivered for outcome in await asyncio.gather(*waiting)] == [False] * len(slow)
    for each in [*slow, quick]:
        await each.close()


def self_signed(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server with a certificate for a name, and of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cafile=file)
