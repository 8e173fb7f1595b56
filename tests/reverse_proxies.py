"""Starts nginx and HAProxy with the configurations of `docs/`, with other ports and paths."""

from __future__ import annotations

import contextlib
import datetime
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.servers import START_SECONDS, free_port

Name = Literal["nginx", "haproxy"]
DOCS = Path(__file__).parent.parent / "docs"
FILES: dict[Name, str] = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg"}
HOST = "plaza.example.org"

# Around the file of a site, which a distribution's own configuration includes.
NGINX = """
user root;
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/plaza;
}}
"""


@dataclass(frozen=True, slots=True)
class ReverseProxy:
    """A running proxy: its ports, and those of the two servers behind it."""

    name: Name
    http: int
    https: int
    behind: tuple[int, int]


@contextlib.contextmanager
def running_proxy(name: Name, folder: Path) -> Iterator[ReverseProxy]:
    """Run a proxy during the block, on other ports if one was taken meanwhile."""
    _write_certificate(folder)
    for _ in range(5):
        proxy = ReverseProxy(name, free_port(), free_port(), (free_port(), free_port()))
        _write_configuration(proxy, folder)
        process = subprocess.Popen(_command(name, folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if _accepts(proxy, process):
                yield proxy
                return
        finally:
            process.terminate()
            process.wait(START_SECONDS)
    raise AssertionError(f"{name} did not start")


def _command(name: Name, folder: Path) -> list[str]:
    if name == "nginx":
        return ["/usr/sbin/nginx", "-p", str(folder), "-c", str(folder / "main"), "-e", str(folder / "log")]
    return ["/usr/sbin/haproxy", "-db", "-f", str(folder / "plaza")]


def _write_configuration(proxy: ReverseProxy, folder: Path) -> None:
    text = (DOCS / FILES[proxy.name]).read_text()
    listens = "listen " if proxy.name == "nginx" else "bind :"
    for documented, own in (
        (f"{listens}80", f"{listens}{proxy.http}"),
        (f"{listens}443", f"{listens}{proxy.https}"),
        ("127.0.0.1:8001", f"127.0.0.1:{proxy.behind[0]}"),
        ("127.0.0.1:8002", f"127.0.0.1:{proxy.behind[1]}"),
        ("/etc/ssl/plaza/", f"{folder}/"),
    ):
        assert documented in text, documented
        text = text.replace(documented, own)
    # HAProxy needs two file descriptors for each, which the tests may not have.
    (folder / "plaza").write_text(text.replace("maxconn 4000", "maxconn 100"))
    (folder / "main").write_text(NGINX.format(folder=folder))


def _accepts(proxy: ReverseProxy, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the proxy accepts connections. False if it ended instead."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", proxy.https), 1):
            return True
        assert time.monotonic() < deadline, f"{proxy.name} does not accept connections"
        time.sleep(0.02)
    return False


def _write_certificate(folder: Path) -> None:
    """Write a self-signed certificate with its key, in the files of both configurations."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "fullchain.pem").write_bytes(certificate)
    (folder / "privkey.pem").write_bytes(private)
    (folder / "plaza.pem").write_bytes(certificate + private)
