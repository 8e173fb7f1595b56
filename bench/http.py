"""CPU cost of the HTTP layer, compared with a bare ASGI function and other frameworks, and per stage.

`python -m bench http`. Each server is a process; all get the same load in turns. CPU time is the server process's. The
best round counts, because other work on the machine can only add time. The stages are timed inside this process,
without sockets.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import uvloop

from bench.load import Measured, measure, post, server
from bench.web_servers import APPS, AUTH, BenchArticle, plaza
from plaza.core.http.app import App
from plaza.core.http.body_reader import read_body
from plaza.core.http.exchange import AsgiExchange
from plaza.core.http.request import Request

BODY = b'{"title": "A lamp that knows the time", "link": "https://example.org/lamp", "groups": ["home", "light"]}'
ROUNDS = 5
REQUESTS = 12_800
MAX_TIMES_BARE = 3.0
MAX_TIMES_FASTAPI = 0.5


def servers() -> dict[str, Measured]:
    """The best round of every server."""
    request = post("/articles", BODY, f"authorization: Bearer {AUTH.issue('ana', 'user')}")
    best: dict[str, Measured] = {}
    with ExitStack() as stack:
        running = {name: stack.enter_context(server("-m", "bench.web_servers", name)) for name in APPS}
        for round in range(ROUNDS + 1):
            for name, (port, process) in running.items():
                measured = measure(port, process, request, b"HTTP/1.1 201", REQUESTS)
                if round > 0 and (name not in best or measured.cpu_us < best[name].cpu_us):  # round 0 warms up
                    best[name] = measured
    return best


def scope() -> dict[str, Any]:
    """The ASGI scope that uvicorn makes for the request."""
    headers = {"host": "127.0.0.1", "content-type": "application/json", "accept": "*/*", "user-agent": "bench"}
    headers |= {"accept-encoding": "gzip", "content-length": str(len(BODY))}
    headers |= {"authorization": f"Bearer {AUTH.issue('ana', 'user')}"}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    target = {"path": "/articles", "raw_path": b"/articles", "query_string": b"", "client": ("127.0.0.1", 5)}
    return {"type": "http", "method": "POST", "scheme": "http", "headers": pairs, **target}


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": BODY, "more_body": False}


async def send(message: dict[str, Any]) -> None:
    return None


async def stages() -> dict[str, float]:
    """CPU microseconds of each stage of one request."""
    app: App = plaza()
    request_scope = scope()
    exchange = AsgiExchange(request_scope, receive, send)
    request = Request(exchange, app.proxies)
    bound = app.bind(app._find(request).methods["POST"])
    request.actor = app.authorizer.auth.actor(request.headers)
    request.body = BODY
    response = bound.encode(BenchArticle(1, "A lamp", "https://example.org/lamp", ["home"], "user:ana", 1, 1.5))
    observer = app.observer
    assert observer is not None
    return {
        "request object, headers, request id": await _time(lambda: Request(exchange, app.proxies)),
        "routing among 120": await _time(lambda: app._find(request)),
        "credentials": await _time(lambda: app.authorizer.auth.actor(request.headers)),
        "body, its limit and its timeout": await _time_async(lambda: read_body(exchange, 1024 * 1024)),
        "binding and decoding": await _time(lambda: bound.arguments(request)),
        "encoding the response": await _time(
            lambda: bound.encode(BenchArticle(1, "A", "b", ["c"], "user:ana", 1, 1.5))
        ),
        "headers, Server-Timing, sending": await _time_async(lambda: app.sender.send(request, response, 0.0)),
        "log line and metrics": await _time(lambda: observer.request_completed(request, 201, 0.001)),
        "total, over ASGI": await _time_async(lambda: app(request_scope, receive, send)),
    }


async def _time(work: Callable[[], Any], count: int = 20_000) -> float:
    async def run() -> None:
        work()

    empty = await _time_async(_do_nothing, count)
    return await _time_async(run, count) - empty


async def _do_nothing() -> None:
    return None


async def _time_async(work: Callable[[], Awaitable[Any]], count: int = 20_000) -> float:
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        for _ in range(count):
            await work()
        best = min(best, time.process_time() - started)
        await asyncio.sleep(0)  # the log is written between event loop iterations, as in a server
    return best / count * 1e6


def main() -> int:
    best = servers()
    print(f"JSON POST among 120 routes, {REQUESTS} requests on 64 connections, best of {ROUNDS}")
    print(f"{'server':10}{'CPU µs/request':>16}{'requests/s':>12}{'× bare':>8}{'× fastapi':>11}")
    for name, m in best.items():
        times = m.cpu_us / best["bare"].cpu_us, m.cpu_us / best["fastapi"].cpu_us
        print(f"{name:10}{m.cpu_us:16.1f}{m.per_second:12.0f}{times[0]:8.2f}{times[1]:11.2f}")
    print(f"\n{'stage':40}{'CPU µs':>8}")
    for stage, cost in uvloop.run(stages()).items():
        print(f"{stage:40}{cost:8.2f}")
    ours = best["plaza"].cpu_us
    met = ours <= MAX_TIMES_BARE * best["bare"].cpu_us and ours <= MAX_TIMES_FASTAPI * best["fastapi"].cpu_us
    print(f"\nat most {MAX_TIMES_BARE:g} × bare and {MAX_TIMES_FASTAPI:g} × fastapi: {'yes' if met else 'NO'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
