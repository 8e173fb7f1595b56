"""The users of the demo: a few written by hand, or any number generated.

Generated users are not kept in memory: the seed and the number give every property of a user. Numbers are ranks too:
low numbers joined first, have more followers and post more.
"""

from __future__ import annotations

import hashlib
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Final, Protocol, cast

from plaza.core.extras import is_installed
from plaza.core.pictures import picture_path
from plaza.core.roles import Role
from plaza.demo.phrases import Topic, read_texts, topic, topics

DAY_MS: Final = 86_400_000
# All users joined before the first post, up to about a year earlier.
NEWEST_DAYS, OLDEST_DAYS = 25, 400

# Users with the role `model`, in percent.
MODELS_PERCENT: Final = 8


@dataclass(frozen=True, slots=True)
class DemoUser:
    username: str
    display_name: str
    role: Role
    topic: Topic
    bio: str
    offered_at_sign_in: bool = False
    has_portrait: bool = False

    @property
    def avatar(self) -> str:
        """The address of the portrait, which is drawn later; else the avatar that Plaza draws from the username."""
        if self.has_portrait:
            return picture_path(portrait_id(self.username), "small")
        return f"/app/avatars/{self.username}"


def drawn_picture_id(name: str) -> str:
    """Return the id of a drawn picture, by what it is for: the same in every run."""
    return str(uuid.UUID(hex=hashlib.sha256(f"demo {name}".encode()).hexdigest()[:32], version=4))


def portrait_id(username: str) -> str:
    """Return the id of a user's portrait."""
    return drawn_picture_id(f"portrait {username}")


class DemoUsers(Protocol):
    """A user for every number below `size`."""

    @property
    def size(self) -> int: ...

    def name(self, n: int) -> str: ...

    def topic(self, n: int) -> Topic: ...

    def user(self, n: int) -> DemoUser: ...


class CommunityUsers:
    """The users of the small community, written by hand."""

    @property
    def size(self) -> int:
        return len(self.users)

    @cached_property
    def users(self) -> Sequence[DemoUser]:
        return [
            DemoUser(
                username, shown, cast(Role, role), topic(about), bio, bool(mark), has_portrait=is_installed("media")
            )
            for username, shown, role, about, bio, mark in read_texts("cast")["people"]
        ]

    @cached_property
    def sentences(self) -> Sequence[tuple[Topic, str]]:
        """The sentences of all posts in the order in which they are said, with their topics."""
        all_sentences = [(about, sentence) for about in topics() for sentence in about.posts]
        return Random("sentences").sample(all_sentences, len(all_sentences))

    def author(self, about: Topic, sentence: str) -> int:
        """Return the only user who says a sentence in posts. Each user of a topic has about as many."""
        among = [n for n, user in enumerate(self.users) if user.topic is about]
        return among[about.posts.index(sentence) % len(among)]

    def speaker(self, text: str) -> int:
        """Return the only user who says a text in comments and challenges."""
        return zlib.crc32(text.encode()) % self.size

    def name(self, n: int) -> str:
        return self.users[n].username

    def topic(self, n: int) -> Topic:
        return self.users[n].topic

    def user(self, n: int) -> DemoUser:
        return self.users[n]


class GeneratedUsers:
    """Any number of generated users. Usernames contain the seed, so two seeds share no user."""

    def __init__(self, seed: int, size: int) -> None:
        self.seed = seed
        self.size = size
        self._firsts: list[str] = read_texts("general")["firsts"]
        self._lasts: list[str] = read_texts("general")["lasts"]
        self._names = len(self._firsts) * len(self._lasts)

    def name(self, n: int) -> str:
        first, last = self._words(n)
        again = n // self._names
        return f"{first}.{last}.{self.seed}{f'.{again}' if again else ''}".lower()

    def _words(self, n: int) -> tuple[str, str]:
        # 7919 has no common factor with the number of names, so every name is used before one repeats.
        at = (n * 7919 + self.seed) % self._names
        return self._firsts[at % len(self._firsts)], self._lasts[at // len(self._firsts)]

    def topic(self, n: int) -> Topic:
        all_topics = topics()
        return all_topics[(n * 7 + self.seed) % len(all_topics)]

    def user(self, n: int) -> DemoUser:
        rng = Random(f"{self.seed}/person/{n}")
        first, last = self._words(n)
        about = self.topic(n)
        role: Role = "model" if rng.randrange(100) < MODELS_PERCENT else "user"
        return DemoUser(self.name(n), f"{first} {last}", role, about, rng.choice(about.bios))


def joined_ms(user: DemoUser, anchor_ms: int) -> int:
    """Return when a user joined."""
    rng = Random(f"joined/{user.username}")
    return anchor_ms - round(rng.uniform(NEWEST_DAYS, OLDEST_DAYS) * DAY_MS)
