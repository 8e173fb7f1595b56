"""What a domain offers to the search: the documents of one kind, and how a viewer sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
from msgspec import Struct
from sqlalchemy import BigInteger, Column, ColumnElement, bindparam, func, select

from plaza.core.auth import Actor
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey

# Keys that a source yields at once.
SCAN_BATCH: Final = 500

# Posts of a tag that are counted: the newest. What a viewer may not see must not count either, so each is read.
MAX_TAG_POSTS: Final = 20


# Followed users that are compared with a name.
MAX_FOLLOWED: Final = 1_000


class SearchDocument(Struct, frozen=True):
    """What is indexed of one object."""

    texts: Sequence[str]
    author: str = ""  # for `from:name`
    tags: Sequence[str] = ()
    names: Sequence[str] = ()  # by which it is suggested, such as a username
    created_ms: int = 0
    weight: float = 0.0  # the higher, the better it ranks: followers, engagement, a score

    @property
    def finite_weight(self) -> float:
        return finite_weight(self.weight)


def finite_weight(weight: float) -> float:
    """Return a weight, or 0 if another service wrote a figure that cannot be compared."""
    return float(weight) if isfinite(weight) else 0.0


class SearchHit(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A result. `title` and `text` are what can match, as a whole; pages show an excerpt."""

    id: str
    title: str
    text: str
    url: str  # of its page
    author: str | None = None
    image: str | None = None
    created_at: int | None = None
    figures: dict[str, int | float | str] = {}  # what its kind counts, such as `followers` or `price`
    # Only for admins who ask for them.
    score: float | None = None
    reasons: dict[str, float] | None = None


class SearchSource(Protocol):
    """The searchable objects of one kind. Their keys are texts, such as a username or a post's id."""

    @property
    def kind(self) -> str:
        """The noun of its list in responses, such as `posts`."""

    async def documents(self, keys: Sequence[str]) -> Mapping[str, SearchDocument]:
        """Return what to index, by key. A key is missing if no user may find the object."""

    def all_keys(self, after: str) -> AsyncIterator[Sequence[str]]:
        """Return all keys in batches, oldest first. After an interruption, `after` is the last key of a batch."""

    async def count(self, after: str) -> int:
        """Return about how many keys `all_keys` yields, for a progress bar."""

    async def load(self, viewer: Actor | None, keys: Sequence[str]) -> Sequence[SearchHit | None]:
        """Return objects as the viewer sees them; None for one that is deleted or hidden from the viewer."""

    async def preferred(self, viewer: Actor, keys: Sequence[str]) -> set[str]:
        """Return which objects the viewer sees first, such as users they follow."""

    def changed_keys(self, event_type: str, subject: str, data: Mapping[str, Any]) -> Iterable[str]:
        """Return the keys of objects that an event may have changed."""


@runtime_checkable
class WeightSource(Protocol):
    """A source with events that change the weight of an object alone, such as a like. Most events are of this kind."""

    @property
    def weight_events(self) -> frozenset[str]:
        """The types of these events. `changed_keys` says of which objects."""

    async def weights(self, keys: Sequence[str]) -> Mapping[str, float]:
        """Return the weights as `documents` does; of objects that no user may find, any weight or none."""


@runtime_checkable
class TagSource(Protocol):
    """Says which tags a viewer may see."""

    async def visible_tags(self, viewer: Actor | None, tags: Sequence[str]) -> Mapping[str, int]:
        """Return the tags of which the viewer can see some of the `MAX_TAG_POSTS` newest posts, and how many."""


@runtime_checkable
class AuthorSource(Protocol):
    """Says whose objects a viewer may not find, of whatever kind they are."""

    async def hidden_authors(self, viewer: Actor | None, usernames: Collection[str]) -> set[str]:
        """Return which users are suspended, or hidden from the viewer by a block."""

    async def followed_users(self, viewer: Actor) -> Sequence[str]:
        """Return users that the viewer follows, at most `MAX_FOLLOWED`."""


async def keys_in_sorted_set(valkey: Valkey, key: str, after: str) -> AsyncIterator[list[str]]:
    """Yield the members of a sorted set in batches, as `members_in_sorted_set`."""
    async for rows in members_in_sorted_set(valkey, key, after):
        yield [member for member, _ in rows]


async def members_in_sorted_set(valkey: Valkey, key: str, after: str = "") -> AsyncIterator[list[tuple[str, float]]]:
    """Yield members with their scores in batches, lowest score first, from the one after `after` if it is there.

    A member that is removed meanwhile moves the ranks of later ones, so each batch starts at the present rank of the
    last one. If that one is gone, the members with its score are yielded again rather than skipped.
    """
    rank = await valkey.call("ZRANK", key, after) if after else None
    start = 0 if rank is None else rank + 1
    while rows := await valkey.call("ZRANGE", key, start, start + SCAN_BATCH - 1, "WITHSCORES"):
        yield rows
        last, score = rows[-1]
        rank = await valkey.call("ZRANK", key, last)
        start = await valkey.call("ZCOUNT", key, "-inf", f"({score!r}") if rank is None else rank + 1


async def count_in_sorted_set(valkey: Valkey, key: str, after: str) -> int:
    """Return how many members `keys_in_sorted_set` yields. Two round trips."""
    rank = await valkey.call("ZRANK", key, after) if after else None
    return int(await valkey.call("ZCARD", key)) - (0 if rank is None else rank + 1)


async def keys_in_table(sql: Sql, id: Column[Any], after: str, *where: ColumnElement[bool]) -> AsyncIterator[list[str]]:
    """Yield the ids of a table in batches, oldest first, from the one after `after`."""
    last = bindparam("last", type_=BigInteger)
    statement = select(id).where(id > last, *where).order_by(id).limit(SCAN_BATCH)
    keys = [after or "0"]
    while rows := await sql.fetch_all(statement, last=int(keys[-1])):
        keys = [str(row[0]) for row in rows]
        yield keys


async def count_in_table(sql: Sql, id: Column[Any], after: str, *where: ColumnElement[bool]) -> int:
    """Return how many ids `keys_in_table` yields."""
    statement = select(func.count()).select_from(id.table).where(id > bindparam("last", type_=BigInteger), *where)
    return int((await sql.fetch_all(statement, last=int(after or "0")))[0][0])
