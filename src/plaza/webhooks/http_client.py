"""Opens connections to webhook endpoints. aiohttp is loaded with the first one: a process without webhooks saves it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plaza.webhooks.endpoint_connections import EndpointConnections

Lookup = Callable[[str, int], list[Any]]


def system_lookup(host: str, port: int) -> list[Any]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


class WebhookClient:
    """Opens connections to endpoints. `lookup` and `tls` are for tests."""

    def __init__(
        self, allow_private: bool, *, lookup: Lookup = system_lookup, tls: ssl.SSLContext | None = None
    ) -> None:
        self._allow_private = allow_private
        self._lookup = lookup
        self._tls = tls

    def connections(self) -> EndpointConnections:
        """Return the connections to one endpoint. Close them."""
        from plaza.webhooks.endpoint_connections import EndpointConnections

        if self._tls is None:  # reading the certificates takes milliseconds
            self._tls = ssl.create_default_context()
        return EndpointConnections(self._allow_private, self._lookup, self._tls)
