"""What goes wrong between us and Valkey, and what each caller is told, on real servers that are stopped and killed."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from plaza.core.errors import Unavailable
from plaza.core.valkey import CallTimeout, ConnectionLost, Overloaded, Valkey, connect
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
    """A server of our own, which we may pause, and which can sleep."""
    with running_server("--enable-debug-command", "yes") as server:
        yield server


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Valkey]:
    """Whatever is done with it ends, one way or the other: nothing here waits for ever."""
    async with await connect_with_retries(url, **options) as valkey, within_time_limit():
        yield valkey


def loss(valkey: Valkey) -> asyncio.Event:
    """Comes when the connection is seen to be broken: before that, a command is still written, and may have run."""
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


async def test_a_call_may_bring_its_own_timeout(fragile: Server) -> None:
    async with connected(fragile.url) as valkey:
        async with paused(fragile):
            late = valkey.call("ECHO", "late", timeout=0.05)
            patient = valkey.call("ECHO", "patient")
            with pytest.raises(CallTimeout) as caught:
                await late
            assert caught.value.may_have_run
            assert caught.value.status == 503
            assert not asyncio.ensure_future(patient).done()
        assert await patient == "patient"  # the late one's reply came before it, and went to nobody


async def test_every_call_has_a_timeout(fragile: Server) -> None:
    async with connected(fragile.url, timeout=0.2) as valkey:
        async with paused(fragile):
            answers = await outcomes(*(valkey.call("ECHO", i) for i in range(50)), valkey.batch([["PING"]] * 3))
        assert all(isinstance(answer, CallTimeout) and answer.may_have_run for answer in answers)
        assert await eventually(valkey, "ECHO", "x") == "x"


async def test_a_longer_timeout_outlives_the_default(fragile: Server) -> None:
    async with connected(fragile.url, timeout=0.1) as valkey:
        assert await valkey.call("DEBUG", "SLEEP", "0.5", timeout=TIME_LIMIT_SECONDS) == "OK"


async def test_a_command_that_timed_out_before_it_was_written_is_never_sent(fragile: Server) -> None:
    async with Relay(fragile.port) as relay, connected(relay.url, queue_timeout=TIME_LIMIT_SECONDS) as valkey:
        relay.refuse, lost = True, loss(valkey)
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


async def test_calls_above_the_bound_wait_and_then_get_a_clear_error(fragile: Server) -> None:
    # While the server answers, more callers than the bound just take turns.
    async with connected(fragile.url, max_in_flight=10, queue_timeout=TIME_LIMIT_SECONDS) as valkey:
        assert await asyncio.gather(*(valkey.call("ECHO", i) for i in range(1000))) == [str(i) for i in range(1000)]
    async with connected(fragile.url, max_in_flight=10, queue_timeout=0.3, timeout=TIME_LIMIT_SECONDS) as valkey:
        async with paused(fragile):
            calls = [asyncio.ensure_future(valkey.call("INCR", "bounded")) for _ in range(15)]
            refused = await outcomes(*calls[10:])
            assert all(isinstance(error, Overloaded) and not error.may_have_run for error in refused)
            assert not any(call.done() for call in calls[:10])
        assert await asyncio.gather(*calls[:10]) == list(range(1, 11))
        assert await valkey.call("GET", "bounded") == "10"  # what was refused did not run
        await valkey.call("DEL", "bounded")


async def test_a_loop_that_stalls_for_longer_than_the_patience_turns_nobody_away(fragile: Server) -> None:
    async with connected(fragile.url, queue_timeout=0.05) as valkey:
        assert await valkey.call("PING") == "PONG"
        calls = [valkey.call("ECHO", i) for i in range(10)]
        time.sleep(0.2)  # noqa: ASYNC251  # what it was busy with was not Valkey, which has not even been asked
        assert await outcomes(*calls) == [str(i) for i in range(10)]


async def test_the_queue_of_waiting_calls_is_bounded_too(fragile: Server) -> None:
    async with connected(fragile.url, max_in_flight=1, max_queued=5, queue_timeout=TIME_LIMIT_SECONDS) as valkey:
        async with paused(fragile):
            waiting = [asyncio.ensure_future(valkey.call("PING"))]
            await asyncio.sleep(0)  # written
            waiting += [asyncio.ensure_future(valkey.call("PING")) for _ in range(5)]
            await asyncio.sleep(0)  # no turn for them
            with pytest.raises(Overloaded):
                await valkey.call("PING")
        assert await asyncio.gather(*waiting) == ["PONG"] * 6


async def test_a_server_that_reads_nothing_makes_callers_wait_and_not_memory_grow(fragile: Server) -> None:
    async with connected(fragile.url, queue_timeout=0.3, timeout=2) as valkey:
        async with paused(fragile):
            big = "x" * 1_000_000
            first = [asyncio.ensure_future(valkey.call("SET", "big", big)) for _ in range(20)]
            await asyncio.sleep(0.05)  # these fill the socket
            behind = await outcomes(*(valkey.call("INCR", "behind") for _ in range(5)))
            assert all(isinstance(error, Overloaded) for error in behind)
            assert all(isinstance(error, CallTimeout) for error in await outcomes(*first))
        assert await eventually(valkey, "EXISTS", "behind") == 0
        await valkey.call("DEL", "big")


async def test_what_was_in_flight_when_the_connection_broke_may_have_run(fragile: Server) -> None:
    async with connected(fragile.url) as valkey:
        async with paused(fragile):
            calls = [valkey.call("INCR", "flight"), valkey.batch([["INCR", "flight"]] * 2), valkey.multi([["PING"]])]
            await asyncio.sleep(0.05)
            valkey._connection.drop()  # type: ignore[attr-defined]
            answers = await outcomes(*calls)
        assert all(isinstance(answer, ConnectionLost) and answer.may_have_run for answer in answers)
        assert await valkey.call("PING") == "PONG"  # by a new connection, without a word


async def test_a_server_that_is_killed_and_comes_back_is_found_again() -> None:
    with running_server() as server:
        async with connected(server.url, queue_timeout=0.6) as valkey:
            lost = loss(valkey)
            server.stop(signal.SIGKILL)
            await lost.wait()
            with pytest.raises(ConnectionLost) as caught:
                await valkey.call("SET", "k", "v")
            assert not caught.value.may_have_run
            assert str(server.port) in str(caught.value)
            # Once it has been away for longer than anyone would wait, nobody waits at all.
            await asyncio.sleep(0.2)
            calls = [asyncio.ensure_future(valkey.call("PING")) for _ in range(100)]
            await asyncio.sleep(0)
            assert all(isinstance(call.exception(), ConnectionLost) for call in calls)
            server.start()
            assert await eventually(valkey, "PING") == "PONG"


async def test_a_short_absence_is_only_a_delay() -> None:
    with running_server("--appendonly", "yes", "--appendfsync", "always") as server:
        async with connected(server.url, queue_timeout=TIME_LIMIT_SECONDS) as valkey:
            await valkey.call("SET", "k", "v")
            lost = loss(valkey)
            server.stop(signal.SIGKILL)
            await lost.wait()
            waiting = asyncio.ensure_future(valkey.call("GET", "k"))
            await asyncio.to_thread(server.start)
            assert await waiting == "v"


async def test_a_server_that_loads_its_data_is_as_good_as_away() -> None:
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
                if "LOADING" in str(seen[-1]):  # that was what we wanted to see: the rest may load as fast as it can
                    with server.redis_client() as operator:
                        operator.config_set("key-load-delay", 0)
                await asyncio.sleep(0.01)
            assert any("LOADING" in str(error) for error in seen)
            assert not any(error.may_have_run for error in seen[1:])  # but for what was under way when it died
            await starting


async def test_a_paused_server_is_left_in_bounded_time_and_found_again(fragile: Server) -> None:
    async with connected(fragile.url, timeout=0.2, queue_timeout=0.2, connect_timeout=0.3) as valkey:
        async with paused(fragile):
            error: BaseException = Unavailable()
            while "does not answer" not in str(error):  # at first it is a connection on which nothing comes
                [error] = await outcomes(valkey.call("PING"))
                assert isinstance(error, Unavailable)
                await asyncio.sleep(0.02)
            assert isinstance(error, ConnectionLost)
        assert await eventually(valkey, "PING") == "PONG"


@pytest.mark.parametrize("size", [1, 7, 40, 5000, 20_000, 70_000])
async def test_a_connection_that_dies_in_the_middle_of_a_reply_fails_only_what_it_carried(
    fragile: Server, size: int
) -> None:
    async with Relay(fragile.port) as relay, connected(relay.url) as valkey:
        await valkey.call("SET", "long", "x" * 60_000)
        greeting = 400  # a greeting is shorter than that, and each example dies somewhere in what follows
        relay.cut_after = greeting + size
        relay.cut()
        calls = [valkey.call("ECHO", i) for i in range(50)] + [valkey.call("GET", "long")]
        calls += [valkey.batch([["ECHO", f"b{i}"]] * 3) for i in range(20)]
        answers = await outcomes(*calls)
        wanted = [str(i) for i in range(50)] + ["x" * 60_000] + [[f"b{i}"] * 3 for i in range(20)]
        lost = [isinstance(answer, ConnectionLost) for answer in answers]
        assert all(gone or answer == want for answer, want, gone in zip(answers, wanted, lost, strict=True))
        assert lost == sorted(lost)  # all that were whole arrived, and none after the first that was not
        assert any(lost)
        relay.cut_after = None
        assert await eventually(valkey, "ECHO", "again") == "again"


async def test_every_reply_that_arrived_whole_is_delivered(fragile: Server) -> None:
    async with Relay(fragile.port) as relay, connected(relay.url) as valkey:
        text = "x" * 10_000
        size = len(f"$10000\r\n{text}\r\n")
        relay.cut_after = relay.passed + 12 * size + size // 2
        lost = loss(valkey)
        relay.cut()
        await lost.wait()
        answers = await outcomes(*(valkey.call("ECHO", text) for _ in range(20)))
        assert answers[:12] == [text] * 12
        assert all(isinstance(answer, ConnectionLost) for answer in answers[12:])


@pytest.mark.parametrize("pieces", [[60_000, 100], [1], [16_384, 1, 16_385], [20_000, 7, 3]])
async def test_replies_that_come_in_pieces_are_put_together(fragile: Server, pieces: list[int]) -> None:
    async with Relay(fragile.port) as relay:
        relay.pieces = pieces
        async with connected(relay.url) as valkey:
            texts = [f"{i} " * (9000 if i % 4 == 0 and 1 not in pieces else 3) for i in range(40)]
            assert await asyncio.gather(*(valkey.call("ECHO", text) for text in texts)) == texts
            assert await valkey.batch([["ECHO", text] for text in texts]) == texts


async def test_attempts_to_reconnect_become_rarer_and_are_spread(fragile: Server) -> None:
    async with Relay(fragile.port) as relay, connected(relay.url, backoff=0.002, max_backoff=0.1) as valkey:
        relay.refuse = True
        relay.accepted.clear()
        relay.cut()
        began = asyncio.get_running_loop().time()
        await until(lambda: len(relay.accepted) >= 25)
        spent = asyncio.get_running_loop().time() - began
        assert spent > 0.3  # without growth it would be some 75 ms
        gaps = [b - a for a, b in zip(relay.accepted, relay.accepted[1:], strict=False)][6:]
        assert max(gaps) > 1.5 * min(gaps)  # at full growth still anything up to 0.1 s
        relay.refuse = False
        assert await eventually(valkey, "PING") == "PONG"


async def test_a_server_that_cannot_be_reached_is_reported_at_connect() -> None:
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
async def test_what_a_server_says_before_it_hangs_up_is_the_reason(answer: bytes, reason: str) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(10_000)  # all of it: a connection closed on unread bytes takes its last words back
            writer.write(answer)
            await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await connection_error(f"valkey://127.0.0.1:{port}", reason)
    server.close()


async def test_closing_fails_what_still_waits(fragile: Server) -> None:
    async with await connect_for_test(fragile.url) as valkey, paused(fragile):
        call = asyncio.ensure_future(valkey.call("PING"))
        await asyncio.sleep(0.02)
        await valkey.close()
        [error] = await outcomes(call)
        assert isinstance(error, ConnectionLost)  # and closing a second time is harmless
