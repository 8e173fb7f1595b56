"""The verbs of articles: post, read, vote, group, delete.

Every write is one atomic function on the article's own keys; the lists it stands in follow as effects. On one server
that is one round trip. On a cluster a vote is three in sequence (facts, effects, settling), a post with groups five.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from plaza.articles.keys import (
    ARTICLE,
    ARTICLE_DOWN,
    ARTICLE_GROUPS,
    ARTICLE_LINK,
    ARTICLE_UP,
    ARTICLES_LAST,
    ARTICLES_LEAVING,
    COUNTER,
)
from plaza.articles.model import (
    MOST_GROUPS,
    Article,
    Deleted,
    Direction,
    DuplicateLink,
    Membership,
    NewArticle,
    Vote,
    clean_link,
    clean_title,
    link_digest,
    score,
)
from plaza.core.auth import USER, Actor
from plaza.core.clock import Clock
from plaza.core.errors import NotFound
from plaza.core.functions import Functions

# A page is one step. A large offset has more to look at, and everybody else's commands get their turn in between.
STEP_OF_READING = 100

# How much of a much-voted article's end its deleter waits for, 400 votes a step; a worker does the rest.
STEPS_OF_DELETING = 25


class Articles:
    """Articles, one at a time. `lists.py` has them by the page."""

    def __init__(self, functions: Functions, clock: Clock, voting_days: int) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.clock = clock
        self._voting_seconds = voting_days * 86_400

    def open_since(self) -> float:
        """Voting has ended on what was posted before this moment."""
        return self.clock.now_s() - self._voting_seconds if self._voting_seconds else 0.0

    async def post(self, actor: Actor, new: NewArticle, operation: str) -> Article:
        """Post an article with its author's own vote. The same operation again gives the same article."""
        actor.require(USER)
        title, link = clean_title(new.title), clean_link(new.link)
        groups = sorted(set(new.groups))
        time = self._now()
        claimed = ARTICLE_LINK(COUNTER, link_digest(link))
        facts = [title, link, actor.name, time, *groups]
        if self.valkey.clustered:
            id = await self._claim(claimed, time, operation)
            keys = [ARTICLE(id), ARTICLE_UP(id), ARTICLE_DOWN(id), ARTICLE_GROUPS(id)]
            since = await self.functions.run("articles_create", keys, id, *facts)
        else:
            keys = [ARTICLES_LAST(), claimed]
            id, since = await self.functions.run("articles_post", keys, operation, *facts)
        if since != time:  # this operation had been done already
            return await self.read(actor, int(id))
        posted = float(time)
        return Article(int(id), title, link, f"user:{actor.name}", posted, 1, score(posted, 1), groups, "up")

    async def _claim(self, link: str, time: str, operation: str) -> int:
        """On a cluster: the id of the article to be, with the link claimed for it."""
        keys = [ARTICLES_LAST(), link]
        try:
            return int(await self.functions.run("articles_claim", keys, time, operation, ""))
        except DuplicateLink as duplicate:
            # Whoever took it may have died before there was an article; then it is free after a few seconds.
            first = duplicate.extra["id"]
            if await self.valkey.call("EXISTS", ARTICLE(first)):
                raise
            return int(await self.functions.run("articles_claim", keys, time, operation, first))

    async def read(self, viewer: Actor | None, id: int) -> Article:
        """One article. One round trip."""
        (found,) = await self.read_many(viewer, [id])
        if found is None:
            raise NotFound("There is no such article.", id=id)
        return found

    async def read_many(self, viewer: Actor | None, ids: Sequence[int]) -> list[Article | None]:
        """Articles by their ids, None for one that is gone. One round trip for each hundred; on a cluster, one."""
        name = "" if viewer is None or viewer.via_key else viewer.name
        rows: list[Any] = []
        if self.valkey.clustered:
            each = [[ARTICLE(id), ARTICLE_GROUPS(id), ARTICLE_UP(id), ARTICLE_DOWN(id)] for id in ids]
            rows = await self.functions.query_each("articles_read", each, name)
        else:
            for first in range(0, len(ids), STEP_OF_READING):
                some = ids[first : first + STEP_OF_READING]
                rows += await self.functions.query("articles_read", [ARTICLE(id) for id in some], name, *some)
        return [None if row is None else _article(id, row) for id, row in zip(ids, rows, strict=True)]

    async def vote(self, actor: Actor, id: int, direction: Direction | None) -> Vote:
        """Vote up or down, or take the vote back. One round trip on one server, three on a cluster."""
        actor.require(USER)
        keys = [ARTICLE(id), ARTICLE_UP(id), ARTICLE_DOWN(id)]
        time, votes = await self.functions.run(
            "articles_vote", keys, id, actor.name, direction or "none", self._now(), self._voting_seconds
        )
        return Vote(id, int(votes), score(float(time), int(votes)), direction)

    async def group(self, actor: Actor, id: int, name: str, where: Literal["in", "out"]) -> Membership:
        """Put an article in a group or take it out. One round trip on one server, four on a cluster."""
        keys = [ARTICLE(id), ARTICLE_GROUPS(id)]
        groups = await self.functions.run("articles_group", keys, id, name, where, _author(actor), MOST_GROUPS)
        return Membership(id, sorted(groups))

    async def delete(self, actor: Actor, id: int) -> Deleted:
        """Remove an article and every trace of it. One round trip on one server for up to 200 votes each way."""
        keys = [ARTICLE(id), ARTICLE_UP(id), ARTICLE_DOWN(id), ARTICLE_GROUPS(id)]
        left = await self.functions.run("articles_delete", keys, id, _author(actor))
        if left:
            await self._shed(id, STEPS_OF_DELETING)
        return Deleted(id)

    async def finish_deleting(self) -> int:
        """Remove the votes that deleted articles still have, as a worker does. Returns how many articles had some."""
        leaving = await self.valkey.call("SRANDMEMBER", ARTICLES_LEAVING(), 100)
        for id in leaving:
            await self._shed(int(id), STEPS_OF_DELETING)
        return len(leaving)

    async def _shed(self, id: int, steps: int) -> None:
        for _ in range(steps):
            if not await self.functions.run("articles_shed", [ARTICLE(id), ARTICLE_UP(id), ARTICLE_DOWN(id)], id):
                return

    def _now(self) -> str:
        """Unix seconds, as they are written down: milliseconds are exact in text, and in a double."""
        seconds, ms = divmod(self.clock.now_ms(), 1000)
        return f"{seconds}.{ms:03d}"


def _author(actor: Actor) -> str:
    """Whom a verb compares with the author; an admin may do what the author may."""
    return "" if actor.is_admin else actor.name


def _article(id: int, row: list[Any]) -> Article:
    title, link, author, time, votes, groups, vote = row
    posted, count = float(time), int(votes)
    names = sorted(groups.split(",")) if groups else []
    return Article(id, title, link, author, posted, count, score(posted, count), names, _VOTES[vote])


_VOTES: dict[str, Direction | None] = {"up": "up", "down": "down", "none": None}
