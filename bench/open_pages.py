"""Measures what thousands of open pages cost one process while posts come in.

Half of the tabs are pages of guests that show explore and its newest posts; the others are streams of signed-in users:
explore, and the feed of users they follow. Ten posts a second come in over HTTP, with and without the tabs. The
process is all of `plaza serve`: API, worker, and everything that reacts to a post.

    python -m bench open_pages
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httpx
import psutil
import uvloop

from plaza.core.auth import Auth
from plaza.core.settings import Settings
from tests.processes import ServerProcess

TABS, POSTS_PER_SECOND, SECONDS = 5_000, 10, 15
AUTHORS, SHOWN_POSTS = 50, 20
CONNECTED_AT_ONCE = 100


class Tab(asyncio.Protocol):
    """An open event stream. It counts what arrives."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.messages = 0
        self.started = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if not self.started.done():
            assert data.startswith(b"HTTP/1.1 200"), data[:200]
            self.started.set_result(None)
        self.messages += data.count(b"data: ")

    def connection_lost(self, error: Exception | None) -> None:
        if not self.started.done():
            self.started.set_exception(error or ConnectionError("closed"))


@dataclass(frozen=True, slots=True)
class CpuShare:
    """The part of a core that the process and its Valkey used."""

    plaza: float
    valkey: float


class OpenPages:
    """The server, and the users who write."""

    def __init__(self, server: ServerProcess, client: httpx.AsyncClient, tokens: list[str]) -> None:
        self._client = client
        self._tokens = tokens
        self._plaza = psutil.Process(server.process.pid)
        (self._valkey,) = [child for child in self._plaza.children() if "valkey" in child.name()]
        self.port = int(server.url.rpartition(":")[2])

    async def post(self, n: int) -> str:
        headers = {"authorization": f"Bearer {self._tokens[n % AUTHORS]}"}
        answer = await self._client.post("/posts", json={"content": f"Post {n}"}, headers=headers)
        return str(answer.raise_for_status().json()["id"])

    def requests(self, posts: list[str]) -> list[bytes]:
        """One request for each tab."""
        watch = ",".join(["explore", *(f"post:{id}" for id in posts)])
        requests = []
        for n in range(TABS):
            path, token = f"/app/stream?since={time.time_ns() // 1_000_000}&watch={watch}", ""
            if n % 2:
                path = "/feed/explore/stream" if n % 4 == 1 else "/feed/following/stream"
                token = f"authorization: Bearer {self._tokens[n // 2 % len(self._tokens)]}\r\n"
            requests.append(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{token}\r\n".encode())
        return requests

    async def open(self, posts: list[str]) -> list[Tab]:
        loop, tabs = asyncio.get_running_loop(), list[Tab]()
        requests = self.requests(posts)
        for i in range(0, TABS, CONNECTED_AT_ONCE):
            some = [Tab(request) for request in requests[i : i + CONNECTED_AT_ONCE]]
            await asyncio.gather(*(loop.create_connection(lambda tab=tab: tab, "127.0.0.1", self.port) for tab in some))  # type: ignore[misc]
            await asyncio.gather(*(tab.started for tab in some))
            tabs += some
        return tabs

    async def measure(self) -> CpuShare:
        """Post for some seconds, and return what that costs."""
        await asyncio.sleep(3)  # what came before has settled
        before, started = self._cpu(), time.perf_counter()
        for n in range(SECONDS * POSTS_PER_SECOND):
            await self.post(n)
            await asyncio.sleep(max(0.0, started + (n + 1) / POSTS_PER_SECOND - time.perf_counter()))
        after, seconds = self._cpu(), time.perf_counter() - started
        return CpuShare(*((b - a) / seconds for a, b in zip(before, after, strict=True)))

    def _cpu(self) -> tuple[float, float]:
        plaza, valkey = ((t := process.cpu_times()).user + t.system for process in (self._plaza, self._valkey))
        return plaza, valkey

    def memory_mb(self) -> float:
        return float(self._plaza.memory_info().rss) / 2**20


async def prepare(client: httpx.AsyncClient, key: str) -> None:
    """Create users who follow the authors."""
    headers = {"x-api-key": key}
    names = [f"u{n}" for n in range(TABS // 4)]
    for i in range(0, len(names), 1_000):
        users = [{"username": name} for name in names[i : i + 1_000]]
        (await client.post("/sync/users", json=users, headers=headers)).raise_for_status()
        follows = [
            {"follower": name, "followed": f"u{(n + d) % AUTHORS}"}
            for n, name in enumerate(names[i : i + 1_000])
            for d in (1, 2)
        ]
        for j in range(0, len(follows), 1_000):
            (await client.post("/sync/follows", json=follows[j : j + 1_000], headers=headers)).raise_for_status()


async def run(server: ServerProcess) -> None:
    key = (server.data_dir / "api-key").read_text().strip()
    secret = (server.data_dir / "jwt-secret").read_text().strip()
    tokens = [_token(secret, f"u{n}") for n in range(TABS // 4)]
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        await prepare(client, key)
        pages = OpenPages(server, client, tokens)
        shown = [await pages.post(n) for n in range(SHOWN_POSTS)]
        alone, memory = await pages.measure(), pages.memory_mb()
        tabs = await pages.open(shown)
        at_start = sum(tab.messages for tab in tabs)
        measured = await pages.measure()
        messages = (sum(tab.messages for tab in tabs) - at_start) / SECONDS
        print(f"{TABS:,} open tabs on one process, {POSTS_PER_SECOND} posts a second, share of a core:")
        print(f"  {'':20}{'Plaza':>10}{'Valkey':>10}")
        for name, share in (("without tabs", alone), ("with tabs", measured)):
            print(f"  {name:20}{share.plaza:>9.1%}{share.valkey:>10.1%}")
        print(f"  {'the tabs cost':20}{measured.plaza - alone.plaza:>9.1%}{measured.valkey - alone.valkey:>10.1%}")
        print(f"  {messages:,.0f} messages a second; {(pages.memory_mb() - memory) * 1024 / TABS:.0f} kB a tab\n")
        for tab in tabs:
            tab.transport.close()


def _token(secret: str, name: str) -> str:
    return Auth(Settings(jwt_secret=secret, api_key="k" * 32)).issue(name, "user")


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(
            Path(folder) / "var",
            "serve",
            "--empty",
            PLAZA_RATE_LIMITS="off",
            PLAZA_CONNECTIONS_PER_ADDRESS=str(2 * TABS),
        )
        try:
            uvloop.run(run(server.wait_for("Ctrl-C stops it.")))
        finally:
            server.process.terminate()
            with contextlib.suppress(Exception):
                server.process.wait(30)


if __name__ == "__main__":
    main()
