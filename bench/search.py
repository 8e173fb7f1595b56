"""The search index on SQLite and PostgreSQL: build rate, size, queries, suggestions, corrections; and `LIKE`.

`BENCH_POSTS` sets the number of posts (100,000; the figures of docs/search.md are of 1,000,000). Words follow
Zipf's law, as in natural text. Reading results from Valkey is not part of it: every list costs the same there.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path
from time import perf_counter, process_time

import asyncpg
import psutil
from sqlalchemy import select, text

from plaza.core.search_source import SearchDocument
from plaza.core.sequences import chunks
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.search.index import SearchIndex
from plaza.search.query import parse_query
from plaza.search.ranking import rank
from plaza.search.service import MAX_CANDIDATES, find_candidates
from plaza.search.tables import SEARCH_DOCUMENT
from tests.postgres import running_postgres

POSTS = int(os.environ.get("BENCH_POSTS", "100000"))
USERS = POSTS // 10
VOCABULARY = 50_000
BATCH = 1_000
QUERIES = 200
LETTERS = "aeiou", "bcdfghjklmnprstvwz"


def vocabulary(chance: random.Random) -> list[str]:
    """Words that can be pronounced, each once."""
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        syllables = chance.randint(1, 4)
        words["".join(chance.choice(LETTERS[1]) + chance.choice(LETTERS[0]) for _ in range(syllables))] = None
    return list(words)


class Texts:
    """Random texts in which the second word is half as frequent as the first, the third a third, and so on."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.words = vocabulary(self.chance)
        self._weights = list(accumulate(1 / rank for rank in range(1, len(self.words) + 1)))

    def pick(self, count: int) -> list[str]:
        return self.chance.choices(self.words, cum_weights=self._weights, k=count)

    def posts(self) -> Iterator[tuple[str, SearchDocument]]:
        for number in range(POSTS):
            words = self.pick(self.chance.randint(8, 40))
            author = f"user{self.chance.randrange(USERS)}"
            yield str(number), SearchDocument([" ".join(words)], author, [words[0]], created_ms=number)

    def users(self) -> Iterator[tuple[str, SearchDocument]]:
        for number in range(USERS):
            name = f"{self.pick(1)[0]}{number}"
            yield name, SearchDocument([name], name, names=[name], weight=self.chance.paretovariate(1))

    def queries(self) -> list[str]:
        return [" ".join(self.pick(2)) for _ in range(QUERIES)]

    def prefixes(self) -> list[str]:
        return [self.pick(1)[0][: self.chance.randint(1, 4)] for _ in range(QUERIES)]

    def misspelt_names(self) -> list[str]:
        return [f"{self.pick(1)[0]}x{self.chance.randrange(USERS)}" for _ in range(QUERIES // 4)]


class CpuMeter:
    """The CPU time of this process and, if there is one, of a PostgreSQL server with its processes."""

    def __init__(self, postmaster: int | None = None) -> None:
        self._postmaster = psutil.Process(postmaster) if postmaster else None

    def seconds(self) -> float:
        if self._postmaster is None:
            return process_time()
        pid, ended = self._postmaster.pid, self._postmaster.cpu_times()
        running = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return process_time() + sum(map(_process_seconds, running)) + float(ended.children_user + ended.children_system)

    async def measure(self, run: Callable[[str], Awaitable[object]], queries: Sequence[str]) -> str:
        """Run every query once. Returns p50 and p95 of the time and of the CPU time."""
        times, cpu_times = [], []
        for query in queries:
            cpu, started = self.seconds(), perf_counter()
            await run(query)
            times.append(1_000 * (perf_counter() - started))
            cpu_times.append(1_000 * (self.seconds() - cpu))
        return f"{_percentiles(times)}   CPU {_percentiles(cpu_times)}"


def _process_seconds(pid: str) -> float:
    # Exact to the nanosecond; `cpu_times` counts in hundredths of a second.
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except OSError:  # it has just ended
        return 0.0


def _percentiles(times: list[float]) -> str:
    times.sort()
    return f"p50 {times[len(times) // 2]:7.2f} ms  p95 {times[int(len(times) * 0.95)]:7.2f} ms"


async def measure(name: str, settings: Settings, meter: CpuMeter) -> None:
    sql = await Sql.open(settings)
    index = SearchIndex(sql)
    texts = Texts(1)
    for kind, documents in (("users", texts.users()), ("posts", texts.posts())):
        cpu, started, count = meter.seconds(), perf_counter(), 0
        for batch in chunks(documents, BATCH):
            await index.write(kind, dict(batch))
            count += len(batch)
        rates = count / (perf_counter() - started), count / (meter.seconds() - cpu)
        print(
            f"{name}: indexed {count:,} {kind} at {rates[0]:,.0f} a second, {rates[1]:,.0f} per CPU second", flush=True
        )
    if sql.dialect == "postgresql":
        connection = await asyncpg.connect(settings.database_url)
        # As autovacuum would, which must not run during a query.
        await connection.execute("VACUUM ANALYZE search_document, search_words")
        await connection.close()
    print(f"{name}: size {await _size(sql, settings) / 1e6:,.0f} MB")

    async def find(query: str) -> None:
        parsed = parse_query(query)
        rank("posts", await find_candidates(index, "posts", parsed), parsed, POSTS, ())

    async def like(query: str) -> None:
        words = query.split()
        conditions = [SEARCH_DOCUMENT.c.terms.like(f"%{word}%") for word in words]
        await sql.fetch_all(select(SEARCH_DOCUMENT.c.key).where(*conditions).limit(MAX_CANDIDATES))

    async def suggest(prefix: str) -> None:
        await index.names.by_prefix("users", prefix, 32)

    async def correct(name: str) -> None:
        await index.names.similar("users", name)

    queries = texts.queries()
    print(f"{name}: two words      {await meter.measure(find, queries)}")
    print(f"{name}: the same LIKE  {await meter.measure(like, list(islice(queries, 20)))}")
    print(f"{name}: suggestions    {await meter.measure(suggest, texts.prefixes())}")
    print(f"{name}: corrections    {await meter.measure(correct, texts.misspelt_names())}", flush=True)
    await sql.close()


async def _size(sql: Sql, settings: Settings) -> int:
    if sql.dialect == "sqlite":
        return (settings.data_dir / "plaza.sqlite").stat().st_size
    tables = ("search_document", "search_words", "search_name", "search_trigram")
    sizes = [(await sql.fetch_all(text("SELECT pg_total_relation_size(:t)"), t=table))[0][0] for table in tables]
    return sum(sizes)


async def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await measure("SQLite", Settings(data_dir=Path(folder)), CpuMeter())
        with running_postgres() as postgres:
            async with postgres.database() as url:
                await measure("PostgreSQL", Settings(data_dir=Path(folder), database_url=url), CpuMeter(postgres.pid))


def main() -> None:
    print(f"# search: {POSTS:,} posts, {USERS:,} users")
    asyncio.run(run())


if __name__ == "__main__":
    main()
