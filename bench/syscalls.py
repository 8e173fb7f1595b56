"""System calls per request of the service: `python -m bench syscalls [--store]`. Needs strace.

One connection shows what a request needs by itself; on 32, one call often serves several requests.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench.community import BenchCommunity
from bench.contenders import Contender, serving_plaza, settings_of
from bench.load import load
from bench.page import markdown_table, store_section
from bench.paths import CONNECTIONS, RequestMaker, RequestPath, path_groups
from tests.servers import running_server

REQUESTS = 640
PATHS = (
    "like",
    "explore, signed in",
    "following, warm",
    "profile, anonymous",
    "articles, anonymous",
    "vote",
    "heartbeat",
)
SHOWN = 5
HEAD = ("path", "one connection", "", "32 connections", "")


def count_calls(plaza: Contender, path: RequestPath, round: int, connections: int) -> Counter[str]:
    """Count the system calls of the service while it handles the requests of a round."""
    requests = path.requests(round, "")
    with tempfile.NamedTemporaryFile("r") as output:
        command = ["strace", "--follow-forks", "--summary-only", f"--output={output.name}"]
        with subprocess.Popen([*command, f"--attach={plaza.process.pid}"], stderr=subprocess.DEVNULL) as trace:
            _wait_for_trace(plaza)
            uvloop.run(load(plaza.port, requests, path.expect, len(requests), connections))
            trace.send_signal(signal.SIGINT)
        lines = [line.split() for line in output.read().splitlines()]
    rows = [line for line in lines if len(line) >= 5 and line[0][0].isdigit() and line[-1] != "total"]
    return Counter({line[-1]: int(line[3]) for line in rows})


def _wait_for_trace(plaza: Contender) -> None:
    status = Path(f"/proc/{plaza.process.pid}/status")
    deadline = time.monotonic() + 10
    while "TracerPid:\t0\n" in status.read_text():
        assert time.monotonic() < deadline, "strace cannot attach"
        time.sleep(0.01)


def row_of(plaza: Contender, path: RequestPath) -> list[str]:
    cells = [path.name]
    plaza.send(path.requests(0, ""), path.expect)  # warm-up
    for round, connections in ((1, 1), (2, CONNECTIONS)):
        plaza.settle()
        calls = count_calls(plaza, path, round, connections)
        parts = ", ".join(f"{name} {count / REQUESTS:.1f}" for name, count in calls.most_common(SHOWN))
        cells += [f"{calls.total() / REQUESTS:.1f}", parts]
    return cells


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench syscalls")
    parser.add_argument("--store", action="store_true", help="show this run in docs/performance.md")
    options = parser.parse_args(arguments)
    community = BenchCommunity()
    paths = [path for group in path_groups(community, REQUESTS) for path in group if path.name in PATHS]
    ping = RequestPath("ping", RequestMaker(community, REQUESTS).anonymous("/ping"), ())
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as data,
        running_server() as valkey,
        serving_plaza(Path(data), valkey) as plaza,
    ):
        community.fill(plaza.port, settings_of(Path(data), valkey))
        rows = [row_of(plaza, path) for path in (ping, *paths)]
    print(markdown_table(HEAD, rows))
    if options.store:
        store_section("syscalls", markdown_table(HEAD, rows))


if __name__ == "__main__":
    main(sys.argv[1:])
