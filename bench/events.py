"""Compares commands with and without events, and measures how many events one consumer process handles.

CPU is that of the service and of Valkey together, without HTTP. Both variants take turns on the same server, and on the
same cluster of three nodes.

    python -m bench events
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import psutil
import uvloop

from plaza.articles.library import LIBRARY as ARTICLES
from plaza.articles.model import NewArticle
from plaza.articles.service import Articles
from plaza.core import paging
from plaza.core.auth import Actor, Auth
from plaza.core.clock import Clock
from plaza.core.encryption import FieldEncryption
from plaza.core.event_streams import stream_of
from plaza.core.events import EVENTS, Consumer, Event, Events
from plaza.core.functions import Functions, Library
from plaza.core.keyspace import use_layout
from plaza.core.settings import Settings
from plaza.core.stream_consumer import StreamConsumer
from plaza.core.stream_watch import StreamWatch
from plaza.core.valkey import Valkey, connect
from plaza.live.heartbeats import LiveService
from plaza.live.library import LIBRARY as LIVE
from plaza.live.model import Heartbeat, Viewer
from plaza.social.engagements import Engagements
from plaza.social.inbound_sync import InboundSync
from plaza.social.library import LIBRARY as SOCIAL
from plaza.social.model import NewPost
from plaza.social.post_reader import PostReader
from plaza.social.posts import Posts
from plaza.social.private_fields import PrivateFields
from plaza.social.relations import Relations
from plaza.social.users import Users
from tests.servers import Cluster, Server, running_cluster, running_server

SETTINGS = Settings(jwt_secret="s" * 32, api_key="k" * 32, rate_limits=False)
ACTORS = [Actor(f"u{n}", "user") for n in range(64)]
OPERATIONS, ROUNDS, CONSUMED = 1_920, 5, 50_000


class EventVariant:
    """The services, with commands that emit events or with commands that do not."""

    def __init__(self, valkey: Valkey, emits: bool) -> None:
        libraries: list[Library] = [SOCIAL, ARTICLES, LIVE, paging.LIBRARY]
        chosen = [replace(library, constants={**library.constants, "EMITS": emits}) for library in libraries]
        self.functions = Functions(valkey, chosen)
        clock, auth = Clock(), Auth(SETTINGS)
        private = PrivateFields(FieldEncryption(["d" * 32]))
        reader = PostReader(self.functions)
        users = Users(reader, auth, clock, private)
        self.posts = Posts(self.functions, reader, users, clock)
        self.sync = InboundSync(self.functions, self.posts, clock, private)
        self.engagements = Engagements(self.functions, self.posts)
        self.relations = Relations(self.functions, users, clock)
        self.articles = Articles(self.functions, clock, 7)
        self.live = LiveService(self.functions, SETTINGS, clock)

    async def operations(self, post: str, article: int) -> dict[str, Callable[[int], Awaitable[object]]]:
        """Every operation changes something each time, so each emits an event; heartbeats only continue."""

        def like(n: int) -> Awaitable[object]:
            act = self.engagements.like if n // 64 % 2 == 0 else self.engagements.unlike
            return act(ACTORS[n % 64], post)

        def follow(n: int) -> Awaitable[object]:
            act = self.relations.follow if n // 64 % 2 == 0 else self.relations.unfollow
            return act(ACTORS[n % 64], ACTORS[(n + 1) % 64].name)

        def vote(n: int) -> Awaitable[object]:
            return self.articles.vote(ACTORS[n % 64], article, "down" if n // 64 % 2 == 0 else "up")

        def beat(n: int) -> Awaitable[object]:
            viewer = Viewer(ACTORS[n % 64].name, "203.0.113.1", "FR")
            return self.live.beat(viewer, "keynote", Heartbeat("web", "main"))

        return {"like": like, "vote": vote, "follow": follow, "heartbeat": beat}


async def cpu_us(operation: Callable[[int], Awaitable[object]], processes: Sequence[psutil.Process]) -> float:
    """Return the CPU of all processes for one operation, from 64 concurrent callers."""
    before = _cpu_seconds(processes)
    for first in range(0, OPERATIONS, 64):
        await asyncio.gather(*(operation(n) for n in range(first, first + 64)))
    return (_cpu_seconds(processes) - before) / OPERATIONS * 1e6


def _cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


async def compare(place: Server | Cluster) -> None:
    nodes = place.nodes if isinstance(place, Cluster) else [place]
    processes = [psutil.Process(), *(psutil.Process(node.process.pid) for node in nodes if node.process is not None)]
    valkey = await connect(place.url)
    use_layout(valkey.layout)
    without, emitting = EventVariant(valkey, False), EventVariant(valkey, True)
    for variant in (without, emitting):
        await variant.functions.load()
    await without.sync.apply("user", [{"username": actor.name} for actor in ACTORS])
    post = (await without.posts.create(ACTORS[0], NewPost("Hello #plaza"))).id
    article = (await without.articles.post(ACTORS[0], NewArticle("A", "https://example.org"), "o")).id
    operations = [await variant.operations(post, article) for variant in (without, emitting)]
    print(f"CPU of service and {len(nodes)} of Valkey, {OPERATIONS} operations, best of {ROUNDS}")
    for name in operations[0]:
        best = [float("inf"), float("inf")]
        for round, which in itertools.product(range(ROUNDS + 1), (0, 1)):
            spent = await cpu_us(operations[which][name], processes)
            if round:
                best[which] = min(best[which], spent)
        print(f"  {name:12}{best[0]:8.0f} µs without{best[1]:8.0f} µs with events{best[1] / best[0]:8.2f}×")
    await valkey.close()


async def consume(url: str) -> None:
    valkey = await connect(url)
    functions = Functions(valkey, [EVENTS])
    await functions.load()
    events, stream, handled, done = Events(functions), stream_of("news", "a"), 0, asyncio.Event()
    for first in range(0, CONSUMED, 1_000):
        words = ("type", "post.liked", "subject", "p", "time", 1, "data", '{"post":"p","username":"ana"}')
        await valkey.batch([("XADD", stream.key, "*", *words) for _ in range(first, first + 1_000)])

    async def handle(_: Event) -> None:
        nonlocal handled
        handled += 1
        if handled == CONSUMED:
            done.set()

    watch = StreamWatch(valkey, [stream])
    consumer = StreamConsumer(functions, events, Consumer("news", "bench", handle), [stream], watch, "bench")
    started = time.perf_counter()
    running = asyncio.create_task(consumer.run())
    await done.wait()
    print(f"One consumer: {CONSUMED / (time.perf_counter() - started):,.0f} events a second to a handler of nothing\n")
    running.cancel()
    await asyncio.wait([running])
    await valkey.close()


def main() -> None:
    uvloop.install()
    with running_server() as place:
        asyncio.run(compare(place))
        asyncio.run(consume(place.url))
    with running_cluster() as cluster:
        asyncio.run(compare(cluster))


if __name__ == "__main__":
    main()
