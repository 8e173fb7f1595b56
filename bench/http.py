"""What our layer costs on top of a bare ASGI function, and beside others: `python -m bench.http`.

Each server is a process of its own, under the same load, turn by turn; CPU is the server process's. The best of the
rounds counts, for the machine's other work can only add.
"""

from __future__ import annotations

from contextlib import ExitStack

import uvloop

from bench.load import Measured, measure, post, server
from bench.web_servers import APPS, AUTH

BODY = b'{"title": "A lamp that knows the time", "link": "https://example.org/lamp", "groups": ["home", "light"]}'
ROUNDS = 5
REQUESTS = 12_800


def main() -> dict[str, Measured]:
    uvloop.install()
    request = post("/articles", BODY, f"authorization: Bearer {AUTH.issue('ana', 'user')}")
    best: dict[str, Measured] = {}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(server("-m", "bench.web_servers", name)) for name in APPS}
        for round in range(ROUNDS + 1):
            for name, (port, process) in servers.items():
                measured = measure(port, process, request, b"HTTP/1.1 201", REQUESTS)
                if round > 0 and (name not in best or measured.cpu_us < best[name].cpu_us):
                    best[name] = measured
    print(f"JSON POST among 120 routes, {REQUESTS} requests on 64 connections, best of {ROUNDS}")
    print(f"{'server':10}{'CPU µs/request':>16}{'requests/s':>12}{'× bare':>8}{'× fastapi':>11}")
    for name, m in best.items():
        times = m.cpu_us / best["bare"].cpu_us, m.cpu_us / best["fastapi"].cpu_us
        print(f"{name:10}{m.cpu_us:16.1f}{m.per_second:12.0f}{times[0]:8.2f}{times[1]:11.2f}")
    return best


if __name__ == "__main__":
    main()
