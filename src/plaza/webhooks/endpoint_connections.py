"""Sends webhook requests: to public addresses only, without redirects, within limits of time and size.

The address is checked where the socket is created, after the last name resolution. So a name that resolves to a public
address first and to an internal one later (DNS rebinding) is refused too, and so is a number that only the system
reads as an address. `Host` and the certificate's name stay those of the URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

import aiohttp
import structlog
from aiohttp.abc import AbstractResolver, ResolveResult

from plaza.webhooks.http_client import Lookup
from plaza.webhooks.model import CONCURRENCY, SendOutcome, parse_retry_after
from plaza.webhooks.targets import is_public

TOTAL_SECONDS: Final = 15.0
CONNECT_SECONDS: Final = 5.0
# The status decides. The body is only read so that the connection can be used again.
BODY_SECONDS: Final = 1.0
MAX_BODY_BYTES: Final = 16 * 1024
# Shorter than the 5 s after which many servers close an idle connection, so that no request meets a closing one.
KEEP_ALIVE_SECONDS: Final = 4.0
# Names are looked up again after this time. The address is checked at every connect.
DNS_SECONDS: Final = 10

# Responses in which an endpoint can say when it wants the next request.
RETRY_AFTER_CODES: Final = frozenset({429, 503})

CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
USER_AGENT: Final = "Plaza-Webhooks/1"

log = structlog.get_logger("plaza.webhooks")


class AddressRefused(OSError):
    """The endpoint resolves to an address that is not public."""

    MESSAGE: Final = "The endpoint resolves to a private address, which is refused."


class ThreadResolver(AbstractResolver):
    """Resolves names in a thread of their own each.

    The system's lookup blocks, for half a minute if a name server does not answer. In a shared pool of threads a few
    such endpoints would delay all others. A connector asks once at a time, so there is one thread per endpoint.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[Any]] = loop.create_future()

        def finish(result: list[Any] | None, error: OSError | None) -> None:
            if found.done():
                return
            if error is not None:
                found.set_exception(error)
            else:
                found.set_result(result or [])

        def run() -> None:
            result: list[Any] | None = None
            failure: OSError | None = None
            try:
                result = self._lookup(host, port)
            except (OSError, UnicodeError) as error:
                failure = error if isinstance(error, OSError) else OSError(str(error))
            with contextlib.suppress(RuntimeError):  # the loop ended meanwhile
                loop.call_soon_threadsafe(finish, result, failure)

        threading.Thread(target=run, name="webhook-dns", daemon=True).start()
        addresses = [_resolved(host, port, entry) for entry in await found]
        if not addresses:
            raise OSError(errno.EADDRNOTAVAIL, "The name has no address.")
        return addresses

    async def close(self) -> None:
        """There is nothing to close: a thread ends with its lookup."""


def _resolved(host: str, port: int, entry: Any) -> ResolveResult:
    family, _, proto, _, address = entry
    return {"hostname": host, "host": address[0], "port": port, "family": family, "proto": proto, "flags": 0}


class EndpointConnections:
    """The connections to one endpoint, so that a slow one cannot use up those of another."""

    def __init__(self, allow_private: bool, lookup: Lookup, tls: ssl.SSLContext) -> None:
        connector = aiohttp.TCPConnector(
            limit=CONCURRENCY,
            ssl=tls,
            resolver=ThreadResolver(lookup),
            ttl_dns_cache=DNS_SECONDS,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            socket_factory=_any_socket if allow_private else _public_socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=TOTAL_SECONDS, sock_connect=CONNECT_SECONDS),
            headers={"user-agent": USER_AGENT, "content-type": CONTENT_TYPE},
        )

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> SendOutcome:
        """Send a request and return its result. Never raises: every failure is a result."""
        started, code, error, retry_after = monotonic(), None, "", ""
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as response:
                code, retry_after = response.status, response.headers.get("retry-after", "")
                await _read_some(response)
        except TimeoutError:
            error = f"No response within {TOTAL_SECONDS:g} s."
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            error = _describe(failure)
        except Exception as failure:  # of the library: it must not stop the other deliveries
            log.error("webhook_request_failed", exc_info=failure)
            error = "The request failed. The log has the reason."
        wait_ms = parse_retry_after(retry_after, datetime.now(UTC)) if retry_after and code in RETRY_AFTER_CODES else 0
        return SendOutcome(code, "" if code is not None else error, round((monotonic() - started) * 1000), wait_ms)

    async def close(self) -> None:
        await self._session.close()


async def _read_some(response: aiohttp.ClientResponse) -> None:
    """Read a short body. A long, slow or broken one costs the connection, and does not change the result."""
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    response.close()
                    return
    except (aiohttp.ClientError, OSError, TimeoutError):
        response.close()


def _any_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, proto, _, _ = address
    return socket.socket(family, kind, proto)


def _public_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    if not is_public(str(address[4][0])):
        raise AddressRefused(errno.EACCES, AddressRefused.MESSAGE)
    return _any_socket(address)


def _describe(error: Exception) -> str:
    """Return what went wrong, without addresses: they may be internal."""
    if AddressRefused.MESSAGE in str(error):
        return AddressRefused.MESSAGE
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "The name of the endpoint cannot be resolved."
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return "The certificate of the endpoint is not valid."
    if isinstance(error, aiohttp.ClientConnectorError):
        return "The endpoint cannot be reached."
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | OSError):
        return "The endpoint closed the connection without a response."
    return f"The endpoint's response is not valid HTTP ({type(error).__name__})."
