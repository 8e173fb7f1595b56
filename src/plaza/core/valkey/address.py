"""Where Valkey is, read from a URL.

An address is printed in logs and errors, so its text never holds the password: `str()` gives the place alone, and
`repr()` leaves the secret out.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, unquote, urlsplit

from plaza.core.errors import SettingError

PORT = 6379
_TLS = {"valkey": False, "redis": False, "valkeys": True, "rediss": True}
# The names redis-py uses in its URLs, since those are the ones people have at hand.
_TLS_FILES = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}


@dataclass(frozen=True, slots=True)
class Address:
    """One server: a host and port, or the path of a unix socket; and how to be let in."""

    host: str = ""
    port: int = PORT
    path: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    database: int = 0
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def at(self, host: str, port: int) -> Address:
        """The same credentials at another node of the cluster."""
        return replace(self, host=host, port=port)


def parse_url(url: str) -> tuple[list[Address], bool]:
    """The addresses that a URL names, and whether they are nodes of a cluster.

    `valkey://user:password@host:port/database`, the same with `redis`, `valkeys` and `rediss` (TLS), with several
    hosts and `+cluster`, or `unix:///path?db=1`.
    """
    parts = urlsplit(url)
    scheme, clustered = parts.scheme.removesuffix("+cluster"), parts.scheme.endswith("+cluster")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    database = query.pop("db", "")
    credentials, _, hosts = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    base = Address(username=unquote(username), password=unquote(password))
    if scheme == "unix" and not clustered:
        _refuse(query, set())
        path = unquote(hosts + parts.path)
        if not path:
            raise SettingError("The Valkey URL names no socket: write unix:///path/to/socket.")
        return [replace(base, path=path, database=_database(database))], False
    if scheme not in _TLS:
        raise SettingError(f"A Valkey URL cannot start with {parts.scheme!r}: write valkey://host:{PORT}.")
    _refuse(query, _TLS_FILES if _TLS[scheme] else set())
    base = replace(base, database=_database(database or parts.path.strip("/")))
    if clustered and base.database:
        raise SettingError("A Valkey cluster is used with database 0 only.")
    if _TLS[scheme]:
        base = replace(base, tls=_context(query))
    nodes = [base.at(*_host(text)) for text in hosts.split(",")]
    if len(nodes) > 1 and not clustered:
        raise SettingError("A Valkey URL with several hosts starts with valkey+cluster://.")
    return nodes, clustered


def _refuse(query: dict[str, str], known: set[str]) -> None:
    for name in query.keys() - known:
        raise SettingError(f"The Valkey URL has an unknown option {name!r}.")


def _database(text: str) -> int:
    if text and not (text.isascii() and text.isdigit()):
        raise SettingError("The database in the Valkey URL must be a number.")
    return int(text or 0)


def _host(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise SettingError("A port in the Valkey URL must be 1 to 65535.")
    return host.strip("[]") or "127.0.0.1", int(port)


def _context(query: dict[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=query.get("ssl_ca_certs"))
        if "ssl_certfile" in query:
            context.load_cert_chain(query["ssl_certfile"], query.get("ssl_keyfile"))
    except OSError as error:
        raise SettingError(f"A certificate file in the Valkey URL cannot be used: {error}.") from None
    return context
