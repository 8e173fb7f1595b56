"""The community that benchmarks measure with: users who follow each other, posts with likes, articles.

Plaza imports it. A peer gets a copy of every key, so that all have the same data.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
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
BATCH, MINUTE_MS = 1_000, 60_000

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

    def records(self) -> Iterator[dict[str, Any]]:
        """Everything but the articles, as `plaza import` reads it."""
        dice, now = random.Random(1), int(time.time() * 1000)
        for i in range(self.users):
            role = "model" if i % 5 == 0 else "user"
            profile = {"display_name": f"User {i}", "bio": "Likes rivers and long walks.", "role": role}
            yield {"type": "user", "username": self.username(i), **profile}
        for i in range(self.posts):
            content = " ".join(dice.choices(WORDS, k=20)) + f" #{dice.choice(WORDS)} #{dice.choice(WORDS)}"
            created = now - (self.posts - i) * MINUTE_MS
            yield {"type": "post", "id": self.post_id(i), "username": self.username(i), "content": content,
                   "created_at": created}  # fmt: skip
        for i in range(self.users):
            for other in range(i + 1, i + 1 + self.followed):
                yield {"type": "follow", "follower": self.username(i), "following": self.username(other)}
        for _ in range(2 * self.posts):
            liker, post = dice.randrange(self.users), dice.randrange(self.posts)
            yield {"type": "like", "username": self.username(liker), "post_id": self.post_id(post)}

    def fill(self, port: int, settings: dict[str, str]) -> None:
        """Import everything into a Plaza with these settings, which runs on this port."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(json.dumps(record) + "\n" for record in self.records())
            file.flush()
            command = [sys.executable, "-m", "plaza", "import", file.name]
            subprocess.run(command, env=os.environ | settings, check=True, capture_output=True)
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
