"""Who lives here: a few by hand, or any number by the dice.

A crowd is never held in memory: who number 83,412 is follows from the seed and the number alone. Numbers are ranks,
too: low ones came first, are followed by more people and post more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Final, Protocol, cast

from plaza.core.tokens import Role
from plaza.demo.phrases import Topic, bank, topic, topics

DAY_MS: Final = 86_400_000
# Everybody came before the first post, up to a year before.
NEWEST_DAYS, OLDEST_DAYS = 25, 400

# Of a hundred people, these many are models.
MODELS: Final = 8


@dataclass(frozen=True, slots=True)
class DemoUser:
    username: str
    display_name: str
    role: Role
    topic: Topic
    bio: str
    switchable: bool = False

    @property
    def avatar(self) -> str:
        """Drawn from the name by the console."""
        return f"/app/avatars/{self.username}"


class DemoUsers(Protocol):
    """Somebody for every number below `size`."""

    @property
    def size(self) -> int: ...

    def name(self, n: int) -> str: ...

    def topic(self, n: int) -> Topic: ...

    def person(self, n: int) -> DemoUser: ...


class CommunityUsers:
    """The small community, written by hand."""

    @property
    def size(self) -> int:
        return len(self.people)

    @cached_property
    def people(self) -> Sequence[DemoUser]:
        return [
            DemoUser(username, shown, cast(Role, role), topic(about), bio, bool(mark))
            for username, shown, role, about, bio, mark in bank("cast")["people"]
        ]

    def name(self, n: int) -> str:
        return self.people[n].username

    def topic(self, n: int) -> Topic:
        return self.people[n].topic

    def person(self, n: int) -> DemoUser:
        return self.people[n]


class GeneratedUsers:
    """Any number of people. The seed is part of every name, so that crowds of two seeds never meet."""

    def __init__(self, seed: int, size: int) -> None:
        self.seed = seed
        self.size = size
        self._firsts: list[str] = bank("general")["firsts"]
        self._lasts: list[str] = bank("general")["lasts"]
        self._names = len(self._firsts) * len(self._lasts)

    def name(self, n: int) -> str:
        first, last = self._words(n)
        again = n // self._names
        return f"{first}.{last}.{self.seed}{f'.{again}' if again else ''}".lower()

    def _words(self, n: int) -> tuple[str, str]:
        # 7919 shares no factor with the number of names, so that all of them come up before one does again.
        at = (n * 7919 + self.seed) % self._names
        return self._firsts[at % len(self._firsts)], self._lasts[at // len(self._firsts)]

    def topic(self, n: int) -> Topic:
        all_topics = topics()
        return all_topics[(n * 7 + self.seed) % len(all_topics)]

    def person(self, n: int) -> DemoUser:
        dice = Random(f"{self.seed}/person/{n}")
        first, last = self._words(n)
        about = self.topic(n)
        role: Role = "model" if dice.randrange(100) < MODELS else "user"
        return DemoUser(self.name(n), f"{first} {last}", role, about, dice.choice(about.bios))


def joined_ms(person: DemoUser, anchor_ms: int) -> int:
    """When somebody made their account."""
    dice = Random(f"joined/{person.username}")
    return anchor_ms - round(dice.uniform(NEWEST_DAYS, OLDEST_DAYS) * DAY_MS)
