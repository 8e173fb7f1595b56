"""Articles with votes, in groups. Each is posted and voted on at its own time in the past, by a clock set to it.

An article's id is the next one there is, so it cannot follow from the seed. Whether one is there already is seen by
its author and its time, which do.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Final

from plaza.articles.keys import USER_ARTICLES
from plaza.articles.model import Direction, NewArticle
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.demo.generator import HOUR_MS, CommunityPlan
from plaza.demo.phrases import Topic, topics
from plaza.demo.users import DAY_MS

ARTICLE_DAYS: Final = 12
VOTED_HOURS: Final = 20


@dataclass(frozen=True, slots=True)
class GeneratedArticle:
    """An article as it was posted, and who voted on it: when, and which way."""

    author: str
    at: int
    new: NewArticle
    votes: list[tuple[int, str, Direction]]


class ArticlesLoader:
    def __init__(self, functions: Functions, plan: CommunityPlan, count: int, voting_days: int) -> None:
        self._valkey = functions.valkey
        self._clock = ManualClock()
        self._articles = Articles(functions, self._clock, voting_days)
        self._plan = plan
        self._count = count
        # Votes are cast while voting lasts.
        self._open_ms = min(voting_days or ARTICLE_DAYS, ARTICLE_DAYS) * DAY_MS

    async def load(self, batch: int, size: int) -> int:
        numbers = range(batch * size, min((batch + 1) * size, self._count))
        return sum(await asyncio.gather(*(self._post(self._written(n)) for n in numbers)))

    async def _post(self, written: GeneratedArticle) -> int:
        at = f"{written.at / 1000:.3f}"
        listed = USER_ARTICLES(written.author)
        found = await self._valkey.call("ZRANGEBYSCORE", listed, at, at, "LIMIT", 0, 1)
        if found:
            id = int(found[0].partition(":")[2])
        else:
            self._clock.set(written.at)
            author = Actor(written.author, "user")
            id = (await self._articles.post(author, written.new, _operation(written))).id
        for when, voter, direction in written.votes:
            self._clock.set(when)
            await self._articles.vote(Actor(voter, "user"), id, direction)
        return 1 + len(written.votes)

    def _written(self, n: int) -> GeneratedArticle:
        plan, people = self._plan, self._plan.people
        dice = Random(f"{plan.name}/{people.size}/articles/{n}")
        about, title = _headlines()[n % len(_headlines())]
        part = n // len(_headlines())
        author = self._author(about, dice)
        at = plan.anchor_ms - round(ARTICLE_DAYS * dice.random() ** 1.3 * DAY_MS) - HOUR_MS
        link = f"https://{about.name}.example/{_slug(title)}"
        if part:
            title = f"{title}, part {part + 1}"
        if plan.numbered:
            link = f"{link}/{plan.name}-{people.size}-{n}"
        groups = [about.tag, *(["longreads"] if dice.random() < 0.25 else [])]
        return GeneratedArticle(people.name(author), at, NewArticle(title, link, groups), self._votes(author, at, dice))

    def _author(self, about: Topic, dice: Random) -> int:
        """Somebody who cares about it, if the dice find one soon."""
        people = self._plan.people
        for _ in range(20):
            author = int(people.size * dice.random() ** 1.5)
            if people.topic(author) is about:
                break
        return author

    def _votes(self, author: int, at: int, dice: Random) -> list[tuple[int, str, Direction]]:
        people = self._plan.people
        liked = dice.betavariate(5, 1) if dice.random() < 0.85 else dice.uniform(0.3, 0.6)  # some divide people
        wanted = min(people.size - 1, 2 + int(dice.lognormvariate(2.3, 0.8)))
        voters = {int(people.size * dice.random() ** 1.1) for _ in range(wanted)} - {author}
        until = min(self._plan.anchor_ms, at + self._open_ms - HOUR_MS)
        votes: list[tuple[int, str, Direction]] = []
        for n in sorted(voters):
            when = at + round(dice.expovariate(1 / (VOTED_HOURS * HOUR_MS)))
            when = when if when < until else at + round(dice.random() * (until - at))
            votes.append((when, people.name(n), "up" if dice.random() < liked else "down"))
        return votes


@cache
def _headlines() -> list[tuple[Topic, str]]:
    """All titles, in an order that mixes the topics."""
    found = [(about, title) for about in topics() for title in about.articles]
    Random("headlines").shuffle(found)
    return found


def _slug(title: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))


def _operation(written: GeneratedArticle) -> str:
    text = f"{written.author}/{written.at}/{written.new.link}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
