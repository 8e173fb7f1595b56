"""What to read next. Valkey gives, in one round trip, what is known of a reader, what goes with the challenges that
they take part in, and the newest of all five categories, for only one's own days say which of these count.

Some thousand posts are to choose from, and twenty are shown. What the choice goes by never changes, so it stays at hand
in the process (`candidates.py`). What is chosen is then looked up in SQL, which is the record: an own post, one reacted
to, or one whose challenge has ended since the last roll is not shown, whatever the pool still has. The rules of what
comes first are in `choosing.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import msgspec
from sqlalchemy import BindParameter, CompoundSelect, bindparam, exists, func, select, union_all

from plaza.challenges.keys import (
    CLG_NEIGHBOURS,
    CLG_POPULAR,
    CLG_SHOWN,
    CLGS_PREFERENCE,
    RECENT_POSTS,
    USER_CONTRIBUTION,
)
from plaza.challenges.model import CATEGORIES, Post, days_of, ids_of, in_pool, is_id, shown_of
from plaza.challenges.posts import REACTIONS, as_post
from plaza.challenges.projection import Derived
from plaza.challenges.recommendation.candidates import Candidates
from plaza.challenges.recommendation.ranking import MOST_ALIKE, Candidate, Menu, Own, Taste, alike, one_of_each
from plaza.challenges.tables import CHALLENGE, MEMBER, POST, REACTION
from plaza.core.auth import Actor
from plaza.core.domain import BlockLists
from plaza.core.valkey import Arg

TOP_CHALLENGES: Final = 5
# Enough for a full answer after everything hidden is left out.
PER_CATEGORY: Final = 100
ANY_OF_CATEGORY: Final = 30
PER_CHALLENGE: Final = 25
# The newest of one's own challenges speak for what one wants now; each costs up to 3 kB to read.
MOST_OWN: Final = 100
# After being shown on so many days, a post has had its chance.
MOST_DAYS_SHOWN: Final = 3
# Of what is chosen, at least so many are looked up at a time: who has reacted to most of it needs further ones.
LOOKED_UP: Final = 50
# Of posts that were shown, so many are remembered: some weeks of reading, and 20 kB.
MOST_REMEMBERED: Final = 1_000

_VIEWER: BindParameter[str] = bindparam("viewer")
_REACTED = (
    select(REACTION.c.challenge_id, func.max(REACTION.c.id).label("last"))
    .where(REACTION.c.username == _VIEWER)
    .group_by(REACTION.c.challenge_id)
    .subquery()
)
_GOING = select(CHALLENGE.c.id, CHALLENGE.c.title).where(CHALLENGE.c.ends_day > bindparam("today")).limit(MOST_OWN)
# The challenges that go on and that somebody has something to do with, by what: the newest first.
_OWN: Final = {
    "reacted in": _GOING.join(_REACTED, _REACTED.c.challenge_id == CHALLENGE.c.id).order_by(_REACTED.c.last.desc()),
    "joined": _GOING.join(MEMBER).where(MEMBER.c.username == _VIEWER).order_by(MEMBER.c.id.desc()),
}
_OF_OTHERS = (
    POST.c.username != _VIEWER,
    ~exists().where(REACTION.c.post_id == POST.c.id, REACTION.c.username == _VIEWER),
)
_ROWS = (
    select(POST, REACTIONS, CHALLENGE.c.title, CHALLENGE.c.category, CHALLENGE.c.is_public, CHALLENGE.c.ends_day)
    .join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
    .where(POST.c.id.in_(bindparam("ids", expanding=True)), *_OF_OTHERS)
)


class Recommended(msgspec.Struct, frozen=True):
    post: Post
    reason: str


class Recommendations(msgspec.Struct, frozen=True):
    posts: list[Recommended]


class Recommender:
    """Finds posts worth opening."""

    def __init__(self, derived: Derived, blocks: BlockLists | None = None) -> None:
        self._derived = derived
        self._valkey = derived.valkey
        self._sql = derived.sql
        self._candidates = Candidates(derived.sql)
        self._blocks = blocks

    async def recommend(self, actor: Actor, limit: int) -> Recommendations:
        """Posts with the reason for each. One round trip, and a second to remember what is shown for the first time."""
        today = self._derived.today()
        taste = await self._taste(actor.name, today, await self._own(actor.name, today))
        posts = await self._candidates.of(taste.pool | await self._newest(actor.name, taste))
        menu = Menu((post for post in posts if self._may_be_shown(post, today, taste)), taste)
        chosen = await self._choose(menu, actor.name, today, taste, limit)
        await self._remember(actor.name, taste, [one.post.id for one in chosen], today)
        return Recommendations(chosen)

    async def _choose(self, menu: Menu, name: str, today: int, taste: Taste, limit: int) -> list[Recommended]:
        """The first of the menu that the record has for this reader. What it has not makes room for the next."""
        rows: dict[int, Any] = {}
        gone: set[int] = set()
        while True:
            chosen = menu.choose(max(2 * limit, LOOKED_UP), gone)
            unknown = [one.post.id for one in chosen if one.post.id not in rows]
            if unknown:
                found = await self._sql.fetch_all(_ROWS, viewer=name, ids=unknown)
                rows |= {
                    row.id: row
                    for row in found
                    if row.username not in taste.hidden and in_pool(row, today, self._derived.max_post_age)
                }
                gone.update(id for id in unknown if id not in rows)
            if gone.isdisjoint(one.post.id for one in chosen[:limit]):
                first = [(rows[one.post.id], one.source) for one in chosen[:limit]]
                return [Recommended(as_post(row), menu.reason(source, row)) for row, source in first]

    async def _taste(self, name: str, today: int, own: Sequence[Own]) -> Taste:
        """What is known of a reader who takes part in these challenges. One round trip."""
        hiding = [] if self._blocks is None else self._blocks.block_list_keys(name)
        (days, preference, shown, popular), pools, hidden, neighbours = await self._batches(
            [
                ["HGET", USER_CONTRIBUTION(), name],
                ["ZRANGE", CLGS_PREFERENCE(name), 0, TOP_CHALLENGES - 1, "REV", "WITHSCORES"],
                ["HGETALL", CLG_SHOWN(name)],
                ["ZRANGE", CLG_POPULAR(), 0, -1, "WITHSCORES"],
            ],
            self._pool_commands(today),
            [["ZRANGE", key, 0, -1] for key in hiding],
            [["GET", CLG_NEIGHBOURS(one.id)] for one in own],
        )
        ids = [id for id, _ in popular]
        for new, old, any_ in zip(pools[::3], pools[1::3], pools[2::3], strict=True):
            ids += [*(new + old)[:PER_CATEGORY], *any_]
        return Taste(
            days=days_of(days),
            reactions={int(id): int(float(count)) for id, count in preference if is_id(id)},
            shown={int(id): shown_of(text) for id, text in shown.items()},
            pool=frozenset(ids_of(ids)),
            popular={int(id): int(float(count)) for id, count in popular if is_id(id)},
            hidden=frozenset(name for names in hidden for name in names),
            alike=alike(own, neighbours),
        )

    def _pool_commands(self, today: int) -> list[list[Arg]]:
        """Three for each category: the newest up to where the ring begins, those beyond it, and some of any age."""
        commands: list[list[Arg]] = []
        age = self._derived.max_post_age
        index = today % age
        for category in range(1, CATEGORIES + 1):
            # The pool is a ring: from today's slot down to 0, and from the last one down to tomorrow's.
            for first, last in ((index, 0), (age - 1, index + 1)):
                where: list[Arg] = [first, last, "BYSCORE", "REV", "LIMIT", 0, PER_CATEGORY]
                commands.append(["ZRANGE", RECENT_POSTS(category), *where])
            # Who posts without end fills the newest places, but not these.
            commands.append(["ZRANDMEMBER", RECENT_POSTS(category), ANY_OF_CATEGORY])
        return commands

    async def _batches(self, *groups: Sequence[Sequence[Arg]]) -> list[list[Any]]:
        """Groups of commands in one round trip, and the answers by group."""
        answers = iter(await self._valkey.batch([command for group in groups for command in group]))
        return [list(islice(answers, len(group))) for group in groups]

    async def _own(self, name: str, today: int) -> list[Own]:
        """The challenges that go on in which one reacted or which one joined: the newest of each in turn."""
        found = [
            [Own(row.id, row.title, did) for row in await self._sql.fetch_all(statement, viewer=name, today=today)]
            for did, statement in _OWN.items()
        ]
        own: dict[int, Own] = {}
        for one in one_of_each(found):
            own.setdefault(one.id, one)
        return list(own.values())[:MOST_OWN]

    async def _newest(self, name: str, taste: Taste) -> set[int]:
        """The newest posts of the challenges that somebody reacts in most, or that go with theirs."""
        wanted = {f"challenge{n}": id for n, id in enumerate({*taste.reactions, *taste.alike})}
        if not wanted:
            return set()
        return {id for (id,) in await self._sql.fetch_all(_newest(len(wanted)), viewer=name, **wanted)}

    def _may_be_shown(self, post: Candidate, today: int, taste: Taste) -> bool:
        days, last = taste.shown.get(post.id, (0, today))
        seen_enough = days >= MOST_DAYS_SHOWN and (days > MOST_DAYS_SHOWN or last != today)
        return not seen_enough and in_pool(post, today, self._derived.max_post_age)

    async def _remember(self, name: str, taste: Taste, ids: Iterable[int], today: int) -> None:
        """Count the day for what is shown for the first time on it; forget what has left the pool, and the oldest."""
        fresh = {id: taste.shown.get(id, (0, -1)) for id in ids}
        new = {id: f"{days + 1},{today}" for id, (days, last) in fresh.items() if last != today}
        if not new:
            return
        age = self._derived.max_post_age
        key = CLG_SHOWN(name)
        old = sorted((last, id) for id, (_, last) in taste.shown.items() if id not in new)
        too_many = len(old) + len(new) - MOST_REMEMBERED
        gone = [id for place, (last, id) in enumerate(old) if last <= today - age or place < too_many]
        commands: list[list[Arg]] = [["HSET", key, *(part for pair in new.items() for part in pair)]]
        if gone:
            commands.append(["HDEL", key, *gone])
        commands.append(["EXPIRE", key, age * 86_400])
        await self._valkey.batch(commands)


@lru_cache(TOP_CHALLENGES + MOST_ALIKE)
def _newest(count: int) -> CompoundSelect[tuple[int]]:
    """The newest posts of each of so many challenges, by one statement that reads no more than it gives."""
    each = (
        select(POST.c.id)
        .where(POST.c.challenge_id == bindparam(f"challenge{n}"), *_OF_OTHERS)
        .order_by(POST.c.id.desc())
        .limit(PER_CHALLENGE)
        .subquery()
        for n in range(count)
    )
    return union_all(*(select(newest.c.id) for newest in each))
