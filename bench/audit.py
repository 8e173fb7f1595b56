"""How fast an audit is, and what it costs those beside it: `python -m bench audit`.

A million keys as the domains would have written them, audited whole by one process. A core is a core: what this process
and Valkey burn is added up. Then a smaller keyspace is audited again and again beside callers who like and read, and
their pace is compared with and without it, in turns.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from plaza.app import Plaza, running
from plaza.articles import keys as a
from plaza.core.auth import Actor
from plaza.core.settings import Settings
from plaza.keyspace.audit import AuditReport, Audits
from plaza.sessions.keys import RECENT_TOKENS, SESSION_STATE
from plaza.shop import keys as s
from plaza.social import keys as k
from plaza.social.engagements import Engagements
from tests.servers import running_server

KEYS = int(os.environ.get("BENCH_AUDIT_KEYS", "1000000"))
SMALL = 50_000
POSTS_EACH = 4  # per person, each with two likes
FOLLOWS_EACH = 3
KEYS_EACH = 27  # what one person brings
ROUNDS = 2  # of which the better counts: what else the machine does can only add
CALLERS = 16
SECONDS = 4.0
TURNS = 3

Command = tuple[Any, ...]


def person(i: int, people: int, now: int) -> Iterator[Command]:
    """All keys of one person: profile, follows, posts with likes, an article, a session."""
    name, created = f"person{i}", now - 40 * 86_400_000
    others = [f"person{(i + n) % people}" for n in range(1, FOLLOWS_EACH + 1)]
    fans = [f"person{(i - n) % people}" for n in range(1, FOLLOWS_EACH + 1)]
    yield ("HSET", k.USER(name), "username", name, "role", "user", "created_at", created, "version", 1, "postCount",
           POSTS_EACH, "followerCount", FOLLOWS_EACH, "followingCount", FOLLOWS_EACH)  # fmt: skip
    yield ("ZADD", k.USERS_REGULAR(), created, name)
    yield ("SADD", k.USER_FOLLOWING(name), *others)
    yield ("SADD", k.USER_FOLLOWERS(name), *fans)
    yield ("ZADD", k.USER_FOLLOWING_RECENT(name), *(part for one in others for part in (created, one)))
    yield ("ZADD", k.USER_FOLLOWERS_RECENT(name), *(part for one in fans for part in (created, one)))
    for n in range(POSTS_EACH):
        yield from post(name, others[:2], str(UUID(int=i * POSTS_EACH + n + 1)), created + n)
    yield ("HSET", k.USER_POINTS(name), "total", 6 * POSTS_EACH)
    yield from article(name, i + 1, 1_700_000_000 + i)
    token = f"00000000-0000-4000-8000-{i:012X}"
    yield ("HSET", SESSION_STATE(token), "user", "", "since", 1_700_000_000, "seen", 1_700_000_000)
    yield ("HSET", s.CART(token), 1, 2)
    yield ("ZADD", RECENT_TOKENS(), 1_700_000_000, token)


def post(name: str, likers: list[str], id: str, created: int) -> Iterator[Command]:
    yield ("HSET", k.POST(id), "id", id, "user_id", name, "username", name, "content", "Good morning #plaza",
           "created_at", created, "hashtags", "plaza", "likesCount", len(likers), "commentsCount", 0, "bookmarksCount",
           0, "user_version", 1, "avatar", "", "display_name", "", "user_role", "user")  # fmt: skip
    yield ("SADD", k.POST_LIKES(id), *likers)
    yield ("ZADD", k.POST_LIKES_RECENT(id), *(part for one in likers for part in (created, one)))
    for one in likers:
        yield ("ZADD", k.USER_LIKED(one), created, id)
    yield ("ZADD", k.USER_POSTS(name), created, id)
    yield ("ZADD", k.EXPLORE_FEED(), created, id)
    yield ("ZADD", k.HASHTAG_POSTS("plaza"), created, id)
    yield ("HSET", k.USER_POINTS(name), id, 6)


def article(name: str, id: int, at: int) -> Iterator[Command]:
    member = f"article:{id}"
    yield ("HSET", a.ARTICLE(id), "title", "Title", "link", "https://example.com", "author", f"user:{name}", "time", at,
           "votes", 1)  # fmt: skip
    yield ("SADD", a.ARTICLE_UP(id), f"user:{name}")
    yield ("ZADD", a.USER_ARTICLES(name), at, member)
    yield ("ZADD", a.USER_VOTES(name), 1, member)
    yield ("SET", a.ARTICLES_LAST(), id)
    scores = (at + 432, at, (at - 1134028003) / 45_000, 0.37844750322520615, 0)
    for key, score in zip(a.RANKINGS.values(), scores, strict=True):
        yield ("ZADD", key(), score, member)


async def fill(plaza: Plaza, keys: int) -> None:
    people, now = keys // KEYS_EACH, plaza.core.clock.now_ms()
    commands = (command for i in range(people) for command in person(i, people, now))
    while some := list(islice(commands, 2_000)):
        await plaza.core.valkey.batch(some)


@asynccontextmanager
async def filled(keys: int) -> AsyncIterator[Plaza]:
    with running_server() as server, tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), valkey_url=server.url, rate_limits=False)
        async with running(settings) as plaza:
            await fill(plaza, keys)
            yield plaza


async def burnt(plaza: Plaza) -> tuple[float, float]:
    """CPU seconds of this process and of Valkey so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    info = await plaza.core.valkey.call("INFO", "cpu")
    told = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    return usage.ru_utime + usage.ru_stime, float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


async def whole() -> None:
    best: tuple[float, float, AuditReport] | None = None
    async with filled(KEYS) as plaza:
        for _ in range(ROUNDS):
            before = await burnt(plaza)
            report = await plaza.get(Audits).run()
            after = await burnt(plaza)
            assert report.clean, report.groups
            ours, theirs = after[0] - before[0], after[1] - before[1]
            if best is None or ours + theirs < best[0] + best[1]:
                best = ours, theirs, report
    assert best is not None
    ours, theirs, report = best
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rate = report.keys / report.seconds
    print(f"{report.keys:,} keys, {report.members:,} members in {report.seconds:.1f} s: {rate:,.0f} keys/s")
    print(f"  CPU: {ours:.1f} s here, {theirs:.1f} s in Valkey: {report.keys / (ours + theirs):,.0f} keys/s per core,")
    print(f"  a million keys in {1e6 * (ours + theirs) / report.keys:.0f} s of one core; {peak:.0f} MB at most here")


async def traffic(plaza: Plaza, seconds: float) -> tuple[float, float]:
    """Operations a second, and the 99th percentile of their time in ms."""
    engagements, dice, times = plaza.get(Engagements), random.Random(1), list[float]()
    until = time.perf_counter() + seconds
    people = SMALL // KEYS_EACH

    async def caller() -> None:
        while time.perf_counter() < until:
            who, id = Actor(f"person{dice.randrange(people)}", "user"), str(UUID(int=dice.randrange(people) + 1))
            began = time.perf_counter()
            await (engagements.like(who, id) if dice.random() < 0.2 else engagements.posts.get(who, id))
            times.append(time.perf_counter() - began)

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return len(times) / seconds, sorted(times)[int(len(times) * 0.99)] * 1000


async def beside() -> None:
    """Callers in this process, the audit in another, as `plaza audit` beside a server would be."""
    async with filled(SMALL) as plaza:
        await traffic(plaza, 1.0)
        ratios, slow = [], []
        for _ in range(TURNS):
            alone, p99_alone = await traffic(plaza, SECONDS)
            command = (sys.executable, "-c", _AUDIT, plaza.core.settings.valkey_url)
            auditor = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
            assert auditor.stdout is not None
            await auditor.stdout.readline()
            together, p99_together = await traffic(plaza, SECONDS)
            auditor.send_signal(signal.SIGINT)  # so that it gives its lease back
            await auditor.wait()
            ratios.append(together / alone)
            slow.append(p99_together / p99_alone)
        turns = ", ".join(f"{ratio:.0%}" for ratio in ratios)
        print(f"Beside an audit, callers do {sorted(ratios)[TURNS // 2]:.0%} of what they do alone (turns: {turns});")
        print(f"  their 99th percentile is {sorted(slow)[TURNS // 2]:.1f} times as long")


_AUDIT = """
import asyncio, sys, tempfile
from pathlib import Path
from plaza.app import running
from plaza.core.settings import Settings
from plaza.keyspace.audit import Audits

async def main(url):
    with tempfile.TemporaryDirectory() as folder:
        async with running(Settings(data_dir=Path(folder), valkey_url=url)) as plaza:
            print("go", flush=True)
            while True:
                await plaza.get(Audits).run()

asyncio.run(main(sys.argv[1]))
"""


def main() -> None:
    asyncio.run(whole())
    asyncio.run(beside())


if __name__ == "__main__":
    main()
