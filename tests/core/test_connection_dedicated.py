"""Dedicated connections: subscriptions, and commands that block on the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from plaza.core.valkey import CallTimeout, ConnectionLost, Overloaded, ReplyError, Subscription, Valkey
from plaza.core.valkey.dedicated import MAX_UNREAD_MESSAGES, UNLIMITED_SECONDS, server_wait_seconds
from tests.core.relay import Relay
from tests.servers import Server
from tests.timeouts import connect_for_test, within_time_limit
from tests.waiting import eventually


@pytest.fixture
async def valkey(server: Server) -> AsyncIterator[Valkey]:
    async with await connect_for_test(server.url) as valkey, within_time_limit():
        yield valkey


async def blocked(valkey: Valkey, count: int) -> None:
    """Wait until so many clients are blocked on the server."""

    async def so_many() -> bool:
        return f"blocked_clients:{count}\r\n" in await valkey.call("INFO", "clients")

    await eventually(so_many)


async def drain(messages: Subscription) -> list[tuple[str, str]]:
    """Read until the error, which gets the messages read so far."""
    read = []
    try:
        while True:
            read.append(await anext(messages))
    except (ConnectionLost, Overloaded) as error:
        error.extra["read"] = read
        raise


async def test_messages_arrive_in_order_after_subscribing(valkey: Valkey) -> None:
    async with valkey.subscribe("news", "weather") as messages:
        for i in range(100):
            assert await valkey.call("PUBLISH", "news" if i % 2 else "weather", f"é {i}") == 1
        received = [await anext(messages) for _ in range(100)]
    assert received == [("news" if i % 2 else "weather", f"é {i}") for i in range(100)]

    async def no_subscriber() -> bool:
        return bool(await valkey.call("PUBLISH", "news", "gone") == 0)

    await eventually(no_subscriber)


async def test_lost_messages_raise_an_error(server: Server) -> None:
    async with Relay(server.port) as relay, await connect_for_test(relay.url) as valkey, within_time_limit():
        async with valkey.subscribe("news") as messages:
            await valkey.call("PUBLISH", "news", "one")
            await eventually(lambda: messages.unread == 1)
            relay.cut()
            with pytest.raises(ConnectionLost) as caught:
                await drain(messages)
            assert caught.value.extra["read"] == [("news", "one")]  # messages that arrived are not lost
        async with valkey.subscribe("news") as messages:
            await valkey.call("PUBLISH", "news", "two")
            assert await anext(messages) == ("news", "two")


async def test_a_subscriber_with_too_many_unread_messages_fails(valkey: Valkey) -> None:
    async with valkey.subscribe("news") as messages:
        await valkey.batch([["PUBLISH", "news", i] for i in range(MAX_UNREAD_MESSAGES + 10)])
        await eventually(lambda: messages.unread == MAX_UNREAD_MESSAGES)
        with pytest.raises(Overloaded) as caught:
            await drain(messages)
        assert len(caught.value.extra["read"]) == MAX_UNREAD_MESSAGES


async def test_the_error_of_a_refused_subscription_has_the_reason(server: Server) -> None:
    with server.redis_client() as redis_client:
        redis_client.execute_command("ACL", "SETUSER", "quiet", "on", ">pw", "~*", "+@all", "resetchannels")
        async with await connect_for_test(f"valkey://quiet:pw@127.0.0.1:{server.port}") as valkey:
            with pytest.raises(ReplyError, match="NOPERM"):
                async with valkey.subscribe("news"):
                    raise AssertionError("this must not be reached")
        redis_client.execute_command("ACL", "DELUSER", "quiet")


async def test_a_blocking_command_blocks_no_other_caller(valkey: Valkey) -> None:
    async with valkey.blocking() as connection:
        waiting = asyncio.create_task(connection.call("BLPOP", "list", 10))
        await blocked(valkey, 1)
        assert await valkey.call("PING") == "PONG"
        assert not waiting.done()
        await valkey.call("RPUSH", "list", "x")
        assert await waiting == ["list", "x"]


async def test_a_blocking_command_without_result_is_not_an_error(valkey: Valkey) -> None:
    async with valkey.blocking() as connection:
        assert await connection.call("BLPOP", "list", 0.05) is None
        await valkey.call("XGROUP", "CREATE", "stream", "group", "$", "MKSTREAM")
        read = ("XREADGROUP", "GROUP", "group", "me", "BLOCK", 50, "STREAMS", "stream", ">")
        assert await connection.call(*read) is None
        await valkey.call("XADD", "stream", "1-1", "field", "value")
        assert await connection.call(*read) == {"stream": [["1-1", ["field", "value"]]]}


async def test_a_cancelled_blocking_command_takes_no_element(valkey: Valkey) -> None:
    async with valkey.blocking() as connection:
        waiting = asyncio.create_task(connection.call("BLPOP", "list", 0))
        await blocked(valkey, 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await blocked(valkey, 0)
        await valkey.call("RPUSH", "list", "x")
        assert await valkey.call("LLEN", "list") == 1
        assert await connection.call("BLPOP", "list", 1) == ["list", "x"]  # the connection works again


async def test_a_blocking_command_times_out_if_the_server_hangs(server: Server) -> None:
    async with await connect_for_test(server.url, timeout=1) as valkey, valkey.blocking() as connection:
        assert await connection.call("PING") == "PONG"
        server.pause()
        try:
            started = time.monotonic()
            async with within_time_limit():
                with pytest.raises(CallTimeout):
                    await connection.call("BLPOP", "list", 0.2)
            assert time.monotonic() - started > 1.1, "its own time and then some"
        finally:
            server.resume()


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        (["GET", "BLOCK"], 0),
        (["BLPOP", "a", "b", 1.5], 1.5),
        (["blpop", "a", "0"], UNLIMITED_SECONDS),
        ([b"BLMOVE", b"a", b"b", b"LEFT", b"LEFT", b"2"], 2),
        (["BLMPOP", 3, 1, "a", "LEFT"], 3),
        (["XREAD", "BLOCK", 250, "STREAMS", "a", "$"], 0.25),
        (["XREAD", "COUNT", 1, "STREAMS", "a", "$"], 0),
        (["XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "block", 0, "STREAMS", "a", ">"], UNLIMITED_SECONDS),
    ],
)
def test_the_blocking_time_is_read_from_the_command(command: list[str], seconds: float) -> None:
    assert server_wait_seconds(command) == seconds
