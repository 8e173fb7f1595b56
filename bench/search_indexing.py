"""Whether a running Plaza indexes posts as fast as they are written: so many a second, whatever it has finished."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from uuid import uuid4

import httpx
import psutil
from sqlalchemy import func, select

from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.search.index import SearchIndex
from plaza.search.tables import SEARCH_DOCUMENT
from tests.processes import serving
from tests.waiting import eventually

API_KEY = "a key for the benchmark of search"
POSTS_PER_SECOND = 500
SECONDS = 20
REQUESTS_PER_SECOND = 10
POSTS_PER_REQUEST = POSTS_PER_SECOND // REQUESTS_PER_SECOND
AUTHORS = 100
# What is written is found within two seconds.
MAX_BEHIND_SECONDS = 2.0

# Only posts are written meanwhile, so this counts them, without reading a million rows.
_LAST_ID = select(func.max(SEARCH_DOCUMENT.c.id))


INDEXING_TITLES = (
    "the index was behind by at most",
    "all were indexed, after the last was sent",
    "CPU of a post, with its request and all consumers of its events",
)


@dataclass
class Indexing:
    """What was measured. The index is `behind` by the time since the oldest post was sent that it does not have."""

    behind_seconds: float
    last_seconds: float
    cpu_ms: float

    def cells(self) -> list[str]:
        """Return the figures in the order of `INDEXING_TITLES`."""
        return [f"{self.behind_seconds:.2f} s", f"{self.last_seconds:.2f} s", f"{self.cpu_ms:.2f} ms"]

    def __str__(self) -> str:
        kept_up = "kept up" if self.behind_seconds <= MAX_BEHIND_SECONDS else "DID NOT KEEP UP"
        return (
            f"{POSTS_PER_SECOND} posts a second for {SECONDS} s: {kept_up}, at most {self.behind_seconds:.2f} s behind,"
            f" all indexed {self.last_seconds:.2f} s after the last, {self.cpu_ms:.2f} ms of CPU each"
        )


async def measure_indexing(settings: Settings, texts: Iterator[str], database_seconds: Callable[[], float]) -> Indexing:
    """Send posts to `/sync/posts` of a Plaza on the database, and watch its index."""
    given = {"PLAZA_DATABASE_URL": settings.database_url} if settings.database_url else {}
    with serving(Path(settings.data_dir), PLAZA_API_KEY=API_KEY, PLAZA_RATE_LIMITS="off", **given) as server:
        processes = [psutil.Process(server.process.pid), *server.children()]
        sql = await Sql.open(settings)
        async with httpx.AsyncClient(base_url=server.url, headers={"x-api-key": API_KEY}, timeout=60) as client:
            measured = await _send_and_watch(client, sql, texts, lambda: _cpu(processes) + database_seconds())
        await sql.close()
        return measured


def _cpu(processes: Sequence[psutil.Process]) -> float:
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


async def _send_and_watch(
    client: httpx.AsyncClient, sql: Sql, texts: Iterator[str], cpu_seconds: Callable[[], float]
) -> Indexing:
    async def last_id() -> int:
        return int((await sql.fetch_all(_LAST_ID))[0][0] or 0)

    async def send(kind: str, records: Sequence[dict[str, str]]) -> None:
        (await client.post(f"/sync/{kind}", json=records)).raise_for_status()

    names = [f"writer{n}" for n in range(AUTHORS)]

    async def are_indexed() -> bool:
        return len(await SearchIndex(sql).stored("users", names)) == AUTHORS

    await send("users", [{"username": name} for name in names])
    await eventually(are_indexed)
    first_id = await last_id()
    cpu, started, sending = cpu_seconds(), perf_counter(), set[asyncio.Task[None]]()
    requests = SECONDS * REQUESTS_PER_SECOND
    sent_at: list[float] = []
    behind = 0.0
    while (indexed := (await last_id()) - first_id) < requests * POSTS_PER_REQUEST:
        now = perf_counter() - started
        if len(sent_at) < requests and now >= len(sent_at) / REQUESTS_PER_SECOND:
            sent_at.append(now)
            sending.add(asyncio.create_task(send("posts", [_post(n, texts) for n in range(POSTS_PER_REQUEST)])))
        if indexed < len(sent_at) * POSTS_PER_REQUEST:
            behind = max(behind, now - sent_at[indexed // POSTS_PER_REQUEST])
        for request in [each for each in sending if each.done()]:
            request.result()  # raises what went wrong: the posts would never be indexed
            sending.remove(request)
        await asyncio.sleep(0.01)
    finished = perf_counter() - started
    await asyncio.gather(*sending)
    spent = cpu_seconds() - cpu
    return Indexing(behind, finished - sent_at[-1], 1_000 * spent / (requests * POSTS_PER_REQUEST))


def _post(number: int, texts: Iterator[str]) -> dict[str, str]:
    return {"id": str(uuid4()), "username": f"writer{number % AUTHORS}", "content": next(texts)}
