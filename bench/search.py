"""The search index on SQLite and PostgreSQL: `python -m bench search [--store]` prints the tables of docs/search.md.

`BENCH_POSTS` sets the number of posts (100,000; the docs want 1,000,000). Words follow Zipf's law, as in natural text.
Reading results from Valkey is not part of it: every list costs the same there. At the end a Plaza runs on the same
index. It is asked for suggestions over HTTP, which read users from Valkey, and posts are sent to it at a fixed rate.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, islice
from pathlib import Path
from time import perf_counter, process_time

import asyncpg
import psutil
from sqlalchemy import select, text

from bench.page import ROOT, markdown_table, store_section
from bench.search_indexing import INDEXING_TITLES, POSTS_PER_SECOND, SECONDS, Indexing, measure_indexing
from bench.search_requests import QueryTimes, measure_suggestions, percentiles, process_seconds, time_queries
from plaza.core.search_source import SearchDocument
from plaza.core.sequences import chunks
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.search.index import SearchIndex
from plaza.search.query import parse_query
from plaza.search.ranking import rank
from plaza.search.service import ENOUGH_EXACT, MAX_CANDIDATES, MAX_NAMES_READ, find_candidates
from plaza.search.tables import SEARCH_DOCUMENT
from tests.postgres import running_postgres

POSTS = int(os.environ.get("BENCH_POSTS", "100000"))
USERS = POSTS // 10
VOCABULARY = 50_000
BATCH = 1_000
QUERIES = 200
LETTERS = "aeiou", "bcdfghjklmnprstvwz"
DATABASES = "SQLite", "PostgreSQL"


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


@dataclass
class Figures:
    """What was measured of one database."""

    size: int
    posts_per_cpu_second: float
    queries: dict[str, QueryTimes]
    indexing: Indexing


class CpuMeter:
    """The CPU time of this process and, if there is one, of a PostgreSQL server with its processes."""

    def __init__(self, postmaster: int | None = None) -> None:
        self._postmaster = psutil.Process(postmaster) if postmaster else None

    def seconds(self) -> float:
        return process_time() + self.database_seconds()

    def database_seconds(self) -> float:
        """The CPU time of the server alone; 0 for SQLite, which is part of this process."""
        if self._postmaster is None:
            return 0.0
        pid, ended = self._postmaster.pid, self._postmaster.cpu_times()
        running = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return sum(map(process_seconds, running)) + float(ended.children_user + ended.children_system)


async def measure(name: str, settings: Settings, meter: CpuMeter) -> Figures:
    """Measure one database, and print what has been measured so far."""
    texts, sql = Texts(1), await Sql.open(settings)
    per_second = await _build(name, sql, meter, texts)
    if sql.dialect == "postgresql":
        connection = await asyncpg.connect(settings.database_url)
        # As autovacuum would, which must not run during a query.
        await connection.execute("VACUUM ANALYZE search_document, search_words, search_name, search_trigram")
        await connection.close()
    size = await _size(sql, settings)
    queries = await _ask(name, sql, meter, texts)
    await sql.close()
    names = [name for name, _ in Texts(1).users()]
    requests = await measure_suggestions(settings, names, texts.prefixes(), meter.database_seconds)
    queries["suggestions, the whole request"] = requests
    print(f"{name}: suggestions, the whole request: {requests}", flush=True)
    contents = (" ".join(texts.pick(texts.chance.randint(8, 40))) for _ in count())
    indexing = await measure_indexing(settings, contents, meter.database_seconds)
    print(f"{name}: {indexing}", flush=True)
    return Figures(size, per_second, queries, indexing)


async def _build(name: str, sql: Sql, meter: CpuMeter, texts: Texts) -> float:
    """Index all users and posts. Returns how many posts a second of CPU."""
    index, per_second = SearchIndex(sql), 0.0
    for kind, documents in (("users", texts.users()), ("posts", texts.posts())):
        cpu, clock, written = 0.0, 0.0, 0
        for batch in chunks(documents, BATCH):
            began, started = meter.seconds(), perf_counter()
            await index.write(kind, dict(batch))
            cpu, clock, written = cpu + meter.seconds() - began, clock + perf_counter() - started, written + len(batch)
        per_second = written / cpu
        rate = f"{written / clock:,.0f} a second, {per_second:,.0f} per CPU second"
        print(f"{name}: indexed {written:,} {kind} at {rate}", flush=True)
    return per_second


async def _ask(name: str, sql: Sql, meter: CpuMeter, texts: Texts) -> dict[str, QueryTimes]:
    index = SearchIndex(sql)

    async def find(query: str) -> None:
        parsed = parse_query(query)
        rank("posts", await find_candidates(index, "posts", parsed), parsed, POSTS, ())

    async def find_users(word: str) -> None:
        parsed = parse_query(word)
        found = await find_candidates(index, "users", parsed)
        if len(found) < ENOUGH_EXACT:
            found += await index.matches("users", await index.names.owners_containing("users", word, ENOUGH_EXACT))
        rank("users", found, parsed, POSTS, ())

    async def like(query: str) -> None:
        words = query.split()
        conditions = [SEARCH_DOCUMENT.c.terms.like(f"%{word}%") for word in words]
        await sql.fetch_all(select(SEARCH_DOCUMENT.c.key).where(*conditions).limit(MAX_CANDIDATES))

    async def suggest(prefix: str) -> None:
        await index.names.by_prefix("users", prefix, MAX_NAMES_READ)

    async def correct(name: str) -> None:
        await index.names.similar("users", name)

    queries = texts.queries()
    asked: dict[str, tuple[Callable[[str], Awaitable[object]], Sequence[str]]] = {
        "two words": (find, queries),
        "the same with `LIKE`": (like, list(islice(queries, 20))),
        "users, one word": (find_users, [texts.pick(1)[0] for _ in range(QUERIES)]),
        "suggestions": (suggest, texts.prefixes()),
        "corrections": (correct, texts.misspelt_names()),
    }
    measured = {}
    for title, (ask, given) in asked.items():
        measured[title] = await time_queries(ask, given, meter.seconds)
        print(f"{name}: {title}: {measured[title]}", flush=True)
    return measured


async def _size(sql: Sql, settings: Settings) -> int:
    if sql.dialect == "sqlite":
        return (settings.data_dir / "plaza.sqlite").stat().st_size
    tables = ("search_document", "search_words", "search_name", "search_trigram")
    sizes = [(await sql.fetch_all(text("SELECT pg_total_relation_size(:t)"), t=table))[0][0] for table in tables]
    return sum(sizes)


def tables(figures: Sequence[Figures]) -> str:
    """Return the tables of docs/search.md: the index, queries, and posts that were sent at a fixed rate."""
    built = [
        ["index, MB", *(f"{each.size / 1e6:,.0f}" for each in figures)],
        ["posts indexed per second of CPU", *(f"{each.posts_per_cpu_second:,.0f}" for each in figures)],
    ]
    asked = [
        [title, *(percentiles(times) for each in figures for times in each.queries[title].of_cpu_and_clock)]
        for title in figures[0].queries
    ]
    sent = [list(row) for row in zip(INDEXING_TITLES, *(each.indexing.cells() for each in figures), strict=True)]
    head = ["", *DATABASES]
    by_time = ["p50 / p95", *(f"{name}, {time}" for name in DATABASES for time in ("CPU", "by the clock"))]
    rate = f"{POSTS_PER_SECOND} posts a second were sent for {SECONDS} seconds:"
    found = markdown_table(head, built), markdown_table(by_time, asked), rate + "\n", markdown_table(head, sent)
    return "\n".join([f"{POSTS:,} posts, {USERS:,} users:\n", *found])


async def run() -> list[Figures]:
    with tempfile.TemporaryDirectory() as folder:
        figures = [await measure(DATABASES[0], Settings(data_dir=_data_dir(folder, "sqlite")), CpuMeter())]
        with running_postgres() as postgres:
            async with postgres.database() as url:
                settings = Settings(data_dir=_data_dir(folder, "postgresql"), database_url=url)
                figures.append(await measure(DATABASES[1], settings, CpuMeter(postgres.pid)))
    return figures


def _data_dir(folder: str, name: str) -> Path:
    path = Path(folder) / name
    path.mkdir(mode=0o700)
    return path


def main(arguments: Sequence[str]) -> None:
    print(f"# search: {POSTS:,} posts, {USERS:,} users")
    markdown = tables(asyncio.run(run()))
    print(markdown)
    if "--store" in arguments:
        store_section("search", markdown, ROOT / "docs/search.md")


if __name__ == "__main__":
    main(sys.argv[1:])
