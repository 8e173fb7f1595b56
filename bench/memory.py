"""Measures what things cost in Valkey: bytes per user, post, like, follow, article, vote, viewer and session.

Each step stores many of one thing through the services, and the growth of every key family (`MEMORY USAGE`) is divided
by their number. Documented keys are what any implementation of the documents stores; the others are Plaza's own.
Streams of events are listed apart: they are trimmed by age and length.

    python -m bench memory
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import uvloop

from plaza import embedding
from plaza.app import Plaza, catalogues, configured_domains
from plaza.articles.model import NewArticle
from plaza.articles.service import Articles
from plaza.core.auth import USER, Actor
from plaza.core.sequences import chunks
from plaza.core.settings import Settings
from plaza.keyspace.memory import FamilyUsage, MemoryScan
from plaza.live.heartbeats import LiveService
from plaza.live.model import Heartbeat, Viewer
from plaza.shop.items import Items
from plaza.shop.model import NewItem
from plaza.shop.views import Views
from plaza.social.inbound_sync import InboundSync

USERS, POSTS, LIKES, FOLLOWS = 2_000, 4_000, 80_000, 40_000
ARTICLES, VOTES, VIEWERS, SESSIONS = 2_000, 40_000, 5_000, 5_000
CALLERS: Final = 200
# Additional families that are named in the table, largest first.
NAMED: Final = 3

Sizes = Mapping[str, FamilyUsage]


class MemoryBench:
    """Stores things of all domains, one kind after the other."""

    def __init__(self, plaza: Plaza) -> None:
        self._plaza = plaza
        self._random = random.Random(1)
        self._users = [f"user{n}" for n in range(USERS)]
        self._posts = [f"00000000-0000-4000-8000-{n:012d}" for n in range(POSTS)]

    def steps(self) -> Mapping[str, tuple[int, Callable[[], Awaitable[object]]]]:
        """What to store, in order: how many, and how."""
        return {
            "user": (USERS, self._store_users),
            "post of 100 characters, two hashtags": (POSTS, self._store_posts),
            "follow": (FOLLOWS, self._store_follows),
            "like": (LIKES, self._store_likes),
            "article": (ARTICLES, self._store_articles),
            "vote": (VOTES, self._store_votes),
            "viewer, in a session and a group": (VIEWERS, self._store_viewers),
            "shop session with a viewed item": (SESSIONS, self._store_sessions),
        }

    async def _store_users(self) -> None:
        await self._sync("user", ({"username": name, "display_name": name.title()} for name in self._users))

    async def _store_posts(self) -> None:
        text = "A walk by the river in the morning light, and then a coffee with a book. " + "x" * 15
        records = (
            {"id": id, "username": self._users[n % USERS], "content": f"{text} #tag{n % 50} #tag{n % 7}"}
            for n, id in enumerate(self._posts)
        )
        await self._sync("post", records)

    async def _store_follows(self) -> None:
        pairs = self._pairs(self._users, self._users, FOLLOWS)
        await self._sync("follow", ({"follower": one, "following": other} for one, other in pairs))

    async def _store_likes(self) -> None:
        pairs = self._pairs(self._users, self._posts, LIKES)
        await self._sync("like", ({"username": name, "post_id": post} for name, post in pairs))

    async def _store_articles(self) -> None:
        articles = self._plaza.get(Articles)
        await _in_parallel(
            articles.post(
                Actor(name, USER), NewArticle(f"Title of article {n}", f"https://example.org/articles/{n}"), f"op{n}"
            )
            for n, name in enumerate(self._users[:ARTICLES])
        )

    async def _store_votes(self) -> None:
        articles = self._plaza.get(Articles)
        pairs = self._pairs(self._users, range(1, ARTICLES + 1), VOTES)
        await _in_parallel(articles.vote(Actor(name, USER), id, "up") for name, id in pairs)

    async def _store_viewers(self) -> None:
        live, beat = self._plaza.get(LiveService), Heartbeat("main", "session1", ["press"])
        viewers = (Viewer(f"viewer{n}", f"198.18.{n // 250}.{n % 250}", "DE") for n in range(VIEWERS))
        await _in_parallel(live.beat(viewer, "event1", beat) for viewer in viewers)

    async def _store_sessions(self) -> None:
        views = self._plaza.get(Views)
        item = await self._plaza.get(Items).create(NewItem("Cup", "A cup.", "9.50", 10), "op")
        await _in_parallel(views.view(None, item.id) for _ in range(SESSIONS))

    def _pairs(self, first: Iterable[Any], second: Iterable[Any], count: int) -> list[tuple[Any, Any]]:
        """Distinct random pairs of two different things, evenly spread."""
        ones, others = list(first), list(second)
        found: dict[tuple[Any, Any], None] = {}
        while len(found) < count:
            pair = self._random.choice(ones), self._random.choice(others)
            if pair[0] != pair[1]:
                found[pair] = None
        return list(found)

    async def _sync(self, kind: str, records: Iterable[Mapping[str, str]]) -> None:
        for batch in chunks(list(records), 1_000):
            await self._plaza.get(InboundSync).apply(kind, batch)


async def _in_parallel(calls: Iterable[Awaitable[object]]) -> None:
    for batch in chunks(list(calls), CALLERS):
        await asyncio.gather(*batch)


async def _sizes(plaza: Plaza) -> Sizes:
    domains = configured_domains(Settings())
    memory = await MemoryScan(plaza.core.valkey, catalogues(domains)).run()
    return {usage.pattern: usage for usage in memory.usages}


def _print_step(name: str, count: int, before: Sizes, after: Sizes) -> None:
    """Print the growth per thing: documented keys, additional ones with the largest, and the streams."""
    documented = additional = events = 0.0
    named: list[tuple[float, str]] = []
    for pattern, usage in after.items():
        grown = (usage.bytes - (before[pattern].bytes if pattern in before else 0)) / count
        if usage.key is not None and usage.key.document:
            documented += grown
        elif usage.key is not None and usage.key.type == "stream":
            events += grown
        else:
            additional += grown
            named.append((grown, pattern))
    named.sort(reverse=True)
    largest = ", ".join(f"`{pattern}` {grown:.0f}" for grown, pattern in named[:NAMED] if grown >= 1)
    print(f"| {name} | {documented:,.0f} | {additional:,.0f} | {events:,.0f} | {largest} |", flush=True)


async def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with embedding.running(Settings(data_dir=Path(folder), rate_limits=False)) as plaza:
            print("| one | documented keys, B | additional keys, B | its event, B | largest additional keys, B |")
            print("|---|---|---|---|---|")
            sizes = await _sizes(plaza)
            for name, (count, store) in MemoryBench(plaza).steps().items():
                await store()
                before, sizes = sizes, await _sizes(plaza)
                _print_step(name, count, before, sizes)


def main() -> None:
    uvloop.run(run())
