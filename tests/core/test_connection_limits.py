"""One address cannot use up the connections of a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from plaza.core.http.connection_limits import ConnectionLimits
from plaza.core.http.trusted_proxies import TrustedProxies
from plaza.core.http.uvicorn_protocol import limited_protocol
from tests.core.sample_domain import app_of
from tests.http_servers import serving
from tests.waiting import eventually

GET = b"GET /echo/x HTTP/1.1\r\nhost: x\r\n\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Client:
    """Opens connections from loopback addresses, and closes them at the end."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._open: list[Connection] = []

    async def connect(self, address: str = "127.0.0.1") -> Connection:
        connection = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(address, 0))
        self._open.append(connection)
        return connection

    async def close(self) -> None:
        for _, writer in self._open:
            writer.close()


async def status(connection: Connection) -> int:
    reader, writer = connection
    writer.write(GET)
    return int((await reader.readline()).split()[1])


@pytest.fixture
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    per_address, total, proxies = request.param
    limits = ConnectionLimits(per_address, TrustedProxies(proxies), total=total)
    async with serving(app_of(), http=limited_protocol(limits)) as url:
        client = Client(url)
        yield client
        await client.close()


@pytest.mark.parametrize("client", [(2, 100, ())], indirect=True)
async def test_an_address_beyond_its_limit_is_refused_and_others_are_not(client: Client) -> None:
    first, second = await client.connect(), await client.connect()
    assert [await status(first), await status(second)] == [200, 200]
    assert await status(await client.connect()) == 503
    assert await status(await client.connect("127.0.0.2")) == 200
    first[1].close()
    assert await eventually(lambda: _accepted(client))


async def _accepted(client: Client) -> bool:
    return await status(await client.connect()) == 200


@pytest.mark.parametrize("client", [(100, 4, ())], indirect=True)
async def test_no_address_gets_more_than_half_of_all_connections(client: Client) -> None:
    answers = [await status(await client.connect(address)) for address in ("127.0.0.1", "127.0.0.2") for _ in range(3)]
    assert answers == [200, 200, 503] * 2


@pytest.mark.parametrize("client", [(1, 3, ("127.0.0.9",))], indirect=True)
async def test_a_trusted_proxy_is_limited_in_total_only(client: Client) -> None:
    answers = [await status(await client.connect("127.0.0.9")) for _ in range(4)]
    assert answers == [200, 200, 200, 503]
