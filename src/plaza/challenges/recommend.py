"""What to read next: recent posts of the categories one spends days on and of the challenges one reacts in, a few
others to discover, and for who is new here the popular and the fresh ones.

Valkey gives the candidates in one round trip, for the pools of all five categories are small to read and only one's own
contribution says which of them count. What is shown is then looked up in SQL, which is the record: an own post, one
reacted to, or one whose challenge has ended since the last roll is not shown, whatever the pool still has.
"""

from __future__ import annotations

from asyncio import gather
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final, Protocol

import msgspec
from sqlalchemy import exists, select

from plaza.challenges.derived import Derived
from plaza.challenges.keys import CLG_SHOWN, CLGS_PREFERENCE, RECENT_POSTS, USER_CONTRIBUTION
from plaza.challenges.model import CATEGORIES, CATEGORY_NAMES, Post, in_pool
from plaza.challenges.posts import REACTIONS, as_post
from plaza.challenges.tables import CHALLENGE, POST, REACTION
from plaza.core.auth import USER, Actor
from plaza.core.wire import Arg

# The documents' rule: the three categories with most days.
TOP_CATEGORIES: Final = 3
TOP_CHALLENGES: Final = 5
# Enough for a full answer after everything hidden is left out.
PER_CATEGORY: Final = 150
PER_CHALLENGE: Final = 40
# In one answer, as long as there are others.
MOST_OF_AUTHOR, MOST_OF_CHALLENGE = 2, 3
# After being shown on so many days, a post has had its chance.
MOST_DAYS_SHOWN: Final = 3
# Whose turn it is: two by category, two by challenge, and one in five to discover.
TURNS: Final = ("category", "challenge", "category", "challenge", "discover")


class Recommended(msgspec.Struct, frozen=True):
    post: Post
    reason: str


class Recommendations(msgspec.Struct, frozen=True):
    posts: list[Recommended]


class Blocks(Protocol):
    """Who is hidden from whom. Wired by the composition root."""

    async def hidden_from(self, username: str) -> set[str]:
        """Whom this person blocks, and who blocks them. One round trip."""


@dataclass(frozen=True, slots=True)
class Taste:
    """What is known of a reader."""

    days: Sequence[int]  # by category
    reactions: Mapping[int, int]  # by challenge, the most first
    shown: Mapping[int, tuple[int, int]]  # by post: on how many days, and when last
    pool: frozenset[int]  # posts that may be shown

    @property
    def categories(self) -> list[int]:
        """The categories with most days, the first one first."""
        numbers = sorted(range(1, CATEGORIES + 1), key=lambda n: -self.days[n - 1])
        return [n for n in numbers[:TOP_CATEGORIES] if self.days[n - 1]]


class Recommender:
    """Finds posts worth opening."""

    def __init__(self, derived: Derived) -> None:
        self._derived = derived
        self._valkey = derived.valkey
        self.blocks: Blocks | None = None

    async def recommend(self, actor: Actor, limit: int) -> Recommendations:
        """Posts with the reason for each. Two round trips, and a third to remember what is shown for the first time."""
        actor.require(USER)
        today = self._derived.today()
        taste, hidden = await gather(self._taste(actor.name, today), self._hidden_from(actor.name))
        rows = [row for row in await self._rows(actor.name, taste) if self._fit(row, today, taste, hidden)]
        chosen = choose(rows, taste, limit)
        await self._remember(actor.name, taste, [row.id for row, _ in chosen], today)
        return Recommendations([Recommended(as_post(row), reason) for row, reason in chosen])

    async def _taste(self, name: str, today: int) -> Taste:
        commands: list[list[Arg]] = [
            ["HGET", USER_CONTRIBUTION(), name],
            ["ZRANGE", CLGS_PREFERENCE(name), 0, TOP_CHALLENGES - 1, "REV", "WITHSCORES"],
            ["HGETALL", CLG_SHOWN(name)],
        ]
        age = self._derived.max_post_age
        index = today % age
        for category in range(1, CATEGORIES + 1):
            # The pool is a ring: from today's slot down to 0, and from the last one down to tomorrow's.
            for first, last in ((index, 0), (age - 1, index + 1)):
                where: list[Arg] = [first, last, "BYSCORE", "REV", "LIMIT", 0, PER_CATEGORY]
                commands.append(["ZRANGE", RECENT_POSTS(category), *where])
        days, preference, shown, *rings = await self._valkey.batch(commands)
        ids = [id for new, old in zip(rings[::2], rings[1::2], strict=True) for id in (new + old)[:PER_CATEGORY]]
        return Taste(
            days=[int(n) for n in days.split(",")] if days else [0] * CATEGORIES,
            reactions={int(id): int(float(count)) for id, count in preference},
            shown={int(id): _shown(text) for id, text in shown.items()},
            pool=frozenset(map(int, ids)),
        )

    async def _hidden_from(self, name: str) -> set[str]:
        return set() if self.blocks is None else await self.blocks.hidden_from(name)

    async def _rows(self, name: str, taste: Taste) -> list[Any]:
        """The candidates with their challenges, without one's own and those reacted to."""
        reacted = exists().where(REACTION.c.post_id == POST.c.id, REACTION.c.username == name)
        statement = (
            select(
                POST, REACTIONS, CHALLENGE.c.title, CHALLENGE.c.category, CHALLENGE.c.is_public, CHALLENGE.c.ends_day
            )
            .join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
            .where(POST.c.username != name, ~reacted)
        )
        found: dict[int, Any] = {}
        async with self._derived.sql.read() as tx:
            for row in await tx.execute(statement.where(POST.c.id.in_(taste.pool))):
                found[row.id] = row
            for challenge in taste.reactions:
                newest = statement.where(POST.c.challenge_id == challenge).order_by(POST.c.id.desc())
                for row in await tx.execute(newest.limit(PER_CHALLENGE)):
                    found[row.id] = row
        return list(found.values())

    def _fit(self, row: Any, today: int, taste: Taste, hidden: set[str]) -> bool:
        days, last = taste.shown.get(row.id, (0, today))
        seen_enough = days >= MOST_DAYS_SHOWN and (days > MOST_DAYS_SHOWN or last != today)
        return row.username not in hidden and not seen_enough and in_pool(row, today, self._derived.max_post_age)

    async def _remember(self, name: str, taste: Taste, ids: Iterable[int], today: int) -> None:
        """Count the day for what is shown for the first time on it, and forget what has left the pool."""
        fresh = {id: taste.shown.get(id, (0, -1)) for id in ids}
        new = {id: f"{days + 1},{today}" for id, (days, last) in fresh.items() if last != today}
        if not new:
            return
        age = self._derived.max_post_age
        key = CLG_SHOWN(name)
        gone = [id for id, (_, last) in taste.shown.items() if last <= today - age and id not in new]
        commands: list[list[Arg]] = [["HSET", key, *(part for pair in new.items() for part in pair)]]
        if gone:
            commands.append(["HDEL", key, *gone])
        commands.append(["EXPIRE", key, age * 86_400])
        await self._valkey.batch(commands)


def choose(rows: Sequence[Any], taste: Taste, limit: int) -> list[tuple[Any, str]]:
    """The sources in turn, each its best first; few of one author or challenge as long as there are others."""
    waiting = [*_in_turn(_sources(rows, taste))]
    chosen: list[tuple[Any, str]] = []
    taken: set[int] = set()
    for strict in (True, False):
        authors = Counter(row.username for row, _ in chosen)
        challenges = Counter(row.challenge_id for row, _ in chosen)
        for row, reason in waiting:
            crowded = authors[row.username] >= MOST_OF_AUTHOR or challenges[row.challenge_id] >= MOST_OF_CHALLENGE
            if len(chosen) == limit or row.id in taken or (strict and crowded):
                continue
            chosen.append((row, reason))
            taken.add(row.id)
            authors[row.username] += 1
            challenges[row.challenge_id] += 1
    return chosen


def _sources(rows: Sequence[Any], taste: Taste) -> dict[str, list[tuple[Any, str]]]:
    def newest(row: Any) -> tuple[int, int, int]:
        return taste.shown.get(row.id, (0, 0))[0], -row.day, -row.id

    recent = sorted(rows, key=newest)
    categories = taste.categories
    by_category = [[row for row in recent if row.category == category] for category in categories]
    by_challenge = [[row for row in recent if row.challenge_id == id] for id in taste.reactions]
    liked = sorted(rows, key=lambda row: (-row.reactions, *newest(row)))
    return {
        "category": [(row, _days(taste.days[row.category - 1], row.category)) for row in _one_of_each(by_category)],
        "challenge": [
            (row, f"You reacted {_times(taste.reactions[row.challenge_id])} in {row.title}")
            for row in _one_of_each(by_challenge)
        ],
        "discover": [(row, _popular(row)) for row in _one_of_each([liked, recent])],
    }


def _one_of_each(queues: Sequence[Sequence[Any]]) -> Iterator[Any]:
    """The first of each queue, then the second of each, and so on."""
    for place in range(max(map(len, queues), default=0)):
        for queue in queues:
            if place < len(queue):
                yield queue[place]


def _in_turn(sources: dict[str, list[tuple[Any, str]]]) -> Iterator[tuple[Any, str]]:
    queues = {name: iter(found) for name, found in sources.items()}
    done: set[int] = set()
    for name in cycle(TURNS):
        if not queues:
            return
        while name in queues:
            following = next(queues[name], None)
            if following is None:
                del queues[name]
            elif following[0].id not in done:
                done.add(following[0].id)
                yield following
                break


def _days(days: int, category: int) -> str:
    return f"{days} {'day' if days == 1 else 'days'} in {CATEGORY_NAMES[category - 1]}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _popular(row: Any) -> str:
    if row.reactions > 1:
        return f"Popular: {row.reactions} reactions"
    return f"New in {CATEGORY_NAMES[row.category - 1]}"


def _shown(text: str) -> tuple[int, int]:
    days, _, last = text.partition(",")
    return int(days), int(last)
