"""Recommends posts to a viewer.

One round trip to Valkey reads the viewer's profile, the neighbours of their challenges and the newest posts of all five
categories (which of these matter depends on the profile).

About five hundred candidates are ranked (`ranking.py`) and twenty are shown. The columns that ranking needs never
change, so they are cached in the process (`candidate_cache.py`). So are the neighbours of challenges, until the next
training (`neighbour_cache.py`). The selected posts are then read from SQL: the viewer's own
posts, posts they reacted to and posts of ended challenges are left out, even if the pool still has them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    CompoundSelect,
    bindparam,
    desc,
    exists,
    func,
    literal,
    literal_column,
    select,
    union_all,
)

from plaza.challenges.keys import (
    CLG_POPULAR,
    CLG_SHOWN,
    CLGS_PREFERENCE,
    RECENT_POSTS,
    USER_CONTRIBUTION,
)
from plaza.challenges.model import CATEGORIES, ChallengePost, in_pool, is_id, parse_contribution, parse_shown, valid_ids
from plaza.challenges.posts import POST_COUNTS, post_from_row
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.recommendation.candidate_cache import CandidateCache
from plaza.challenges.recommendation.neighbour_cache import NeighbourCache
from plaza.challenges.recommendation.ranking import (
    Candidate,
    CandidateSelector,
    OwnChallenge,
    ViewerProfile,
    round_robin,
)
from plaza.challenges.tables import CHALLENGE, MEMBER, POST, REACTION
from plaza.core.auth import Actor
from plaza.core.domain import BlockLists
from plaza.core.extras import is_installed
from plaza.core.pictures import AvatarAddresses, NoAvatars
from plaza.core.valkey import Arg

TOP_CHALLENGES: Final = 5
# Candidates per source: enough for a full response after hidden posts are left out.
PER_CATEGORY: Final = 40
RANDOM_PER_CATEGORY: Final = 10
PER_CHALLENGE: Final = 12
PER_SIMILAR: Final = 6
POPULAR: Final = 60
# Only the newest of the viewer's challenges count; each costs up to 2 kB to read.
MAX_OWN_CHALLENGES: Final = 200
# A post is not shown to a viewer on more days than this.
MAX_DAYS_SHOWN: Final = 3
# Selected posts to read in addition to those that are shown, since the viewer may have reacted to some of them.
SPARE_POSTS: Final = 10
# Shown posts that are remembered per viewer: some weeks of reading, 20 kB.
MAX_REMEMBERED: Final = 1_000

_VIEWER: BindParameter[str] = bindparam("viewer")
_REACTED = (
    select(REACTION.c.challenge_id, func.max(REACTION.c.id).label("last"))
    .where(REACTION.c.username == _VIEWER)
    .group_by(REACTION.c.challenge_id)
    .subquery()
)
_ONGOING = select(CHALLENGE.c.id, CHALLENGE.c.title).where(CHALLENGE.c.ends_day > bindparam("today"))
# Ongoing challenges in which the viewer takes part, by action; `last` orders them.
_BY_ACTION: Final = {
    "reacted in": _ONGOING.add_columns(_REACTED.c.last).join(_REACTED, _REACTED.c.challenge_id == CHALLENGE.c.id),
    "joined": _ONGOING.add_columns(MEMBER.c.id.label("last")).join(MEMBER).where(MEMBER.c.username == _VIEWER),
}
_NEWEST_OWN = [
    part.add_columns(literal(action).label("action")).order_by(desc("last")).limit(MAX_OWN_CHALLENGES).subquery()
    for action, part in _BY_ACTION.items()
]
_OWN = union_all(*map(select, _NEWEST_OWN)).order_by(desc("last"))
_OF_OTHERS = (
    POST.c.username != _VIEWER,
    ~exists().where(REACTION.c.post_id == POST.c.id, REACTION.c.username == _VIEWER),
)
_ROWS = (
    select(POST, *POST_COUNTS, CHALLENGE.c.title, CHALLENGE.c.category, CHALLENGE.c.is_public, CHALLENGE.c.ends_day)
    .join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
    .where(POST.c.id.in_(bindparam("ids", expanding=True)), *_OF_OTHERS)
)


# The challenges similar to the viewer's own, from these and their stored neighbours.
FindSimilar = Callable[[Sequence[OwnChallenge], Sequence[bytes | None]], Mapping[int, OwnChallenge]]


class Recommended(msgspec.Struct, frozen=True):
    post: ChallengePost
    reason: str


class Recommendations(msgspec.Struct, frozen=True):
    posts: list[Recommended]


class Recommender:
    """Recommends recent posts to a viewer."""

    def __init__(
        self,
        projections: ChallengeProjections,
        blocks: BlockLists | None = None,
        avatars: AvatarAddresses | None = None,
    ) -> None:
        self._projections = projections
        self._valkey = projections.valkey
        self._sql = projections.sql
        self._candidates = CandidateCache(projections.sql)
        self._neighbours = NeighbourCache(projections.valkey)
        self._blocks = blocks
        self._avatars = avatars or NoAvatars()
        self._find_similar: FindSimilar | None = None

    async def recommend(self, actor: Actor, limit: int) -> Recommendations:
        """Recommended posts with reasons.

        One round trip, one more if a post is shown for the first time today, and one for avatars that are not cached.
        """
        today = self._projections.today()
        profile = await self._read_profile(actor, today, await self._own_challenges(actor.name, today))
        posts = await self._candidates.get(profile.pool | await self._newest(actor.name, profile), today)
        selector = CandidateSelector(posts, profile, lambda post: self._can_be_shown(post, today, profile))
        chosen = await self._choose(selector, actor.name, today, profile, limit)
        await self._remember_shown(actor.name, profile, [recommended.post.id for recommended in chosen], today)
        return Recommendations(chosen)

    async def _choose(
        self, selector: CandidateSelector, name: str, today: int, profile: ViewerProfile, limit: int
    ) -> list[Recommended]:
        """The first selected posts that SQL still has for this viewer; missing ones are replaced by the next."""
        rows: dict[int, Any] = {}
        missing: set[int] = set()
        while True:
            chosen = selector.choose(limit + SPARE_POSTS, missing)
            unknown = [candidate.post.id for candidate in chosen if candidate.post.id not in rows]
            found = await self._sql.fetch_all(_ROWS, viewer=name, ids=unknown) if unknown else ()
            rows |= {
                row.id: row
                for row in found
                if row.username not in profile.hidden and in_pool(row, today, self._projections.max_post_age)
            }
            missing.update(id for id in unknown if id not in rows)
            if not missing.isdisjoint(post.id for post, _ in chosen):
                chosen = selector.choose(limit, missing)
            if all(post.id in rows for post, _ in chosen[:limit]):
                first = [(rows[post.id], source) for post, source in chosen[:limit]]
                avatars = await self._avatars.addresses({row.username for row, _ in first})
                return [Recommended(post_from_row(row, avatars), selector.reason(source, row)) for row, source in first]

    async def _read_profile(self, actor: Actor, today: int, own: Sequence[OwnChallenge]) -> ViewerProfile:
        """The profile of a viewer who takes part in these challenges. One round trip: two batches in parallel."""
        name = actor.name
        hiding = [] if self._blocks is None else self._blocks.block_list_keys(actor)
        commands: list[list[Arg]] = [
            ["HGET", USER_CONTRIBUTION(), name],
            ["ZMSCORE", CLGS_PREFERENCE(name), *([challenge.id for challenge in own] or [0])],
            ["HGETALL", CLG_SHOWN(name)],
            ["ZRANGE", CLG_POPULAR(), 0, POPULAR - 1, "REV", "WITHSCORES"],
        ]
        commands += [["ZRANGE", key, 0, -1] for key in hiding]
        (days, preference, shown, popular, *hidden_and_pools), neighbours = await asyncio.gather(
            self._valkey.batch([*commands, *self._pool_commands(today)]),
            self._neighbours.read([challenge.id for challenge in own]),
        )
        hidden, pools = hidden_and_pools[: len(hiding)], hidden_and_pools[len(hiding) :]
        ids = [id for id, _ in popular]
        for new, old, any_ in zip(pools[::3], pools[1::3], pools[2::3], strict=True):
            ids += [*(new + old)[:PER_CATEGORY], *any_]
        return ViewerProfile(
            days=parse_contribution(days),
            reactions=_most_reactions(own, preference[: len(own)]),
            shown={int(id): parse_shown(text) for id, text in shown.items()},
            pool=frozenset(valid_ids(ids)),
            popular={int(id): int(float(count)) for id, count in popular if is_id(id)},
            hidden=frozenset(name for names in hidden for name in names),
            similar=await self._similar(own, neighbours),
        )

    async def _similar(
        self, own: Sequence[OwnChallenge], neighbours: Sequence[bytes | None]
    ) -> Mapping[int, OwnChallenge]:
        if not any(neighbours):
            return {}
        if self._find_similar is None:
            # Loaded late, and beside other requests: numpy takes a third of a second.
            self._find_similar = await asyncio.to_thread(_similarity)
        return self._find_similar(own, neighbours)

    def _pool_commands(self, today: int) -> list[list[Arg]]:
        """Three commands per category: the newest posts up to slot 0, those beyond it, and random ones of any age."""
        commands: list[list[Arg]] = []
        age = self._projections.max_post_age
        index = today % age
        for category in range(1, CATEGORIES + 1):
            # Slots form a ring: from today's slot down to 0, then from the last slot down to tomorrow's.
            for first, last in ((index, 0), (age - 1, index + 1)):
                where: list[Arg] = [first, last, "BYSCORE", "REV", "LIMIT", 0, PER_CATEGORY]
                commands.append(["ZRANGE", RECENT_POSTS(category), *where])
            # A user who posts very often could fill the newest places, but not these.
            commands.append(["ZRANDMEMBER", RECENT_POSTS(category), RANDOM_PER_CATEGORY])
        return commands

    async def _own_challenges(self, name: str, today: int) -> list[OwnChallenge]:
        """The viewer's ongoing challenges: the newest reacted in and the newest joined, alternating. One query."""
        found: dict[str, list[OwnChallenge]] = {action: [] for action in _BY_ACTION}
        for row in await self._sql.fetch_all(_OWN, viewer=name, today=today):
            id, title, _, action = tuple(row)
            found[action].append(OwnChallenge(id, title, action))
        own: dict[int, OwnChallenge] = {}
        for challenge in round_robin(list(found.values())):
            own.setdefault(challenge.id, challenge)
        return list(own.values())[:MAX_OWN_CHALLENGES]

    async def _newest(self, name: str, profile: ViewerProfile) -> set[int]:
        """The newest posts of the challenges the viewer reacts in most, and of similar ones. One query."""
        if not (profile.reactions or profile.similar):
            return set()
        wanted = {f"own{n}": id for n, id in enumerate(profile.reactions)}
        statement = _newest(len(profile.reactions))
        found = await self._sql.fetch_all(statement, viewer=name, similar=[*profile.similar], **wanted)
        return {id for (id,) in found}

    def _can_be_shown(self, post: Candidate, today: int, profile: ViewerProfile) -> bool:
        days, last = profile.shown.get(post.id, (0, today))
        shown_enough = days >= MAX_DAYS_SHOWN and (days > MAX_DAYS_SHOWN or last != today)
        return not shown_enough and in_pool(post, today, self._projections.max_post_age)

    async def _remember_shown(self, name: str, profile: ViewerProfile, ids: Iterable[int], today: int) -> None:
        """Count today for posts first shown today; drop entries that left the pool, and the oldest over the limit."""
        previous = {id: profile.shown.get(id, (0, -1)) for id in ids}
        new = {id: f"{days + 1},{today}" for id, (days, last) in previous.items() if last != today}
        if not new:
            return
        age = self._projections.max_post_age
        key = CLG_SHOWN(name)
        old = sorted((last, id) for id, (_, last) in profile.shown.items() if id not in new)
        too_many = len(old) + len(new) - MAX_REMEMBERED
        expired = [id for place, (last, id) in enumerate(old) if last <= today - age or place < too_many]
        commands: list[list[Arg]] = [["HSET", key, *(part for pair in new.items() for part in pair)]]
        if expired:
            commands.append(["HDEL", key, *expired])
        commands.append(["EXPIRE", key, age * 86_400])
        await self._valkey.batch(commands)


def _similarity() -> FindSimilar:
    """What finds similar challenges; without numpy there are none."""
    if not is_installed("recommend"):
        return lambda own, neighbours: {}
    from plaza.challenges.recommendation.similarity import similar_challenges

    return similar_challenges


def _most_reactions(own: Sequence[OwnChallenge], counts: Sequence[float | None]) -> dict[int, int]:
    """The viewer's ongoing challenges with most reactions. Scores that another service wrote can be odd."""
    found = [
        (int(count), challenge.id)
        for challenge, count in zip(own, counts, strict=True)
        if count is not None and math.isfinite(count) and count >= 1
    ]
    return {id: count for count, id in sorted(found, key=lambda pair: -pair[0])[:TOP_CHALLENGES]}


def _literal(number: int) -> ColumnElement[int]:
    """A number in the text of a statement. Each parameter would cost 2 µs."""
    return literal_column(str(number))


@lru_cache
def _newest(own: int) -> CompoundSelect[tuple[int]]:
    """A statement for the newest posts of this number of own challenges, and of similar ones.

    It reads few more rows than it returns: of a similar challenge those from its sixth newest post on. A viewer has no
    posts and reactions there, since it is not an own one.
    """
    newest = select(POST.c.id).order_by(POST.c.id.desc())
    parts = [
        newest.where(POST.c.challenge_id == bindparam(f"own{n}"), *_OF_OTHERS).limit(_literal(PER_CHALLENGE))
        for n in range(own)
    ]
    same = POST.alias()
    last = select(same.c.id).where(same.c.challenge_id == CHALLENGE.c.id).order_by(same.c.id.desc())
    first_shown = last.limit(_literal(1)).offset(_literal(PER_SIMILAR - 1)).scalar_subquery()
    similar = (
        select(POST.c.id)
        .join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
        .where(CHALLENGE.c.id.in_(bindparam("similar", expanding=True)), POST.c.id >= func.coalesce(first_shown, 0))
    )
    return union_all(*(select(part.subquery().c.id) for part in parts), similar)
