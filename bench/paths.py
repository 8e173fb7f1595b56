"""The paths whose cost is measured: which requests each of them is, and what the peers should cost at least."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import Final

import redis

from bench.community import BenchCommunity, article_body, issue_token
from bench.load import request

CONNECTIONS: Final = 32
VIEWERS: Final = 1_000  # of the event that heartbeats belong to
PLAZA, FASTAPI, BOOK = "Plaza", "FastAPI", "book"
BARE: Final = "floor"  # a server that only writes Plaza's responses
NODE, NODE_FRESH, NODE_TUNED = "Node, 30 s old", "Node, fresh", "Node, tuned"
NODES: Final = (NODE, NODE_FRESH, NODE_TUNED)
SOCIAL: Final = (*NODES, FASTAPI)
ARTICLES: Final = (FASTAPI, BOOK)

OK, CREATED = b"HTTP/1.1 200", b"HTTP/1.1 201"

Requests = Callable[[int, str], list[bytes]]  # of a round, for a contender whose routes have a prefix


@dataclass(frozen=True)
class RequestPath:
    """One row of the table. Requests are each sent once."""

    name: str
    requests: Requests
    peers: tuple[str, ...]
    goals: tuple[tuple[str, float], ...] = ()  # at least so many times Plaza's CPU, for this peer
    expect: bytes = OK
    prepare: Callable[[redis.Redis], object] | None = None  # not measured
    writes: bool = False  # jobs follow
    cacheable: bool = False  # a peer's cache is filled before it is measured


class RequestMaker:
    """Makes the requests of a round. They are the same for every contender."""

    def __init__(self, community: BenchCommunity, count: int) -> None:
        self.community, self.count = community, count
        self.tokens = community.tokens()

    def token(self, number: int) -> str:
        return self.tokens[number % len(self.tokens)]

    def pairs(self, ones: int, others: int, round: int) -> Iterator[tuple[int, int]]:
        """Different pairs in every round."""
        chosen = random.Random(3).sample(range(ones * others), self.count * (round + 1))
        return (divmod(pair, others) for pair in chosen[self.count * round :])

    def each(self, path: str, method: str = "GET", body: bytes = b"") -> Requests:
        """The same request by one user after the other."""
        return lambda round, prefix: [request(method, prefix + path, body, self.token(i)) for i in range(self.count)]

    def everyone(self, path: str) -> Requests:
        """The request by every user once."""
        return lambda round, prefix: [request("GET", path, b"", token) for token in self.tokens]

    def anonymous(self, path: str, step: int = 1, variants: int = 1) -> Requests:
        """Anonymous requests; `{n}` in the path takes so many values, in steps."""
        return lambda round, prefix: [
            request("GET", prefix + path.replace("{n}", str(i % variants * step)), b"") for i in range(self.count)
        ]


class SocialRequests(RequestMaker):
    def likes(self, method: str) -> Requests:
        """Likes that are new, each of another pair of user and post."""

        def requests(round: int, prefix: str) -> list[bytes]:
            pairs = self.pairs(self.community.users, self.community.posts, round)
            return [request(method, f"/posts/{self.community.post_id(p)}/like", b"", self.tokens[u]) for u, p in pairs]

        return requests

    def follows(self, method: str) -> Requests:
        """Follows that are new: of users beyond those that are followed already."""

        def requests(round: int, prefix: str) -> list[bytes]:
            followed, users = self.community.followed, self.community.users
            pairs = islice(product(range(followed + 1, users), range(users)), self.count)
            return [
                request(method, f"/users/{self.community.username(one + step)}/follow", b"", self.tokens[one])
                for step, one in pairs
            ]

        return requests

    def half_likes(self, round: int, prefix: str) -> list[bytes]:
        """One of the newest posts is liked or unliked before each page."""
        requests = []
        for i in range(self.count // 2):
            method = "DELETE" if i // 20 % 2 else "POST"
            post = self.community.post_id(self.community.posts - 1 - i % 20)
            requests.append(request(method, f"/posts/{post}/like", b"", self.tokens[0]))
            requests.append(request("GET", "/feed/explore", b"", self.tokens[1]))
        return requests

    def single_posts(self, round: int, prefix: str) -> list[bytes]:
        dice, posts = random.Random(5), self.community.posts
        ids = (self.community.post_id(dice.randrange(posts)) for _ in range(self.count))
        return [request("GET", f"/posts/{id}", b"") for id in ids]

    def groups(self) -> list[list[RequestPath]]:
        fresh, of_four, of_five = ((NODE_FRESH, 8.0),), ((NODE_FRESH, 4.0),), ((NODE_FRESH, 5.0),)
        new_post = b'{"content": "A walk by the river in the morning light #river #morning"}'
        own_hash = b'["HGETALL", "user:me"]'
        following, offsets = "/feed/following", "/feed/explore?limit=20&offset={n}"
        return [
            [
                RequestPath("like", self.likes("POST"), SOCIAL, fresh, writes=True),
                RequestPath("unlike", self.likes("DELETE"), SOCIAL, fresh, writes=True),
            ],
            [
                RequestPath("follow", self.follows("POST"), NODES, fresh, writes=True),
                RequestPath("unfollow", self.follows("DELETE"), NODES, writes=True),
            ],
            [RequestPath("create a post", self.each("/posts", "POST", new_post), SOCIAL, fresh, CREATED, writes=True)],
            [RequestPath("explore, anonymous", self.anonymous("/feed/explore"), NODES, ((NODE, 3.0),), cacheable=True)],
            [RequestPath("explore, signed in", self.each("/feed/explore"), SOCIAL, ((NODE, 2.0),), cacheable=True)],
            [RequestPath("explore by offset", self.anonymous(offsets, 20, 50), NODES, of_four, cacheable=True)],
            [RequestPath("explore, half likes", self.half_likes, SOCIAL, writes=True)],
            [
                RequestPath("following, cold", self.everyone(following), SOCIAL, of_four, prepare=forget_home_feeds),
                RequestPath("following, warm", self.each(following), SOCIAL, fresh, cacheable=True),
            ],
            [RequestPath("hashtag", self.each("/feed/hashtag/river"), NODES, fresh, cacheable=True)],
            [RequestPath("hashtag, ranked", self.each("/feed/hashtag/river/ranked"), NODES, fresh, cacheable=True)],
            [RequestPath("top models", self.each("/search/models/top?limit=5"), NODES, fresh, cacheable=True)],
            [RequestPath("profile, signed in", self.each("/users/u1"), NODES, fresh)],
            [RequestPath("profile, anonymous", self.anonymous("/users/u{n}", 1, self.community.users), NODES)],
            [RequestPath("post by id", self.single_posts, NODES, of_five)],
            [RequestPath("proxy HGETALL", self.each("/", "POST", own_hash), NODES, of_five)],
        ]


class OtherRequests(RequestMaker):
    def votes(self, round: int, prefix: str) -> list[bytes]:
        """Votes that are new, each of another pair of user and article."""
        pairs, body = self.pairs(self.community.users, self.community.articles, round), b'{"direction": "up"}'
        return [request("PUT", f"{prefix}/articles/{1 + a}/vote", body, self.tokens[u]) for u, a in pairs]

    def new_articles(self, round: int, prefix: str) -> list[bytes]:
        return [
            request("POST", f"{prefix}/articles", article_body(f"round{round}", i), self.token(i))
            for i in range(self.count)
        ]

    def beats(self, round: int, prefix: str) -> list[bytes]:
        body = b'{"location": "web", "session_id": "main", "groups": ["staff"]}'
        viewers = [f"authorization: Bearer {issue_token(f'viewer{i}')}" for i in range(VIEWERS)]
        path = "/analytics/events/show/heartbeat"
        return [request("POST", path, body, viewers[i % VIEWERS]) for i in range(self.count)]

    def groups(self) -> list[list[RequestPath]]:
        page, of_five, of_eight = "/articles?order=score", ((FASTAPI, 5.0),), ((FASTAPI, 8.0),)
        return [
            [RequestPath("articles, anonymous", self.anonymous(page), ARTICLES, of_five)],
            [RequestPath("articles, signed in", self.each(page), ARTICLES, of_five)],
            [RequestPath("vote", self.votes, ARTICLES, of_eight, writes=True)],
            [RequestPath("post an article", self.new_articles, ARTICLES, of_eight, CREATED, writes=True)],
            [RequestPath("heartbeat", self.beats, (FASTAPI,), writes=True)],
        ]


def path_groups(community: BenchCommunity, requests: int) -> list[list[RequestPath]]:
    """All paths. Those of a group are measured one after the other: an unlike needs its like."""
    return [*SocialRequests(community, requests).groups(), *OtherRequests(community, requests).groups()]


def forget_home_feeds(client: redis.Redis) -> None:
    """Delete every home feed, so that the next read builds it. Valkey frees deleted keys later, in a thread."""
    for key in client.scan_iter("tmp:home:*", count=1_000):
        client.delete(key)
    while client.info("memory")["lazyfree_pending_objects"]:
        time.sleep(0.01)
