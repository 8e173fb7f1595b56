"""The address of a Valkey server, parsed from a URL.

Addresses appear in logs and errors, so their text never contains the password: `str()` returns host and port, and
`repr()` omits the password.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, unquote, urlsplit

from plaza.core.errors import SettingError

PORT = 6379
_TLS = {"valkey": False, "redis": False, "valkeys": True, "rediss": True}
# The same names as in redis-py's URLs.
_TLS_FILES = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}


@dataclass(frozen=True, slots=True)
class Address:
    """One server: a host and port, or the path of a unix socket, and the credentials."""

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
        """Return the same credentials for another node of the cluster."""
        return replace(self, host=host, port=port)


def parse_url(url: str) -> tuple[list[Address], bool]:
    """Return the addresses in a URL, and whether they are nodes of a cluster.

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
        _refuse_unknown(query, set())
        path = unquote(hosts + parts.path)
        if not path:
            raise SettingError("The Valkey URL has no socket path. Write unix:///path/to/socket.")
        return [replace(base, path=path, database=_database(database))], False
    if scheme not in _TLS:
        raise SettingError(f"A Valkey URL cannot start with {parts.scheme!r}. Write valkey://host:{PORT}.")
    _refuse_unknown(query, _TLS_FILES if _TLS[scheme] else set())
    base = replace(base, database=_database(database or parts.path.strip("/")))
    if clustered and base.database:
        raise SettingError("A Valkey cluster has only database 0. Remove the database from the URL.")
    if _TLS[scheme]:
        base = replace(base, tls=_context(query))
    nodes = [base.at(*_host(text)) for text in hosts.split(",")]
    if len(nodes) > 1 and not clustered:
        raise SettingError("The Valkey URL has several hosts. Start it with valkey+cluster://.")
    return nodes, clustered


def _refuse_unknown(query: dict[str, str], known: set[str]) -> None:
    for name in query.keys() - known:
        raise SettingError(f"The Valkey URL has an unknown option {name!r}. Remove it.")


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
