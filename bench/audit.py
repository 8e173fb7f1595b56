"""Measures the audit's speed, and its effect on other clients: `python -m bench audit`.

One process audits a million keys; the CPU time of this process and of Valkey are added. Then a smaller keyspace is
audited repeatedly while other clients like and read, and their throughput is compared with and without the audit, in
turns.
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
SMALL_KEYS = 50_000
POSTS_EACH = 4  # per user, each with two likes
FOLLOWS_EACH = 3  # four users follow each other, so that both sides of a follow are written together
KEYS_EACH = 27  # keys per user
ROUNDS = 2  # the better one counts, because other load on the machine can only add
CLIENTS = 16
TURN_SECONDS = 4.0
TURNS = 3

Command = tuple[Any, ...]


def user_commands(i: int, now: int) -> Iterator[Command]:
    """The commands that write all keys of one user: profile, follows, posts with likes, an article, a session."""
    name, created = f"user{i}", now - 40 * 86_400_000
    others = fans = [f"user{i ^ n}" for n in range(1, FOLLOWS_EACH + 1)]
    yield ("HSET", k.USER(name), "username", name, "role", "user", "created_at", created, "version", 1, "postCount",
           POSTS_EACH, "followerCount", FOLLOWS_EACH, "followingCount", FOLLOWS_EACH)  # fmt: skip
    yield ("ZADD", k.USERS_REGULAR(), created, name)
    yield ("SADD", k.USER_FOLLOWING(name), *others)
    yield ("SADD", k.USER_FOLLOWERS(name), *fans)
    yield ("ZADD", k.USER_FOLLOWING_RECENT(name), *(part for one in others for part in (created, one)))
    yield ("ZADD", k.USER_FOLLOWERS_RECENT(name), *(part for one in fans for part in (created, one)))
    for n in range(POSTS_EACH):
        yield from post_commands(name, others[:2], str(UUID(int=i * POSTS_EACH + n + 1)), created + n)
    yield ("HSET", k.USER_POINTS(name), "total", 6 * POSTS_EACH)
    yield from article_commands(name, i + 1, 1_700_000_000 + i)
    token = f"00000000-0000-4000-8000-{i:012X}"
    yield ("HSET", SESSION_STATE(token), "user", "", "since", 1_700_000_000, "seen", 1_700_000_000)
    yield ("HSET", s.CART(token), 1, 2)
    yield ("ZADD", RECENT_TOKENS(), 1_700_000_000, token)


def post_commands(name: str, likers: list[str], id: str, created: int) -> Iterator[Command]:
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


def article_commands(name: str, id: int, at: int) -> Iterator[Command]:
    member = f"article:{id}"
    yield ("HSET", a.ARTICLE(id), "title", "Title", "link", "https://example.com", "author", f"user:{name}", "time", at,
           "votes", 1)  # fmt: skip
    yield ("SADD", a.ARTICLE_UP(id), f"user:{name}")
    yield ("ZADD", a.USER_ARTICLES(name), at, member)
    yield ("ZADD", a.USER_VOTES(name), 1, member)
    yield ("SET", a.ARTICLES_LAST(), id)
    scores = (at + 432, at, (at - 1134028003) / 45_000, 0.37844750322520615, 1, 0)
    for key, score in zip(a.RANKINGS.values(), scores, strict=True):
        yield ("ZADD", key(), score, member)


def user_count(keys: float) -> int:
    return int(keys) // KEYS_EACH // (FOLLOWS_EACH + 1) * (FOLLOWS_EACH + 1)


async def fill(plaza: Plaza, users: range) -> None:
    now = plaza.core.clock.now_ms()
    commands = (command for i in users for command in user_commands(i, now))
    while chunk := list(islice(commands, 2_000)):
        await plaza.core.valkey.batch(chunk)


@asynccontextmanager
async def plaza_with_keys(keys: int) -> AsyncIterator[Plaza]:
    with running_server() as server, tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), valkey_url=server.url, rate_limits=False)
        async with running(settings) as plaza:
            await fill(plaza, range(user_count(keys)))
            yield plaza


async def cpu_seconds(plaza: Plaza) -> tuple[float, float]:
    """The CPU seconds of this process and of Valkey so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    info = await plaza.core.valkey.call("INFO", "cpu")
    statistics = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    return usage.ru_utime + usage.ru_stime, float(statistics["used_cpu_user"]) + float(statistics["used_cpu_sys"])


async def measure_speed() -> None:
    best: tuple[float, float, AuditReport] | None = None
    async with plaza_with_keys(KEYS) as plaza:
        for _ in range(ROUNDS):
            before = await cpu_seconds(plaza)
            report = await plaza.get(Audits).run()
            after = await cpu_seconds(plaza)
            assert report.clean, report.groups
            own_cpu, valkey_cpu = after[0] - before[0], after[1] - before[1]
            if best is None or own_cpu + valkey_cpu < best[0] + best[1]:
                best = own_cpu, valkey_cpu, report
    assert best is not None
    own_cpu, valkey_cpu, report = best
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rate = report.keys / report.seconds
    print(f"{report.keys:,} keys, {report.members:,} members in {report.seconds:.1f} s: {rate:,.0f} keys/s")
    cpu = own_cpu + valkey_cpu
    print(f"  CPU: {own_cpu:.1f} s here, {valkey_cpu:.1f} s in Valkey: {report.keys / cpu:,.0f} keys/s per core,")
    print(f"  a million keys in {1e6 * cpu / report.keys:.0f} s of one core; {peak:.0f} MB peak memory here")


async def traffic(plaza: Plaza, seconds: float) -> tuple[float, float]:
    """Operations per second, and their p99 in ms."""
    engagements, rng, times = plaza.get(Engagements), random.Random(1), list[float]()
    until = time.perf_counter() + seconds
    users = user_count(SMALL_KEYS)

    async def client() -> None:
        while time.perf_counter() < until:
            user, id = Actor(f"user{rng.randrange(users)}", "user"), str(UUID(int=rng.randrange(users) + 1))
            started = time.perf_counter()
            await (engagements.like(user, id) if rng.random() < 0.2 else engagements.posts.get(user, id))
            times.append(time.perf_counter() - started)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return len(times) / seconds, sorted(times)[int(len(times) * 0.99)] * 1000


async def measure_effect_on_clients() -> None:
    """Clients run in this process and the audit in another, like `plaza audit` while a server runs."""
    async with plaza_with_keys(SMALL_KEYS) as plaza:
        await traffic(plaza, 1.0)
        ratios, slow = [], []
        for _ in range(TURNS):
            alone, p99_alone = await traffic(plaza, TURN_SECONDS)
            command = (sys.executable, "-c", _AUDIT, plaza.core.settings.valkey_url)
            auditor = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
            assert auditor.stdout is not None
            await auditor.stdout.readline()
            together, p99_together = await traffic(plaza, TURN_SECONDS)
            auditor.send_signal(signal.SIGINT)  # so that it releases its lease
            await auditor.wait()
            ratios.append(together / alone)
            slow.append(p99_together / p99_alone)
        turns = ", ".join(f"{ratio:.0%}" for ratio in ratios)
        print(f"During an audit, clients reach {sorted(ratios)[TURNS // 2]:.0%} of their throughput (turns: {turns});")
        print(f"  their p99 is {sorted(slow)[TURNS // 2]:.1f} times as long")


_AUDIT = """
import asyncio, sys, tempfile
from pathlib import Path
from plaza.app import running
from plaza.core.settings import Settings
from plaza.keyspace.audit import Audits

async def main(url):
    with tempfile.TemporaryDirectory() as folder:
        async with running(Settings(data_dir=Path(folder), valkey_url=url)) as plaza:
            print("started", flush=True)
            while True:
                await plaza.get(Audits).run()

asyncio.run(main(sys.argv[1]))
"""


def main() -> None:
    asyncio.run(measure_speed())
    asyncio.run(measure_effect_on_clients())


if __name__ == "__main__":
    main()
