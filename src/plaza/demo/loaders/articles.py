"""Loads articles with votes, groups and comments. A manual clock sets the time of each of them in the past.

An article's id is the next free number and does not depend on the seed. An existing article is recognised by its author
and time, which do.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Final

from plaza.articles.comments import ArticleComments
from plaza.articles.keys import USER_ARTICLES
from plaza.articles.model import Direction, NewArticle, NewArticleComment
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.errors import Invalid
from plaza.core.functions import Functions
from plaza.demo.generator import HOUR_MS, CommunityPlan
from plaza.demo.phrases import Topic, topics
from plaza.demo.users import DAY_MS

ARTICLE_DAYS: Final = 12
MEAN_VOTE_HOURS: Final = 20
# Of comments that reply to another one.
REPLY_SHARE: Final = 0.4


@dataclass(frozen=True, slots=True)
class GeneratedComment:
    """A comment on an article. `reply_to` is the number of the earlier comment that it replies to."""

    at: int
    username: str
    text: str
    reply_to: int | None


@dataclass(frozen=True, slots=True)
class GeneratedArticle:
    """An article, its comments and its votes: time, voter and direction."""

    author: str
    at: int
    new: NewArticle
    votes: list[tuple[int, str, Direction]]
    comments: list[GeneratedComment]


class ArticlesLoader:
    def __init__(self, functions: Functions, plan: CommunityPlan, count: int, voting_days: int) -> None:
        self._valkey = functions.valkey
        self._clock = ManualClock()
        self._articles = Articles(functions, self._clock, voting_days, origin="import")
        self._comments = ArticleComments(self._articles, None, origin="import")
        self._plan = plan
        self._count = count
        # Votes must be cast before voting closes.
        self._open_ms = min(voting_days or ARTICLE_DAYS, ARTICLE_DAYS) * DAY_MS

    async def load(self, batch: int, size: int) -> int:
        numbers = range(batch * size, min((batch + 1) * size, self._count))
        return sum(await asyncio.gather(*(self._post(self._generate(n)) for n in numbers)))

    async def _post(self, article: GeneratedArticle) -> int:
        at = f"{article.at / 1000:.3f}"
        listed = USER_ARTICLES(article.author)
        found = await self._valkey.call("ZRANGEBYSCORE", listed, at, at, "LIMIT", 0, 1)
        if found:
            id = int(found[0].partition(":")[2])
        else:
            self._clock.set(article.at)
            author = Actor(article.author, "user")
            id = (await self._articles.post(author, article.new, _operation(article))).id
        for when, voter, direction in article.votes:
            self._clock.set(when)
            await self._articles.vote(Actor(voter, "user"), id, direction)
        await self._discuss(article, id)
        return 1 + len(article.votes) + len(article.comments)

    async def _discuss(self, article: GeneratedArticle, id: int) -> None:
        """Write the comments. Those of an earlier run stay as they are."""
        written: list[str] = []
        for n, comment in enumerate(article.comments):
            self._clock.set(comment.at)
            new = NewArticleComment(comment.text, None if comment.reply_to is None else written[comment.reply_to])
            author, operation = Actor(comment.username, "user"), _operation(article, n)
            try:
                written.append((await self._comments.create(author, id, new, operation)).id)
            except Invalid:  # a user has deleted what it replies to
                return

    def _generate(self, n: int) -> GeneratedArticle:
        plan, users = self._plan, self._plan.users
        rng = Random(f"{plan.name}/{users.size}/articles/{n}")
        about, title = _headlines()[n % len(_headlines())]
        part = n // len(_headlines())
        author = self._author(about, rng)
        at = plan.anchor_ms - round(ARTICLE_DAYS * rng.random() ** 1.3 * DAY_MS) - HOUR_MS
        link = f"https://{about.name}.example/{_slug(title)}"
        if part:
            title = f"{title}, part {part + 1}"
        if plan.is_generated:
            link = f"{link}/{plan.name}-{users.size}-{n}"
        groups = [about.tag, *(["longreads"] if rng.random() < 0.25 else [])]
        votes = self._generate_votes(author, at, rng)
        comments = self._generate_comments(about, at, rng)
        return GeneratedArticle(users.name(author), at, NewArticle(title, link, groups), votes, comments)

    def _author(self, about: Topic, rng: Random) -> int:
        """Choose an author with this topic; any author after 20 attempts."""
        users = self._plan.users
        for _ in range(20):
            author = int(users.size * rng.random() ** 1.5)
            if users.topic(author) is about:
                break
        return author

    def _generate_votes(self, author: int, at: int, rng: Random) -> list[tuple[int, str, Direction]]:
        users = self._plan.users
        liked = rng.betavariate(5, 1) if rng.random() < 0.85 else rng.uniform(0.3, 0.6)
        wanted = min(users.size - 1, 2 + int(rng.lognormvariate(2.3, 0.8)))
        voters = {int(users.size * rng.random() ** 1.1) for _ in range(wanted)} - {author}
        until = min(self._plan.anchor_ms, at + self._open_ms - HOUR_MS)
        votes: list[tuple[int, str, Direction]] = []
        for n in sorted(voters):
            when = at + round(rng.expovariate(1 / (MEAN_VOTE_HOURS * HOUR_MS)))
            when = when if when < until else at + round(rng.random() * (until - at))
            votes.append((when, users.name(n), "up" if rng.random() < liked else "down"))
        return votes

    def _generate_comments(self, about: Topic, at: int, rng: Random) -> list[GeneratedComment]:
        users, comments = self._plan.users, list[GeneratedComment]()
        for n in range(int(rng.lognormvariate(0.6, 0.9))):
            at += round(rng.random() * (self._plan.anchor_ms - at) / 2)
            reply_to = rng.randrange(n) if n and rng.random() < REPLY_SHARE else None
            chosen, text = int(users.size * rng.random() ** 1.1), about.comment(rng)
            username = users.name(self._plan.speaker(chosen, text))
            comments.append(GeneratedComment(at, username, text, reply_to))
        return comments


@cache
def _headlines() -> list[tuple[Topic, str]]:
    """Return all titles, with mixed topics."""
    found = [(about, title) for about in topics() for title in about.articles]
    Random("headlines").shuffle(found)
    return found


def _slug(title: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))


def _operation(article: GeneratedArticle, comment: int | None = None) -> str:
    text = f"{article.author}/{article.at}/{article.new.link}"
    text += "" if comment is None else f"/{comment}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
