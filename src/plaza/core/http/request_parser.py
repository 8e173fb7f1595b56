"""Parses the requests of one connection with httptools, and creates an exchange for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httptools

from plaza.core.http.exchange import add_header
from plaza.core.http.http_exchange import HttpExchange

if TYPE_CHECKING:
    from plaza.core.http.uvicorn_protocol import GuardedHttpProtocol

# Clients write a few dozen names of headers, in one or two ways each.
MAX_CACHED_NAMES = 1_000

_names: dict[bytes, str] = {}  # of headers, in lower case, by how they were sent


class RequestParser:
    """The parser of one connection. httptools calls its `on_` methods, and it gives exchanges to the connection."""

    def __init__(self, connection: GuardedHttpProtocol) -> None:
        self._connection = connection
        self._parser = httptools.HttpRequestParser(self)
        # What follows the last request of a connection is ignored, and does not break its response.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._exchange: HttpExchange | None = None  # the last one whose headers are complete
        self._url = b""
        self._headers: dict[str, str] = {}
        self._is_upgraded = False
        self.in_headers = False
        self.started_in_piece = False  # the headers started in the piece that was parsed last

    def feed(self, data: bytes) -> None:
        """Parse a piece. Raises `httptools.HttpParserError` if it is not valid HTTP."""
        if self._is_upgraded:
            return
        self.started_in_piece = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # No other protocol is spoken here. The request is answered, and what follows is not HTTP.
            self._is_upgraded = True
            if self._exchange is not None:
                self._exchange.keep_alive = False

    def on_message_begin(self) -> None:
        self.in_headers = self.started_in_piece = True
        self._url = b""
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_headers:  # a trailer
            return
        text = _names.get(name) or _lower_name(name)
        if text in self._headers:
            add_header(self._headers, text, value.decode("latin-1"))
        else:
            self._headers[text] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.in_headers = False
        parser = self._parser
        path, query = _split_url(self._url)
        exchange = HttpExchange(self._connection, parser.get_method().decode("ascii"), path, query, self._headers)
        exchange.http_version = parser.get_http_version()
        exchange.keep_alive = exchange.http_version != "1.0" and parser.should_keep_alive()
        exchange.expects_continue = self._headers.get("expect", "").lower() == "100-continue"
        self._exchange = exchange
        self._connection.exchange_begun(exchange)

    def on_body(self, data: bytes) -> None:
        assert self._exchange is not None
        self._exchange.add_to_body(data)

    def on_message_complete(self) -> None:
        assert self._exchange is not None
        self._exchange.end_body()


def _lower_name(name: bytes) -> str:
    text = name.decode("latin-1").lower()
    if len(_names) < MAX_CACHED_NAMES:
        _names[name] = text
    return text


def _split_url(url: bytes) -> tuple[str, bytes]:
    """The path and the query of a request's target. Raises an error, which is 400, if it is not valid."""
    if url[:1] == b"/" and b"#" not in url:  # the parser has checked the characters
        path, _, query = url.partition(b"?")
        return path.decode("ascii"), query
    parsed = httptools.parse_url(url)
    return parsed.path.decode("ascii"), parsed.query or b""
