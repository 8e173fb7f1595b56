"""Compares social over HTTP with the same work done by FastAPI and redis-py.

One Valkey, one load generator, the same requests to both in turn: like and unlike, create a post, a page of explore, a
page of the home feed. It measures CPU time: of the server process alone, and together with
Valkey's. Nothing changes while pages are read, so Plaza finds its posts cached; where one
of the newest posts is liked before each page, it must read that post again.

    python -m bench social
"""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import ExitStack
from dataclasses import dataclass

import psutil
import uvloop

from bench.load import Measured, measure, request, server
from plaza.core import paging
from plaza.core.auth import Auth
from plaza.core.clock import Clock
from plaza.core.encryption import FieldEncryption
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.core.valkey import Valkey, connect
from plaza.social.home_feed import HomeFeed
from plaza.social.inbound_sync import InboundSync
from plaza.social.library import LIBRARY
from plaza.social.post_reader import PostReader
from plaza.social.posts import Posts
from plaza.social.private_fields import PrivateFields
from plaza.social.users import Users
from tests.servers import Server, running_server

SECRET = "s" * 32
USERS, POSTS, FOLLOWED = 300, 3_000, 100
REQUESTS, ROUNDS = 2_560, 3

OURS, PEER = "plaza", "fastapi + redis-py"


@dataclass
class Spent:
    """CPU time of both processes for the same requests."""

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
    """Users who follow each other and post, and the functions to make them."""

    def __init__(self, valkey: Valkey) -> None:
        self.valkey, clock = valkey, Clock()
        self.functions = Functions(valkey, [LIBRARY, paging.LIBRARY])
        self.auth = Auth(Settings(jwt_secret=SECRET, api_key="k" * 32))
        private = PrivateFields(FieldEncryption(["d" * 32]))
        users = Users(self.functions, self.auth, clock, private)
        self.posts = Posts(self.functions, PostReader(self.functions), users, clock)
        self.sync = InboundSync(self.functions, self.posts, clock, private)
        self.home = HomeFeed(self.functions, PostReader(self.functions), clock)

    async def fill(self) -> None:
        dice = random.Random(1)
        await self.functions.load()
        users = [{"username": f"u{i}", "display_name": f"User {i}", "role": "model" if i % 5 == 0 else "user"}
                 for i in range(USERS)]  # fmt: skip
        await self.sync.apply("user", users)
        words = ["morning", "coffee", "river", "night", "garden", "stone", "paper", "light", "music", "walk"]
        made = [{"id": post_id(i), "username": f"u{i % USERS}",
                 "content": " ".join(dice.choices(words, k=20)) + f" #{dice.choice(words)} #{dice.choice(words)}"}
                for i in range(POSTS)]  # fmt: skip
        follows = [{"follower": f"u{i}", "following": f"u{other}"} for i in range(USERS)
                   for other in dice.sample(range(USERS), FOLLOWED) if other != i]  # fmt: skip
        likes = [{"username": f"u{dice.randrange(USERS)}", "post_id": post_id(dice.randrange(POSTS))}
                 for _ in range(2 * POSTS)]  # fmt: skip
        for kind, records in (("post", made), ("follow", follows), ("like", likes)):
            for first in range(0, len(records), 1_000):
                await self.sync.apply(kind, records[first : first + 1_000])

    def requests(self) -> dict[str, tuple[list[bytes], bytes]]:
        """The requests sent to both, each with the expected start of the response."""
        dice = random.Random(2)
        tokens = [f"authorization: Bearer {self.auth.issue(f'u{i}', 'user')}" for i in range(USERS)]
        likes = []
        for _ in range(REQUESTS // 2):
            path, token = f"/posts/{post_id(dice.randrange(POSTS))}/like", dice.choice(tokens)
            likes += [request("POST", path, b"", token), request("DELETE", path, b"", token)]
        body = b'{"content": "A walk by the river in the morning light #river #morning"}'
        newest = [f"/posts/{post_id(POSTS - 1 - i)}/like" for i in range(20)]
        mixed = []
        for i in range(REQUESTS // 2):
            method = "DELETE" if i // 20 % 2 else "POST"
            mixed += [request(method, newest[i % 20], b"", tokens[0]), request("GET", "/feed/explore", b"", tokens[1])]
        return {
            "like, unlike": (likes, b"HTTP/1.1 200"),
            "like, explore": (mixed, b"HTTP/1.1 200"),
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


async def prepare(url: str) -> Community:
    valkey = await connect(url)
    community = Community(valkey)
    await community.fill()
    await valkey.close()
    return community


def main() -> None:
    uvloop.install()
    with running_server() as place:
        over_http(place, asyncio.run(prepare(place.url)))


if __name__ == "__main__":
    main()
