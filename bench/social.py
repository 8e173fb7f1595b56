"""Social beside the same work done the usual way, over HTTP; then how long Valkey ever stands still for the large jobs.

One Valkey, one load generator, the same requests to both in turn: like and unlike, create a post, a page of explore, a
page of the home feed. What counts is CPU: of the server process alone, and together with what Valkey spent on it.

    python -m bench social
"""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psutil
import uvloop

from bench.load import Measured, measure, request, server
from plaza.core import paging
from plaza.core.auth import Auth
from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.core.valkey.client import Valkey
from plaza.core.wire import connect
from plaza.social import keys as k
from plaza.social.home import Home
from plaza.social.jobs import RESCORED
from plaza.social.library import LIBRARY
from plaza.social.posts import Posts
from plaza.social.reading import Reader
from plaza.social.sync import Sync
from plaza.social.users import People
from tests.servers import Server, one_server

SECRET = "s" * 32
PEOPLE, POSTS, FOLLOWED = 300, 3_000, 100
REQUESTS, ROUNDS = 2_560, 3
ENGAGED = 100_000
MANY, EACH = 5_000, 1_000

OURS, PEER = "plaza", "fastapi + redis-py"


@dataclass
class Spent:
    """What both processes spent on some requests."""

    http: Measured
    valkey_seconds: float

    @property
    def cpu_us(self) -> float:
        return self.http.cpu_us

    @property
    def all_us(self) -> float:
        return self.http.cpu_us + self.valkey_seconds / self.http.requests * 1e6


def post_id(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


class Community:
    """People who follow each other and post, and the functions to make them."""

    def __init__(self, valkey: Valkey) -> None:
        self.valkey, clock = valkey, Clock()
        self.functions = Functions(valkey, [LIBRARY, paging.LIBRARY])
        self.auth = Auth(Settings(jwt_secret=SECRET, api_key="k" * 32))
        people = People(self.functions, self.auth, clock)
        posts = Posts(self.functions, Reader(self.functions), people, clock)
        self.sync = Sync(self.functions, posts, clock)
        self.home = Home(self.functions, Reader(self.functions), clock)

    async def fill(self) -> None:
        dice = random.Random(1)
        await self.functions.load()
        people = [{"username": f"u{i}", "display_name": f"User {i}", "role": "model" if i % 5 == 0 else "user"}
                  for i in range(PEOPLE)]  # fmt: skip
        await self.sync.take("user", people)
        words = ["morning", "coffee", "river", "night", "garden", "stone", "paper", "light", "music", "walk"]
        made = [{"id": post_id(i), "username": f"u{i % PEOPLE}",
                 "content": " ".join(dice.choices(words, k=20)) + f" #{dice.choice(words)} #{dice.choice(words)}"}
                for i in range(POSTS)]  # fmt: skip
        follows = [{"follower": f"u{i}", "following": f"u{other}"} for i in range(PEOPLE)
                   for other in dice.sample(range(PEOPLE), FOLLOWED) if other != i]  # fmt: skip
        likes = [{"username": f"u{dice.randrange(PEOPLE)}", "post_id": post_id(dice.randrange(POSTS))}
                 for _ in range(2 * POSTS)]  # fmt: skip
        for kind, records in (("post", made), ("follow", follows), ("like", likes)):
            for first in range(0, len(records), 1_000):
                await self.sync.take(kind, records[first : first + 1_000])  # type: ignore[arg-type]

    def requests(self) -> dict[str, tuple[list[bytes], bytes]]:
        """What is asked of both, and how a good answer begins."""
        dice = random.Random(2)
        tokens = [f"authorization: Bearer {self.auth.issue(f'u{i}', 'user')}" for i in range(PEOPLE)]
        likes = []
        for _ in range(REQUESTS // 2):
            path, token = f"/posts/{post_id(dice.randrange(POSTS))}/like", dice.choice(tokens)
            likes += [request("POST", path, b"", token), request("DELETE", path, b"", token)]
        body = b'{"content": "A walk by the river in the morning light #river #morning"}'
        return {
            "like, unlike": (likes, b"HTTP/1.1 200"),
            "create post": ([request("POST", "/posts", body, token) for token in tokens], b"HTTP/1.1 201"),
            "explore page": ([request("GET", "/feed/explore", b"", token) for token in tokens], b"HTTP/1.1 200"),
            "following page": ([request("GET", "/feed/following", b"", token) for token in tokens], b"HTTP/1.1 200"),
        }


def over_http(place: Server, community: Community) -> None:
    assert place.process is not None
    valkey = psutil.Process(place.process.pid)
    with ExitStack() as stack:
        servers = {
            OURS: stack.enter_context(server("-m", "bench.social_server", place.url, SECRET)),
            PEER: stack.enter_context(server("-m", "bench.peers.fastapi_social", place.url, SECRET)),
        }
        print(f"Over HTTP, {REQUESTS} requests on 64 connections, best of {ROUNDS}")
        print(f"  {'':16}{'':20}{'CPU µs':>9}{'with Valkey':>13}{'requests/s':>12}{'our CPU':>10}{'with Valkey':>13}")
        for what, (requests, expect) in community.requests().items():
            best: dict[str, Spent] = {}
            for round, (name, (port, process)) in itertools.product(range(ROUNDS + 1), servers.items()):
                before = valkey.cpu_times()
                measured = measure(port, process, requests, expect, REQUESTS)
                after = valkey.cpu_times()
                spent = Spent(measured, after.user + after.system - before.user - before.system)
                if round and (name not in best or spent.all_us < best[name].all_us):
                    best[name] = spent
            mine = best[OURS]
            for name, spent in best.items():
                line = f"  {what:16}{name:20}{spent.cpu_us:9.0f}{spent.all_us:13.0f}{spent.http.per_second:12,.0f}"
                if name != OURS:
                    line += f"{spent.cpu_us / mine.cpu_us:9.1f}×{spent.all_us / mine.all_us:12.1f}×"
                print(line)
        print()


async def slowest_us(valkey: Valkey) -> int:
    """The longest time Valkey stood still for one command, since it was last asked."""
    entries = await valkey.call("SLOWLOG", "GET", "-1")
    await valkey.call("SLOWLOG", "RESET")
    return max((int(entry[2]) for entry in entries), default=0)


async def cpu_us(valkey: Valkey) -> float:
    """What Valkey's main thread has spent: unlike the clock, it does not count who else uses the machine."""
    lines = (await valkey.call("INFO", "cpu")).splitlines()
    said = dict(line.split(":", 1) for line in lines if ":" in line)
    return (float(said["used_cpu_user_main_thread"]) + float(said["used_cpu_sys_main_thread"])) * 1e6


async def rescoring(valkey: Valkey, community: Community) -> None:
    """100,000 engaged posts that are all due."""
    dice, now = random.Random(3), Clock().now_ms()
    commands: list[tuple[Any, ...]] = []
    for i in range(ENGAGED):
        id, created = post_id(1_000_000 + i), now - dice.randrange(13 * 86_400_000)
        tags = [f"tag{dice.randrange(500)}" for _ in range(2)]
        commands.append(("HSET", k.RANKING_POSTS(), id, f"{created}|{dice.randrange(1, 500)}|{','.join(tags)}"))
        commands.append(("ZADD", k.RANKING_DUE(), now, id))
        commands += [("ZADD", k.HASHTAG_RANKED(tag), 1, id) for tag in tags]
    for first in range(0, len(commands), 10_000):
        await valkey.batch(commands[first : first + 10_000])
    await slowest_us(valkey)
    spent, began, keys = [await cpu_us(valkey)], asyncio.get_running_loop().time(), [k.RANKING_DUE(), k.RANKING_POSTS()]
    while await community.functions.call("social_rescore_due", keys, now, RESCORED):
        spent.append(await cpu_us(valkey))
    took = asyncio.get_running_loop().time() - began
    each = sorted(after - before for before, after in itertools.pairwise(spent))
    said = f"{len(each)} batches of {RESCORED} in {took:.1f} s"
    cpu = [each[len(each) // 2] / 1000, each[-1 - len(each) // 100] / 1000, each[-1] / 1000]
    print(f"Rescoring {ENGAGED:,} engaged posts: {said}. A batch took {cpu[0]:.1f} ms of Valkey's CPU, "
          f"99 of 100 less than {cpu[1]:.1f} ms, the longest {cpu[2]:.1f} ms; on the clock, with all else that runs "
          f"here, the longest {await slowest_us(valkey) / 1000:.1f} ms")  # fmt: skip


async def building(valkey: Valkey, community: Community) -> None:
    """A home feed from 5,000 people with 1,000 posts each."""
    dice, now = random.Random(4), Clock().now_ms()
    names = [f"m{i}" for i in range(MANY)]
    for i, name in enumerate(names):
        rows = [part for j in range(EACH)
                for part in (now - dice.randrange(30 * 86_400_000), post_id(2_000_000 + i * EACH + j))]  # fmt: skip
        await valkey.call("ZADD", k.USER_POSTS(name), *rows)
    await slowest_us(valkey)
    before, began = await cpu_us(valkey), asyncio.get_running_loop().time()
    found, _ = await community.home.newest(names, 800)
    took, spent = asyncio.get_running_loop().time() - began, await cpu_us(valkey) - before
    print(f"A home feed of {len(found)} from {MANY:,} people with {EACH:,} posts each: {took * 1000:.0f} ms, "
          f"{spent / 1000:.0f} ms of Valkey's CPU in {MANY:,} commands; the longest of them took "
          f"{await slowest_us(valkey) / 1000:.1f} ms on the clock\n")  # fmt: skip


async def prepare(url: str) -> Community:
    valkey = await connect(url)
    community = Community(valkey)
    await community.fill()
    await valkey.close()
    return community


async def standing_still(url: str) -> None:
    valkey = await connect(url)
    community = Community(valkey)
    await community.functions.load()
    await valkey.call("CONFIG", "SET", "slowlog-log-slower-than", 100)
    await valkey.call("CONFIG", "SET", "slowlog-max-len", 100_000)
    await rescoring(valkey, community)
    await building(valkey, community)
    await valkey.close()


def main() -> None:
    uvloop.install()
    with one_server() as place:
        over_http(place, asyncio.run(prepare(place.url)))
        asyncio.run(standing_still(place.url))


if __name__ == "__main__":
    main()
