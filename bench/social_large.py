"""Social's large jobs: the longest time that Valkey was blocked, and the throughput.

100,000 engaged posts are scored again; a home feed is built from 5,000 users with 1,000 posts each; a user with
100,000 followers posts; a file of users and follows is imported.

    python -m bench social_large
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import statistics
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import uvloop

from plaza.core import paging
from plaza.core.auth import Actor, Auth
from plaza.core.clock import Clock
from plaza.core.encryption import FieldEncryption
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.core.valkey import Valkey, connect
from plaza.social import keys as k
from plaza.social.home_feed import HomeFeed
from plaza.social.home_feed_updates import HomeFeedUpdates
from plaza.social.inbound_sync import InboundSync
from plaza.social.jobs import RESCORE_BATCH
from plaza.social.jsonl_import import JsonlImporter
from plaza.social.library import LIBRARY
from plaza.social.model import NewPost
from plaza.social.post_reader import PostReader
from plaza.social.posts import Posts
from plaza.social.private_fields import PrivateFields
from plaza.social.users import Users
from tests.servers import running_server

ENGAGED = 100_000
MANY, EACH = 5_000, 1_000
FOLLOWERS, READING, TIMES = 100_000, 1_000, 200
USERS, FOLLOWS = 10_000, 100_000


def post_id(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


class Community:
    """Social's services, without HTTP."""

    def __init__(self, valkey: Valkey) -> None:
        self.valkey, clock = valkey, Clock()
        self.functions = Functions(valkey, [LIBRARY, paging.LIBRARY])
        auth = Auth(Settings(jwt_secret="s" * 32, api_key="k" * 32))
        private = PrivateFields(FieldEncryption(["d" * 32]))
        reader = PostReader(self.functions)
        users = Users(reader, auth, clock, private)
        self.posts = Posts(self.functions, reader, users, clock)
        self.sync = InboundSync(self.functions, self.posts, clock, private)
        self.home = HomeFeed(self.functions, PostReader(self.functions), clock)


async def slowest_us(valkey: Valkey) -> int:
    """Return the longest time that Valkey was blocked by one command since the last call."""
    entries = await valkey.call("SLOWLOG", "GET", "-1")
    await valkey.call("SLOWLOG", "RESET")
    return max((int(entry[2]) for entry in entries), default=0)


async def cpu_us(valkey: Valkey) -> float:
    """Return the CPU time of Valkey's main thread, which other processes on the machine do not influence."""
    lines = (await valkey.call("INFO", "cpu")).splitlines()
    info = dict(line.split(":", 1) for line in lines if ":" in line)
    return (float(info["used_cpu_user_main_thread"]) + float(info["used_cpu_sys_main_thread"])) * 1e6


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
    while await community.functions.run("social_rescore_due", keys, now, RESCORE_BATCH):
        spent.append(await cpu_us(valkey))
    took = asyncio.get_running_loop().time() - began
    each = sorted(after - before for before, after in itertools.pairwise(spent))
    summary = f"{len(each)} batches of {RESCORE_BATCH} in {took:.1f} s"
    cpu = [each[len(each) // 2] / 1000, each[-1 - len(each) // 100] / 1000, each[-1] / 1000]
    print(f"Rescoring {ENGAGED:,} engaged posts: {summary}. A batch took {cpu[0]:.1f} ms of Valkey's CPU, "
          f"99 of 100 less than {cpu[1]:.1f} ms, the longest {cpu[2]:.1f} ms; on the clock, with all else that runs "
          f"here, the longest {await slowest_us(valkey) / 1000:.1f} ms")  # fmt: skip


async def building(valkey: Valkey, community: Community) -> None:
    """A home feed from 5,000 users with 1,000 posts each."""
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
    print(f"A home feed of {len(found)} from {MANY:,} users with {EACH:,} posts each: {took * 1000:.0f} ms, "
          f"{spent / 1000:.0f} ms of Valkey's CPU in {MANY:,} commands; the longest of them took "
          f"{await slowest_us(valkey) / 1000:.1f} ms on the clock\n")  # fmt: skip


async def famous(valkey: Valkey, community: Community) -> None:
    """A user with 100,000 followers posts, 1,000 of them with a home feed; compared with a user with one follower."""
    for name, count in (("star", FOLLOWERS), ("plain", 1)):
        await community.sync.apply("user", [{"username": name}])
        for first in range(0, count, 1_000):
            fans = [f"fan{i}" for i in range(first, min(first + 1_000, count))]
            await valkey.call("SADD", k.USER_FOLLOWERS(name), *fans)
            ranks = [part for i, fan in enumerate(fans) for part in (first + i, fan)]
            await valkey.call("ZADD", k.USER_FOLLOWERS_RECENT(name), *ranks)
    homes = [k.TMP_HOME_STATE(f"fan{i}") for i in range(0, FOLLOWERS, FOLLOWERS // READING)]
    await valkey.batch([("HSET", home, "follows", "1:1", "upto", 1, "floor", "") for home in homes])
    await valkey.batch([("EXPIRE", home, k.HOME_SECONDS) for home in homes])
    took: dict[str, list[float]] = {"star": [], "plain": []}
    for _, (name, times) in itertools.product(range(TIMES), took.items()):
        began = perf_counter()
        await community.posts.create(Actor(name, "user"), NewPost("Good morning #river"))
        times.append((perf_counter() - began) * 1e6)
    star, plain = (statistics.median(times) for times in took.values())
    await valkey.call("DEL", k.FEEDS_PUSH())
    await community.posts.create(Actor("star", "user"), NewPost("And good night #river"))
    await slowest_us(valkey)
    began = perf_counter()
    await HomeFeedUpdates(community.functions).add_new_posts()
    pushed, longest = perf_counter() - began, await slowest_us(valkey) / 1000
    print(f"A post by a user with {FOLLOWERS:,} followers is answered in {star:.0f} µs, with one follower in "
          f"{plain:.0f} µs. In the background it then reached the {READING:,} feeds that exist in "
          f"{pushed:.1f} s; the longest command took {longest:.1f} ms on the clock")  # fmt: skip


async def importing(valkey: Valkey, community: Community) -> None:
    """Import a file of users and follows."""
    dice = random.Random(6)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "community.jsonl"
        with path.open("w") as file:
            for i in range(USERS):
                file.write(json.dumps({"type": "user", "username": f"i{i}", "display_name": f"User {i}"}) + "\n")
            for _ in range(FOLLOWS):
                one, other = dice.sample(range(USERS), 2)
                file.write(json.dumps({"type": "follow", "follower": f"i{one}", "following": f"i{other}"}) + "\n")
        began, ours, theirs = perf_counter(), process_time(), await cpu_us(valkey)
        await JsonlImporter(valkey, [community.sync], lambda bad: print(bad)).run(path)
        took, ours, theirs = perf_counter() - began, process_time() - ours, (await cpu_us(valkey) - theirs) / 1e6
    print(f"{USERS:,} users and {FOLLOWS:,} follows were taken in from a file in {took:.1f} s, "
          f"{(USERS + FOLLOWS) / took:,.0f} records a second; that took {ours:.1f} s of CPU here and {theirs:.1f} s of "
          f"Valkey's\n")  # fmt: skip


async def all_of_them(url: str) -> None:
    valkey = await connect(url)
    community = Community(valkey)
    await community.functions.load()
    await valkey.call("CONFIG", "SET", "slowlog-log-slower-than", 100)
    await valkey.call("CONFIG", "SET", "slowlog-max-len", 100_000)
    await rescoring(valkey, community)
    await building(valkey, community)
    await valkey.call("FLUSHALL")
    await famous(valkey, community)
    await importing(valkey, community)
    await valkey.close()


def main() -> None:
    uvloop.install()
    with running_server() as place:
        asyncio.run(all_of_them(place.url))


if __name__ == "__main__":
    main()
