"""A server sends all its keys as to a new replica: with and without a file, with credentials, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from plaza.core.errors import OperatorError
from plaza.core.valkey import ConnectionLost
from plaza.core.valkey.address import parse_url
from plaza.core.valkey.rdb_stream import open_rdb
from tests.servers import Server, free_port


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with server.redis_client() as client:
        client.acl_setuser("reader", enabled=True, passwords=["+a password"], keys=["*"], commands=["+@all"])
        client.set("some-key", "some-value" * 1_000)
        yield client
        client.acl_deluser("reader")
        client.config_set("repl-diskless-sync", "yes")


async def read_rdb(server: Server) -> bytes:
    address = parse_url(f"valkey://reader:a%20password@127.0.0.1:{server.port}")[0][0]
    async with open_rdb(address) as stream:
        return b"".join([data async for data in stream.chunks()])


@pytest.mark.parametrize("diskless", ["yes", "no"])
async def test_the_whole_rdb_is_read(server: Server, client: redis.Redis, diskless: str) -> None:
    client.config_set("repl-diskless-sync", diskless)
    received = await read_rdb(server)
    assert received.startswith((b"REDIS", b"VALKEY"))
    assert received[-9] == 0xFF, "it ends with the end mark and a checksum"
    assert b"some-key" in received


async def test_a_user_without_the_permission_is_told(server: Server, client: redis.Redis) -> None:
    client.execute_command("ACL", "SETUSER", "reader", "-sync")
    with pytest.raises(OperatorError, match=r"NOPERM.* Its user needs the commands SYNC and REPLCONF"):
        await read_rdb(server)


async def test_a_missing_server_is_unavailable() -> None:
    with pytest.raises(ConnectionLost, match="Cannot connect"):
        async with open_rdb(parse_url(f"valkey://127.0.0.1:{free_port()}")[0][0]):
            pass
