"""Articles one at a time: post, read, vote, group, delete.

Every write is one atomic function on the article's own keys; rankings and indexes follow as projection updates. On one
server that is one round trip. On a cluster a vote takes three in sequence (source data, projections, settling), a post
with groups five.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from plaza.articles.keys import (
    ARTICLE,
    ARTICLE_COMMENTS,
    ARTICLE_DOWN,
    ARTICLE_GROUPS,
    ARTICLE_LINK,
    ARTICLE_UP,
    ARTICLES_BEING_DELETED,
    ARTICLES_BY_TIME,
    ARTICLES_LAST,
    COUNTER,
)
from plaza.articles.model import (
    Article,
    ArticleMembership,
    BadCounter,
    DeletedArticle,
    Direction,
    DuplicateLink,
    NewArticle,
    Vote,
    clean_link,
    clean_title,
    link_digest,
    parse_seconds,
    score,
)
from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from plaza.core.number_parsing import parse_int
from plaza.core.sequences import chunks, pairs
from plaza.core.tracking_cache import TrackingCache
from plaza.core.valkey import scan_pages

# Articles per query, so that reading many does not delay other clients.
READ_BATCH = 100

# The longest article is 10 kB; most are a tenth of that.
MAX_CACHED_ARTICLES = 4_096

# How often a post takes another id, after a failover that also lost the newest entries of `time:`.
MAX_COUNTER_REPAIRS = 10

# Batches of 400 votes and 100 comments that the request deletes with an article; a worker deletes the rest.
MAX_DELETE_BATCHES = 25

# Articles that one run of the worker's job takes up.
DELETING_BATCH = 100


class Articles:
    """Writes and reads single articles. `ArticleLists` has the pages."""

    def __init__(self, functions: Functions, clock: Clock, voting_days: int, *, origin: str = "") -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.clock = clock
        # Articles without a viewer's vote, by `ARTICLE(id)`.
        self._cache: TrackingCache[Article] = TrackingCache(functions.valkey, MAX_CACHED_ARTICLES, _entry_of)
        self._voting_seconds = voting_days * 86_400
        self._origin = origin  # of the events: `import` if another system or the demo is the source

    def open_since(self) -> float:
        """The time (Unix seconds) since which an article must have been posted for voting to be open."""
        return self.clock.now_s() - self._voting_seconds if self._voting_seconds else 0.0

    async def post(self, actor: Actor, new: NewArticle, operation: str) -> Article:
        """Post an article with its author's vote. The same operation again returns the same article."""
        title, link = clean_title(new.title), clean_link(new.link)
        groups = sorted(set(new.groups))
        time = self._now()
        link_key = ARTICLE_LINK(COUNTER, link_digest(link))
        fields = [title, link, actor.name, time, self._origin, *groups]
        if self.valkey.clustered:
            write = partial(self._claim_and_create, link_key, time, operation, fields)
        else:
            write = partial(self.functions.run, "articles_post", [ARTICLES_LAST(), link_key], operation, *fields)
        id, posted_at = await self._with_counter(write)
        if posted_at != time:  # an earlier attempt of this operation posted it
            return await self.read(actor, int(id))
        posted = float(time)
        return Article(int(id), title, link, f"user:{actor.name}", posted, 1, score(posted, 1), groups, "up")

    async def _with_counter(self, post: Callable[[], Awaitable[Any]]) -> Any:
        """Call `post`. If the counter of ids was damaged or lost ids in a failover, repair it and call `post` again."""
        for _ in range(MAX_COUNTER_REPAIRS):
            try:
                return await post()
            except BadCounter:
                highest = 0
                async for page in scan_pages(self.valkey, "ZSCAN", ARTICLES_BY_TIME()):
                    ids = [parse_int(member.removeprefix("article:")) for member, _ in pairs(page)]
                    highest = max([highest, *ids])
                await self.functions.run("articles_raise_counter", [ARTICLES_LAST()], highest)
        return await post()

    async def _claim_and_create(
        self, link_key: str, time: str, operation: str, fields: Sequence[str]
    ) -> tuple[int, str]:
        """On a cluster: write an article, and return its id and when it was posted.

        Raises `BadCounter` if the id belongs to another article. The claim is then given back, for another id.
        """
        id = await self._claim(link_key, time, operation)
        keys = [ARTICLE(id), ARTICLE_UP(id), ARTICLE_DOWN(id), ARTICLE_GROUPS(id)]
        try:
            return id, await self.functions.run("articles_create", keys, id, *fields)
        except BadCounter:
            await self.functions.run("articles_release_link", [link_key], id)
            raise

    async def _claim(self, link_key: str, time: str, operation: str) -> int:
        """On a cluster: claim the link and return the id for the new article."""
        keys = [ARTICLES_LAST(), link_key]
        try:
            return int(await self.functions.run("articles_claim", keys, time, operation, ""))
        except DuplicateLink as duplicate:
            # The claiming process may have died before it wrote the article; its claim then ends after a few seconds.
            first = duplicate.extra["id"]
            if await self.valkey.call("EXISTS", ARTICLE(first)):
                raise
            return int(await self.functions.run("articles_claim", keys, time, operation, first))

    async def read(self, viewer: Actor | None, id: int) -> Article:
        """One article. One round trip."""
        (found,) = await self.read_many(viewer, [id])
        if found is None:
            raise NotFound("This article does not exist.", id=id)
        return found

    async def read_many(
        self, viewer: Actor | None, ids: Sequence[int], *, listed: bool = False
    ) -> list[Article | None]:
        """Articles by id, None for a missing one. One round trip per hundred; on a cluster one in all.

        Cached articles are used only if the ids were read from Valkey just now (`listed`): then invalidations have
        arrived.
        """
        name = "" if viewer is None or viewer.via_key else viewer.name
        if self.valkey.clustered:
            each = [[key(id) for key in _READ_KEYS] for id in ids]
            rows = await self.functions.query_each("articles_read", each, name)
            return [row and _with_vote(_article_from_row(id, row), row[7]) for id, row in zip(ids, rows, strict=True)]
        found: list[Article | None] = []
        for batch in chunks(ids, READ_BATCH):
            found += await self._read_batch(name, batch, listed)
        return found

    async def _read_batch(self, viewer: str, ids: Sequence[int], listed: bool) -> list[Article | None]:
        """As `read_many` on one server. No round trip if all are cached and there is no viewer."""
        articles = {id: article for id in ids if listed and (article := self._cache.get(ARTICLE(id)))}
        missing = [id for id in ids if id not in articles]
        votes = [self.functions.query_command("articles_votes", [], viewer, *ids)] if viewer else []

        def store(rows: list[Any]) -> None:
            for id, article in _articles_from_rows(missing, rows).items():
                self._cache.put(ARTICLE(id), article)

        if missing:
            rows, *replies = await self.functions.query_with_batch(
                "articles_read", [ARTICLE(id) for id in missing], missing, votes, store=store
            )
            articles |= _articles_from_rows(missing, rows)
        else:
            replies = await self.valkey.batch(votes) if votes else []
        found = [articles.get(id) for id in ids]
        return list(map(_with_vote, found, replies[0])) if votes else found

    async def vote(self, actor: Actor, id: int, direction: Direction | None) -> Vote:
        """Vote up or down; None removes the vote. One round trip on one server, three on a cluster."""
        keys = [ARTICLE(id), ARTICLE_UP(id), ARTICLE_DOWN(id)]
        time, votes = await self.functions.run(
            "articles_vote",
            keys,
            id,
            actor.name,
            direction or "none",
            self._now(),
            self._voting_seconds,
            self._origin,
        )
        return Vote(id, int(votes), score(float(time), int(votes)), direction)

    async def group(self, actor: Actor, id: int, name: str, change: Literal["in", "out"]) -> ArticleMembership:
        """Add an article to a group or remove it. One round trip on one server, four on a cluster."""
        keys = [ARTICLE(id), ARTICLE_GROUPS(id)]
        groups = await self.functions.run("articles_group", keys, id, name, change, _required_author(actor))
        return ArticleMembership(id, sorted(groups))

    async def delete(self, actor: Actor, id: int) -> DeletedArticle:
        """Delete an article, its votes and comments. One round trip on one server for up to 200 votes each way."""
        keys = [ARTICLE(id), ARTICLE_UP(id), ARTICLE_DOWN(id), ARTICLE_GROUPS(id)]
        left = await self.functions.run("articles_delete", keys, id, _required_author(actor))
        if left:
            await self._delete_rest(id, MAX_DELETE_BATCHES)
        return DeletedArticle(id)

    async def finish_deleting(self) -> int:
        """Delete votes and comments that deleted articles still have. Returns how many articles it took up; 0: done."""
        ids = await self.valkey.call("SRANDMEMBER", ARTICLES_BEING_DELETED(), DELETING_BATCH)
        for id in ids:
            await self._delete_rest(int(id), MAX_DELETE_BATCHES)
        return len(ids)

    async def _delete_rest(self, id: int, batches: int) -> None:
        for _ in range(batches):
            keys = [ARTICLE(id), ARTICLE_UP(id), ARTICLE_DOWN(id)]
            if not await self.functions.run("articles_delete_rest", keys, id):
                return

    def _now(self) -> str:
        """Unix seconds with three decimals, as stored: exact as text and as a double."""
        seconds, ms = divmod(self.clock.now_ms(), 1000)
        return f"{seconds}.{ms:03d}"


def _required_author(actor: Actor) -> str:
    """The username that must be the author; empty for an admin, who may change any article."""
    return "" if actor.is_admin else actor.name


def _article_from_row(id: int, row: list[Any]) -> Article:
    title, link, author, time, votes, groups, comments = row[:7]
    names = sorted(groups.split("\n")) if groups else []
    return Article(id, title, link, author, *_numbers(time, votes), names, None, int(comments))


def _articles_from_rows(ids: Sequence[int], rows: Sequence[list[Any] | None]) -> dict[int, Article]:
    return {id: _article_from_row(id, row) for id, row in zip(ids, rows, strict=True) if row is not None}


def _with_vote(article: Article | None, vote: str) -> Article | None:
    if article is None or vote == "none":
        return article
    return msgspec.structs.replace(article, vote=vote)


def _entry_of(key: str) -> str:
    """The article's key, from one of the keys that an article is read from."""
    family, _, rest = key.partition(":")
    return f"article:{rest.partition(':')[0]}" if family in ("article", "upvoted", "downvoted") else key


def _numbers(time: str, votes: str) -> tuple[float, int, float]:
    """An article's time, votes and score. Another service may have written them."""
    posted, count = parse_seconds(time), parse_int(votes)
    return posted, count, score(posted, count)


_READ_KEYS = (ARTICLE, ARTICLE_GROUPS, ARTICLE_UP, ARTICLE_DOWN, ARTICLE_COMMENTS)
