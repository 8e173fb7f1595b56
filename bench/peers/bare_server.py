"""The least that a Python server can do: parse a request with httptools, and write a response that is in memory.

    python -m bench.peers.bare_server PORT

`PUT /response` gives it the response, as bytes of HTTP. It has no routes, access, log or Valkey: what it costs is the
event loop and the system calls, for requests and responses of the same size as Plaza's.
"""

from __future__ import annotations

import asyncio
import sys
from typing import ClassVar, cast

import httptools
import uvloop

CONTROL = b"/response"
ACCEPTED = b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"


class BareProtocol(asyncio.Protocol):
    response: ClassVar[bytes] = ACCEPTED

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._url == CONTROL:
            BareProtocol.response = self._body
            self._transport.write(ACCEPTED)
        else:
            self._transport.write(self.response)
        self._body = b""


async def run(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(BareProtocol, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(run(int(sys.argv[1])))
