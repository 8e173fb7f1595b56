"""Opens the listening socket before anything else starts, so that a port in use is reported at once.

The parent opens it and every API process inherits it. Connections wait in its queue while a process starts or is
replaced, so none is refused.
"""

from __future__ import annotations

import errno
import socket

from plaza.core.errors import OperatorError

# Connections that wait to be accepted; the kernel applies its own limit too (`net.core.somaxconn`).
BACKLOG = 2048
# libuv accepts one connection of a socket per turn of the event loop. When turns are long, a thousand new connections
# would wait for seconds, and the next health check behind them. So each process accepts by so many descriptors.
ACCEPTS_PER_TURN = 4


class CannotListen(OperatorError):
    """The address or the port is not available."""


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Raises `CannotListen`."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind)
    except OSError as error:
        raise CannotListen(f"PLAZA_HOST {host!r} is not an address: {error.strerror}.") from None
    try:
        # Without it the port stays in use for a minute after its last connection.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise CannotListen(_reason(host, port, error)) from None
    sock.setblocking(False)
    return sock


def accepting_sockets(sock: socket.socket) -> list[socket.socket]:
    """The socket and duplicates of it, with which an event loop accepts several connections in a turn."""
    return [sock, *(sock.dup() for _ in range(ACCEPTS_PER_TURN - 1))]


def local_url(sock: socket.socket) -> str:
    """The URL of the socket for a browser on this machine."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _reason(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} of {host} is in use. Stop its process, or set PLAZA_PORT; 0 picks a free port."
    if error.errno == errno.EACCES:
        return f"Port {port} needs root privileges. Set PLAZA_PORT to 1024 or more."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"PLAZA_HOST {host} is not an address of this machine."
    return f"Cannot listen on {host} port {port}: {error.strerror}."
