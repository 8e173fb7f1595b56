"""No call gets another's reply, however calls, cancellations, timeouts and broken connections interleave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from plaza.core.errors import Unavailable
from plaza.core.valkey import CallTimeout, ConnectionLost, Overloaded
from tests.core.relay import Relay
from tests.servers import Server
from tests.timeouts import connect_with_retries, within_time_limit

Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from([0, 500, 3000, 40_000])),  # an echo with so many extra bytes
        st.tuples(st.just("raw"), st.just(0)),
        st.tuples(st.just("batch"), st.integers(1, 5)),
        st.tuples(st.just("multi"), st.integers(1, 3)),
        st.tuples(st.just("tracked"), st.just(0)),
        st.tuples(st.just("hurried"), st.integers(0, 3)),  # a timeout of so many milliseconds
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("cut"), st.just(0)),
        st.tuples(st.just("dying"), st.integers(150, 4000)),  # connections break after so many bytes from now on
        st.tuples(st.just("healthy"), st.just(0)),
        st.tuples(st.just("pieces"), st.integers(0, 2)),
        st.tuples(st.just("tick"), st.integers(0, 3)),
    ),
    max_size=40,
)
PIECES = ([65_536], [17_000, 5], [100, 1, 400])


async def play(server: Server, steps: list[Step]) -> None:
    calls: list[tuple[Any, asyncio.Future[Any]]] = []
    async with Relay(server.port) as relay:
        valkey = await connect_with_retries(relay.url, timeout=1, queue_timeout=0.5, max_in_flight=4, backoff=0.001)
        async with valkey, within_time_limit():

            def asked(expected: Any, answer: Awaitable[Any]) -> None:
                calls.append((expected, asyncio.ensure_future(answer)))

            for number, (step, value) in enumerate(steps):
                token = f"token-{number}-"
                if step == "call":
                    asked(token + "x" * value, valkey.call("ECHO", token + "x" * value))
                elif step == "raw":
                    asked(token.encode(), valkey.call("ECHO", token, raw=True))
                elif step == "batch":
                    asked(
                        [token + str(i) for i in range(value)],
                        valkey.batch([["ECHO", token + str(i)] for i in range(value)]),
                    )
                elif step == "multi":
                    asked([token] * value, valkey.multi([["ECHO", token]] * value))
                elif step == "tracked":
                    asked(token, valkey.tracked("ECHO", token))
                elif step == "hurried":
                    asked(token, valkey.call("ECHO", token, timeout=value / 1000))
                elif step == "cancel" and calls:
                    calls[value % len(calls)][1].cancel()
                elif step == "cut":
                    relay.cut()
                elif step in ("dying", "healthy"):
                    relay.cut_after = value or None
                elif step == "pieces":
                    relay.pieces = PIECES[value]
                else:
                    for _ in range(value):
                        await asyncio.sleep(0)
            answers = await asyncio.gather(*(call for _, call in calls), return_exceptions=True)
            for (expected, _), answer in zip(calls, answers, strict=True):
                if not isinstance(answer, asyncio.CancelledError | CallTimeout | ConnectionLost | Overloaded):
                    assert answer == expected
            relay.cut_after = None
            relay.cut()
            while True:
                try:
                    assert await valkey.call("ECHO", "after") == "after"
                    break
                except Unavailable:
                    await asyncio.sleep(0.01)


@settings(max_examples=120)
@given(steps=STEPS)
def test_no_call_gets_the_reply_of_another(session_server: Server, steps: list[Step]) -> None:
    asyncio.run(play(session_server, steps))


@settings(max_examples=120)
@given(steps=STEPS)
def test_no_call_gets_the_reply_of_another_on_uvloop(session_server: Server, steps: list[Step]) -> None:
    uvloop.run(play(session_server, steps))
