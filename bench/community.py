"""The community that benchmarks measure with: users who follow each other, posts with likes, articles.

Plaza takes it in over HTTP. A peer gets a copy of every key, so that all have the same data.
"""

from __future__ import annotations

import json
import random
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import jwt
import redis
import uvloop

from bench.load import load, request

SECRET, API_KEY = "s" * 32, "k" * 40
TOKEN_SECONDS = 86_400
WORDS = ("morning", "coffee", "river", "night", "garden", "stone", "paper", "light", "music", "walk")
BATCH = 1_000

T = TypeVar("T")


def issue_token(username: str) -> str:
    """A token that outlives the run."""
    now = int(time.time())
    claims = {"user_id": username, "username": username, "role": "user", "iat": now, "exp": now + TOKEN_SECONDS}
    return jwt.encode(claims, SECRET, "HS256")


@dataclass(frozen=True)
class BenchCommunity:
    """How much there is. Names, ids and follows are the same in every run."""

    users: int = 300
    posts: int = 3_000
    followed: int = 100  # by each user
    articles: int = 1_024

    def username(self, number: int) -> str:
        return f"u{number % self.users}"

    def post_id(self, number: int) -> str:
        return f"{number:08x}-0000-4000-8000-000000000000"

    def tokens(self) -> list[str]:
        """The authorization header of each user."""
        return [f"authorization: Bearer {issue_token(self.username(i))}" for i in range(self.users)]

    def fill(self, port: int) -> None:
        """Send everything to a running Plaza."""
        dice, now = random.Random(1), int(time.time() * 1000)
        users = (
            {"username": self.username(i), "display_name": f"User {i}", "bio": "Likes rivers and long walks.",
             "role": "model" if i % 5 == 0 else "user"}
            for i in range(self.users)
        )  # fmt: skip
        posts = (
            {"id": self.post_id(i), "username": self.username(i), "created_at": now - (self.posts - i) * 60_000,
             "content": " ".join(dice.choices(WORDS, k=20)) + f" #{dice.choice(WORDS)} #{dice.choice(WORDS)}"}
            for i in range(self.posts)
        )  # fmt: skip
        follows = (
            {"follower": self.username(i), "following": self.username(other)}
            for i in range(self.users)
            for other in range(i + 1, i + 1 + self.followed)
        )
        likes = (
            {"username": self.username(dice.randrange(self.users)), "post_id": self.post_id(dice.randrange(self.posts))}
            for _ in range(2 * self.posts)
        )
        for kind, records in (("users", users), ("posts", posts), ("follows", follows), ("likes", likes)):
            for batch in _batches(records):
                _sync(port, kind, batch)
        tokens = self.tokens()
        articles = [
            request("POST", "/articles", article_body("filled", i), tokens[i % self.users])
            for i in range(self.articles)
        ]
        uvloop.run(load(port, articles, b"HTTP/1.1 201", self.articles, 32))


def article_body(label: str, number: int) -> bytes:
    body = {"title": f"A lamp that knows the time, number {number}", "link": f"https://example.org/{label}/{number}"}
    return json.dumps({**body, "groups": [WORDS[number % len(WORDS)]]}).encode()


def _batches(records: Iterator[T]) -> Iterator[list[T]]:
    while batch := list(islice(records, BATCH)):
        yield batch


def _sync(port: int, kind: str, records: Sequence[object]) -> None:
    headers = {"X-API-Key": API_KEY, "Content-Type": "application/json"}
    ask = urllib.request.Request(f"http://127.0.0.1:{port}/sync/{kind}", json.dumps(records).encode(), headers)
    with urllib.request.urlopen(ask, timeout=120) as response:
        results = json.loads(response.read())["results"]
    wrong = [result for result in results if result["status"] == "error"]
    assert not wrong, wrong[:3]


def copy_keys(source_port: int, target_port: int) -> None:
    """Give another Valkey the same keys."""
    with redis.Redis(port=source_port) as source, redis.Redis(port=target_port) as target:
        for keys in _batches(source.scan_iter(count=BATCH)):
            values: list[Any] = _together(source, [("DUMP", key) for key in keys])
            lifetimes: list[Any] = _together(source, [("PTTL", key) for key in keys])
            rows = zip(keys, values, lifetimes, strict=True)
            _together(target, [("RESTORE", key, max(ms, 0), value, "REPLACE") for key, value, ms in rows if value])


def _together(client: redis.Redis, commands: list[tuple[Any, ...]]) -> list[Any]:
    pipe = client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command)
    return list(pipe.execute())
