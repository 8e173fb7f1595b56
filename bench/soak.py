"""Runs a mixed load for hours and samples memory: does the service, or Valkey, grow without end?

Requests come at a fixed rate, of users, viewers and guests of all domains. Every sample is a line of a table. Last
comes the growth per minute in the second half, by linear regression; Valkey grows with what is stored.

    make soak                     # two hours
    make soak MINUTES=10 RATE=20
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import linear_regression
from typing import Any, Final, NamedTuple

import httpx
import psutil
import redis.asyncio
import uvloop

from plaza.core.tokens import Tokens
from tests.processes import ServerProcess

MEGABYTE: Final = 1024 * 1024
# Users with a profile write; many more only read, so that caches by token and session fill up.
WRITERS, READERS, EVENTS, ITEMS = 20, 5_000, 20, 50
SAMPLES: Final = 60
LISTS: Final = (
    "/feed/explore",
    "/feed/following",
    "/articles",
    "/challenges",
    "/users/w1/posts",
    "/search?q=post",
    "/notifications",
)
PASSWORD: Final = "correct horse battery staple"


class Sample(NamedTuple):
    """What was measured at one time."""

    minute: float
    requests: int
    service_mb: float
    valkey_mb: float
    keys: int


class MixedLoad:
    """Sends requests of all domains, chosen at random."""

    def __init__(self, http: httpx.AsyncClient, secret: str, api_key: str) -> None:
        self._http = http
        self._tokens = Tokens(secret)
        self._admin = {"x-api-key": api_key}
        self._dice = random.Random(1)
        self._posts: list[str] = []
        self._articles: list[int] = []
        self.statuses: Counter[int] = Counter()
        self._kinds = {
            self._read_list: 36,
            self._read_page: 10,
            self._create_post: 6,
            self._like: 10,
            self._comment: 4,
            self._create_article: 3,
            self._vote: 6,
            self._send_heartbeat: 15,
            self._view_item: 10,
        }

    async def prepare(self) -> None:
        """Create the users who write and the items of the shop."""
        for number in range(WRITERS):
            await self._send("POST", "/auth/register", json={"username": f"w{number}", "password": PASSWORD})
        for number in range(ITEMS):
            item = {"name": f"Item {number}", "description": "", "price": "1.00", "qty": 1_000_000}
            await self._send("POST", "/shop/items", headers=self._admin, json=item)
        for _ in range(20):
            await self._create_post()
            await self._create_article()

    async def send_one(self) -> None:
        """Send one request."""
        (kind,) = self._dice.choices(list(self._kinds), list(self._kinds.values()))
        await kind()

    async def _send(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        self._http.cookies.clear()  # every visitor of the shop and of the pages is a new one
        response = await self._http.request(method, path, **options)
        self.statuses[response.status_code] += 1
        is_json = response.is_success and "json" in response.headers.get("content-type", "")
        answer: dict[str, Any] = response.json() if is_json else {}
        return answer

    def _user(self, *, writes: bool) -> Mapping[str, str]:
        name = f"w{self._dice.randrange(WRITERS)}" if writes else f"r{self._dice.randrange(READERS)}"
        return {"authorization": f"Bearer {self._tokens.issue(name, 'user', time.time_ns() // 1_000_000, {})}"}

    async def _read_list(self) -> None:
        await self._send("GET", self._dice.choice(LISTS), headers=self._user(writes=False))

    async def _read_page(self) -> None:
        await self._send("GET", self._dice.choice(("/app", "/app/articles", f"/app/posts/{self._post()}")))

    async def _create_post(self) -> None:
        content = f"Post {self._dice.random()} #tag{self._dice.randrange(100)}"
        created = await self._send("POST", "/posts", headers=self._user(writes=True), json={"content": content})
        self._posts.append(created["id"])

    def _post(self) -> str:
        return self._dice.choice(self._posts)

    async def _like(self) -> None:
        await self._send("POST", f"/posts/{self._post()}/like", headers=self._user(writes=True))

    async def _comment(self) -> None:
        path, text = f"/posts/{self._post()}/comments", {"content": "A comment."}
        await self._send("POST", path, headers=self._user(writes=True), json=text)

    async def _create_article(self) -> None:
        article = {"title": "An article", "link": f"https://example.org/{self._dice.random()}", "groups": ["soak"]}
        created = await self._send("POST", "/articles", headers=self._user(writes=True), json=article)
        self._articles.append(created["id"])

    async def _vote(self) -> None:
        path = f"/articles/{self._dice.choice(self._articles)}/vote"
        await self._send("PUT", path, headers=self._user(writes=True), json={"direction": "up"})

    async def _send_heartbeat(self) -> None:
        path = f"/analytics/events/soak{self._dice.randrange(EVENTS)}/heartbeat"
        await self._send("POST", path, headers=self._user(writes=False), json={"location": "web"})

    async def _view_item(self) -> None:
        await self._send("GET", f"/shop/pages/items/{self._dice.randrange(1, ITEMS + 1)}")


async def soak(server: ServerProcess, minutes: float, per_second: float) -> list[Sample]:
    """Send requests for so long, and print and return the samples."""
    data_dir, samples = server.data_dir, list[Sample]()
    secrets = (data_dir / "jwt-secret").read_text().strip(), (data_dir / "api-key").read_text().strip()
    valkey = redis.asyncio.Redis(unix_socket_path=str(data_dir / "valkey.sock"))
    service, stored = psutil.Process(server.process.pid), server.valkey()
    async with httpx.AsyncClient(base_url=server.url, timeout=60, verify=False) as http:
        load = MixedLoad(http, *secrets)
        await load.prepare()
        started = time.monotonic()
        running: set[asyncio.Task[None]] = set()
        print(f"{'minute':>8}{'requests':>10}{'service MB':>12}{'Valkey MB':>11}{'keys':>9}")
        while (passed := time.monotonic() - started) < minutes * 60:
            if passed >= len(samples) * minutes * 60 / SAMPLES:
                service_mb, valkey_mb = (process.memory_info().rss / MEGABYTE for process in (service, stored))
                sample = Sample(passed / 60, load.statuses.total(), service_mb, valkey_mb, await valkey.dbsize())
                samples.append(sample)
                print("{:8.1f}{:10,}{:12.1f}{:11.1f}{:9,}".format(*samples[-1]), flush=True)
            task = asyncio.create_task(load.send_one())
            running.add(task)
            task.add_done_callback(running.discard)
            await asyncio.sleep(1 / per_second)
        await asyncio.gather(*running)
    await valkey.aclose()
    print(f"statuses: {dict(load.statuses)}")
    return samples


def growth(samples: Sequence[Sample], column: str) -> float:
    """Return the growth of a column per minute, in the second half of the samples."""
    half = samples[len(samples) // 2 :]
    return linear_regression([s.minute for s in half], [getattr(s, column) for s in half]).slope


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a mixed load and sample memory.")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--rate", type=float, default=50, help="requests per second")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder) / "var", PLAZA_RATE_LIMITS="off", PLAZA_QUEUE_MS="0")
        try:
            server.wait_for("Ctrl-C stops it.")
            samples = uvloop.run(soak(server, given.minutes, given.rate))
        finally:
            server.stop()
    keys = growth(samples, "keys")
    print(f"second half: service {growth(samples, 'service_mb'):+.2f} MB a minute", end=", ")
    print(f"Valkey {growth(samples, 'valkey_mb'):+.2f} MB a minute for {keys:+,.0f} keys a minute")


if __name__ == "__main__":
    main()
