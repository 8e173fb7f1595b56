"""Errors of the connection, on real servers that are paused, stopped and killed."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from plaza.core.errors import Unavailable
from plaza.core.valkey import CallTimeout, ConnectionLost, Overloaded, Valkey, connect, shared_reads
from tests.core.relay import Relay
from tests.servers import Server, running_server
from tests.timeouts import (
    TIME_LIMIT_SECONDS,
    connect_for_test,
    connect_with_retries,
    connection_error,
    within_time_limit,
)
from tests.waiting import eventually as until


@pytest.fixture(scope="module")
def fragile() -> Iterator[Server]:
    """A server that tests may pause, and that can sleep."""
    with running_server("--enable-debug-command", "yes") as server:
        yield server


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Valkey]:
    """Open a connection for a block with a time limit."""
    async with await connect_with_retries(url, **options) as valkey, within_time_limit():
        yield valkey


def lost_event(valkey: Valkey) -> asyncio.Event:
    """Return an event that is set when the client has noticed that the connection broke."""
    lost = asyncio.Event()
    valkey.on_invalidate(lambda keys: lost.set() if keys is None else None)
    return lost


@asynccontextmanager
async def paused(server: Server) -> AsyncIterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()


async def outcomes(*calls: Any) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)


async def eventually(valkey: Valkey, *command: str) -> Any:
    while True:
        try:
            return await valkey.call(*command)
        except Unavailable:
            await asyncio.sleep(0.02)


async def test_a_call_can_have_its_own_timeout(fragile: Server) -> None:
    async with connected(fragile.url) as valkey:
        async with paused(fragile):
            late = valkey.call("ECHO", "late", timeout=0.05)
            patient = valkey.call("ECHO", "patient")
            with pytest.raises(CallTimeout) as caught:
                await late
            assert caught.value.may_have_run
            assert caught.value.status == 503
            assert not asyncio.ensure_future(patient).done()
        assert await patient == "patient"  # the reply of the expired call came first and was dropped


async def test_every_call_has_a_timeout(fragile: Server) -> None:
    async with connected(fragile.url, timeout=0.2) as valkey:
        async with paused(fragile):
            answers = await outcomes(*(valkey.call("ECHO", i) for i in range(50)), valkey.batch([["PING"]] * 3))
        assert all(isinstance(answer, CallTimeout) and answer.may_have_run for answer in answers)
        assert await eventually(valkey, "ECHO", "x") == "x"


async def test_a_longer_timeout_outlives_the_default(fragile: Server) -> None:
    async with connected(fragile.url, timeout=0.1) as valkey:
        assert await valkey.call("DEBUG", "SLEEP", "0.5", timeout=TIME_LIMIT_SECONDS) == "OK"


async def test_a_call_that_timed_out_in_the_queue_is_never_sent(fragile: Server) -> None:
    async with Relay(fragile.port) as relay, connected(relay.url, queue_timeout=TIME_LIMIT_SECONDS) as valkey:
        relay.refuse, lost = True, lost_event(valkey)
        relay.cut()
        await lost.wait()
        with pytest.raises(CallTimeout) as caught:
            await valkey.call("SET", "never", "sent", timeout=0.1)
        assert not caught.value.may_have_run
        cancelled = asyncio.ensure_future(valkey.call("SET", "never", "sent"))
        await asyncio.sleep(0)
        cancelled.cancel()
        relay.refuse = False
        assert await valkey.call("EXISTS", "never") == 0


async def test_a_shared_read_has_the_timeout_of_its_caller(fragile: Server) -> None:
    async with connected(fragile.url) as valkey:
        with pytest.raises(CallTimeout):
            await valkey.call("DEBUG", "SLEEP", "0.5", shared=True, timeout=0.1)


@pytest.mark.parametrize(("longest", "reads"), [(60.0, 1), (0.0, 2)])
async def test_a_read_that_has_waited_for_the_connection_is_not_joined(
    fragile: Server, monkeypatch: pytest.MonkeyPatch, longest: float, reads: int
) -> None:
    """It fails when its time is over, which a later caller's is not."""
    monkeypatch.setattr(shared_reads, "MAX_JOIN_SECONDS", longest)
    async with Relay(fragile.port) as relay, connected(relay.url, queue_timeout=TIME_LIMIT_SECONDS) as valkey:
        with fragile.redis_client() as client:
            client.set("k", "1")
            client.config_resetstat()
            relay.refuse, lost = True, lost_event(valkey)
            relay.cut()
            await lost.wait()
            first = asyncio.ensure_future(valkey.call("GET", "k", shared=True))
            await asyncio.sleep(0)  # the connection has tried to write it
            await asyncio.sleep(0)
            second = asyncio.ensure_future(valkey.call("GET", "k", shared=True))
            relay.refuse = False
            assert (await first, await second) == ("1", "1")
            assert client.info("commandstats")["cmdstat_get"]["calls"] == reads


async def test_calls_above_the_limit_wait_and_then_fail(fragile: Server) -> None:
    # While the server answers, more calls than the limit wait for each other.
    async with connected(fragile.url, max_in_flight=10, queue_timeout=TIME_LIMIT_SECONDS) as valkey:
        assert await asyncio.gather(*(valkey.call("ECHO", i) for i in range(1000))) == [str(i) for i in range(1000)]
    async with connected(fragile.url, max_in_flight=10, queue_timeout=0.3, timeout=TIME_LIMIT_SECONDS) as valkey:
        async with paused(fragile):
            calls = [asyncio.ensure_future(valkey.call("INCR", "bounded")) for _ in range(15)]
            refused = await outcomes(*calls[10:])
            assert all(isinstance(error, Overloaded) and not error.may_have_run for error in refused)
            assert not any(call.done() for call in calls[:10])
        assert await asyncio.gather(*calls[:10]) == list(range(1, 11))
        assert await valkey.call("GET", "bounded") == "10"  # the refused calls did not run
        await valkey.call("DEL", "bounded")


async def test_a_stalled_loop_does_not_fail_queued_calls(fragile: Server) -> None:
    async with connected(fragile.url, queue_timeout=0.05) as valkey:
        assert await valkey.call("PING") == "PONG"
        calls = [valkey.call("ECHO", i) for i in range(10)]
        time.sleep(0.2)  # noqa: ASYNC251  # the loop was busy; Valkey was not asked yet
        assert await outcomes(*calls) == [str(i) for i in range(10)]


async def test_the_queue_is_bounded(fragile: Server) -> None:
    async with connected(fragile.url, max_in_flight=1, max_queued=5, queue_timeout=TIME_LIMIT_SECONDS) as valkey:
        async with paused(fragile):
            waiting = [asyncio.ensure_future(valkey.call("PING"))]
            await asyncio.sleep(0)  # written
            waiting += [asyncio.ensure_future(valkey.call("PING")) for _ in range(5)]
            await asyncio.sleep(0)  # queued
            for shared in (False, True, True):  # the second shared one does not join the refused one
                with pytest.raises(Overloaded):
                    await asyncio.wait_for(valkey.call("PING", shared=shared), TIME_LIMIT_SECONDS)
        assert await asyncio.gather(*waiting) == ["PONG"] * 6


async def test_a_server_that_reads_nothing_does_not_grow_memory(fragile: Server) -> None:
    async with connected(fragile.url, queue_timeout=0.3, timeout=2) as valkey:
        async with paused(fragile):
            big = "x" * 1_000_000
            first = [asyncio.ensure_future(valkey.call("SET", "big", big)) for _ in range(20)]
            await asyncio.sleep(0.05)  # these fill the socket
            queued = await outcomes(*(valkey.call("INCR", "queued") for _ in range(5)))
            assert all(isinstance(error, Overloaded) for error in queued)
            assert all(isinstance(error, CallTimeout) for error in await outcomes(*first))
        assert await eventually(valkey, "EXISTS", "queued") == 0
        await valkey.call("DEL", "big")


async def test_calls_in_flight_on_a_broken_connection_may_have_run(fragile: Server) -> None:
    async with connected(fragile.url) as valkey:
        async with paused(fragile):
            calls = [valkey.call("INCR", "flight"), valkey.batch([["INCR", "flight"]] * 2), valkey.multi([["PING"]])]
            await asyncio.sleep(0.05)
            valkey._connection.drop()  # type: ignore[attr-defined]
            answers = await outcomes(*calls)
        assert all(isinstance(answer, ConnectionLost) and answer.may_have_run for answer in answers)
        assert await valkey.call("PING") == "PONG"  # by a new connection


async def test_a_restarted_server_is_reconnected() -> None:
    with running_server() as server:
        async with connected(server.url, queue_timeout=0.6) as valkey:
            lost = lost_event(valkey)
            server.stop(signal.SIGKILL)
            await lost.wait()
            with pytest.raises(ConnectionLost) as caught:
                await valkey.call("SET", "k", "v")
            assert not caught.value.may_have_run
            assert str(server.port) in str(caught.value)
            # After an outage longer than `queue_timeout`, calls fail at once.
            await asyncio.sleep(0.2)
            calls = [asyncio.ensure_future(valkey.call("PING")) for _ in range(100)]
            await asyncio.sleep(0)
            assert all(isinstance(call.exception(), ConnectionLost) for call in calls)
            server.start()
            assert await eventually(valkey, "PING") == "PONG"


async def test_a_short_outage_is_only_a_delay() -> None:
    with running_server("--appendonly", "yes", "--appendfsync", "always") as server:
        async with connected(server.url, queue_timeout=TIME_LIMIT_SECONDS) as valkey:
            await valkey.call("SET", "k", "v")
            lost = lost_event(valkey)
            server.stop(signal.SIGKILL)
            await lost.wait()
            waiting = asyncio.ensure_future(valkey.call("GET", "k"))
            await asyncio.to_thread(server.start)
            assert await waiting == "v"


async def test_a_server_that_loads_its_data_counts_as_away() -> None:
    slow = ["--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"]
    with running_server(*slow) as server:
        async with connected(server.url, queue_timeout=0.5) as valkey:
            await valkey.batch([["SET", f"key:{i}", "x" * 100] for i in range(300)])
            await valkey.call("SAVE")
            server.stop(signal.SIGKILL)
            starting = asyncio.ensure_future(asyncio.to_thread(server.start))
            seen: list[ConnectionLost] = []
            while True:
                try:
                    assert await valkey.call("GET", "key:299") == "x" * 100
                    break
                except ConnectionLost as error:
                    seen.append(error)
                if "LOADING" in str(seen[-1]):  # seen, so load the rest fast
                    with server.redis_client() as operator:
                        operator.config_set("key-load-delay", 0)
                await asyncio.sleep(0.01)
            assert any("LOADING" in str(error) for error in seen)
            assert not any(error.may_have_run for error in seen[1:])  # except for calls in flight when it died
            await starting


async def test_a_paused_server_fails_in_bounded_time_and_is_reconnected(fragile: Server) -> None:
    async with connected(fragile.url, timeout=0.2, queue_timeout=0.2, connect_timeout=0.3) as valkey:
        async with paused(fragile):
            error: BaseException = Unavailable()
            while "does not answer" not in str(error):  # at first the old connection is silent
                [error] = await outcomes(valkey.call("PING"))
                assert isinstance(error, Unavailable)
                await asyncio.sleep(0.02)
            assert isinstance(error, ConnectionLost)
        assert await eventually(valkey, "PING") == "PONG"


@pytest.mark.parametrize("size", [1, 7, 40, 5000, 20_000, 70_000])
async def test_a_connection_that_breaks_within_a_reply_fails_only_its_calls(fragile: Server, size: int) -> None:
    async with Relay(fragile.port) as relay, connected(relay.url) as valkey:
        await valkey.call("SET", "long", "x" * 60_000)
        greeting = 400  # the handshake is shorter, so each example breaks after it
        relay.cut_after = greeting + size
        relay.cut()
        calls = [valkey.call("ECHO", i) for i in range(50)] + [valkey.call("GET", "long")]
        calls += [valkey.batch([["ECHO", f"b{i}"]] * 3) for i in range(20)]
        answers = await outcomes(*calls)
        wanted = [str(i) for i in range(50)] + ["x" * 60_000] + [[f"b{i}"] * 3 for i in range(20)]
        lost = [isinstance(answer, ConnectionLost) for answer in answers]
        assert all(gone or answer == want for answer, want, gone in zip(answers, wanted, lost, strict=True))
        assert lost == sorted(lost)  # all complete replies arrived, and none after the first incomplete one
        assert any(lost)
        relay.cut_after = None
        assert await eventually(valkey, "ECHO", "again") == "again"


async def test_every_complete_reply_is_delivered(fragile: Server) -> None:
    async with Relay(fragile.port) as relay, connected(relay.url) as valkey:
        text = "x" * 10_000
        size = len(f"$10000\r\n{text}\r\n")
        relay.cut_after = relay.passed + 12 * size + size // 2
        lost = lost_event(valkey)
        relay.cut()
        await lost.wait()
        answers = await outcomes(*(valkey.call("ECHO", text) for _ in range(20)))
        assert answers[:12] == [text] * 12
        assert all(isinstance(answer, ConnectionLost) for answer in answers[12:])


@pytest.mark.parametrize("pieces", [[60_000, 100], [1], [16_384, 1, 16_385], [20_000, 7, 3]])
async def test_replies_in_pieces_are_combined(fragile: Server, pieces: list[int]) -> None:
    async with Relay(fragile.port) as relay:
        relay.pieces = pieces
        async with connected(relay.url) as valkey:
            texts = [f"{i} " * (9000 if i % 4 == 0 and 1 not in pieces else 3) for i in range(40)]
            assert await asyncio.gather(*(valkey.call("ECHO", text) for text in texts)) == texts
            assert await valkey.batch([["ECHO", text] for text in texts]) == texts


async def test_reconnect_attempts_back_off_with_jitter(fragile: Server) -> None:
    async with Relay(fragile.port) as relay, connected(relay.url, backoff=0.002, max_backoff=0.1) as valkey:
        relay.refuse = True
        relay.accepted.clear()
        relay.cut()
        began = asyncio.get_running_loop().time()
        await until(lambda: len(relay.accepted) >= 25)
        spent = asyncio.get_running_loop().time() - began
        assert spent > 0.3  # without backoff it would be about 75 ms
        gaps = [b - a for a, b in zip(relay.accepted, relay.accepted[1:], strict=False)][6:]
        assert max(gaps) > 1.5 * min(gaps)  # at full backoff a random time up to 0.1 s
        relay.refuse = False
        assert await eventually(valkey, "PING") == "PONG"


async def test_an_unreachable_server_fails_connect() -> None:
    with pytest.raises(ConnectionLost, match="cannot be reached") as caught:
        await connect("valkey://127.0.0.1:1", queue_timeout=0.2)
    assert not caught.value.may_have_run


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"-ERR max number of clients reached\r\n", "max number of clients"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "cannot be reached"),
    ],
)
async def test_the_last_reply_before_closing_is_the_reason(answer: bytes, reason: str) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(10_000)  # read everything: closing with unread bytes would discard the reply
            writer.write(answer)
            await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await connection_error(f"valkey://127.0.0.1:{port}", reason)
    server.close()


async def test_closing_fails_waiting_calls(fragile: Server) -> None:
    async with await connect_for_test(fragile.url) as valkey, paused(fragile):
        call = asyncio.ensure_future(valkey.call("PING"))
        await asyncio.sleep(0.02)
        await valkey.close()
        [error] = await outcomes(call)
        assert isinstance(error, ConnectionLost)  # closing a second time is harmless
