"""What a whole request for suggestions costs: the search in the index, and the users read for their viewer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import httpx

from plaza.core.sequences import chunks
from plaza.core.settings import Settings
from plaza.social.keys import USER
from tests.processes import serving
from tests.servers import running_server

BATCH = 1_000


@dataclass
class QueryTimes:
    """The time of each query by the CPU and by the clock."""

    cpu_ms: list[float] = field(default_factory=list)
    clock_ms: list[float] = field(default_factory=list)

    @property
    def of_cpu_and_clock(self) -> tuple[list[float], list[float]]:
        return self.cpu_ms, self.clock_ms

    def __str__(self) -> str:
        return f"CPU {percentiles(self.cpu_ms)}, by the clock {percentiles(self.clock_ms)} (p50 / p95)"


def percentiles(times: Sequence[float]) -> str:
    ordered = sorted(times)
    p50, p95 = (ordered[int(len(ordered) * share)] for share in (0.5, 0.95))
    return f"{p50:.1f} / {p95:.1f} ms"


async def time_queries(
    ask: Callable[[str], Awaitable[object]], queries: Sequence[str], cpu_seconds: Callable[[], float]
) -> QueryTimes:
    """Ask every query once."""
    times = QueryTimes()
    for query in queries:
        cpu, started = cpu_seconds(), perf_counter()
        await ask(query)
        times.clock_ms.append(1_000 * (perf_counter() - started))
        times.cpu_ms.append(1_000 * (cpu_seconds() - cpu))
    return times


def process_seconds(pid: int) -> float:
    """The CPU time of a process, exact to the nanosecond; `cpu_times` counts in hundredths of a second."""
    seconds = 0.0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            seconds += int(thread.read_text().split()[0]) / 1e9
        except OSError:  # it has just ended
            continue
    return seconds


async def measure_suggestions(
    settings: Settings, names: Sequence[str], prefixes: Sequence[str], database_seconds: Callable[[], float]
) -> QueryTimes:
    """Ask a Plaza on the database for suggestions, signed in. `names` are the indexed users.

    CPU is that of Plaza with its worker, of Valkey and of PostgreSQL.
    """
    given = {"PLAZA_DATABASE_URL": settings.database_url} if settings.database_url else {}
    given |= {"PLAZA_RATE_LIMITS": "off"}
    with running_server() as valkey:
        with valkey.redis_client() as client:
            for batch in chunks(names, BATCH):
                pipe = client.pipeline(transaction=False)
                for name in batch:
                    pipe.hset(USER(name), mapping={"username": name, "display_name": name, "role": "user"})
                pipe.execute()
        with serving(Path(settings.data_dir), PLAZA_VALKEY_URL=valkey.url, **given) as server:
            assert valkey.process is not None
            pids = [server.process.pid, valkey.process.pid, *(child.pid for child in server.children())]
            async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
                account = {"username": "reader", "password": "a long pass phrase"}
                registered = (await http.post("/auth/register", json=account)).raise_for_status().json()
                http.headers["authorization"] = f"Bearer {registered['access_token']}"

                found = 0

                async def suggest(prefix: str) -> None:
                    nonlocal found
                    answer = (await http.get("/search/suggest", params={"q": prefix})).raise_for_status().json()
                    found += bool(answer["users"])

                def cpu_seconds() -> float:
                    return sum(map(process_seconds, pids)) + database_seconds()

                await suggest(prefixes[0])
                times = await time_queries(suggest, prefixes, cpu_seconds)
                assert found > len(prefixes) / 2
                return times
