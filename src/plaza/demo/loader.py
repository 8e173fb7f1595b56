"""Making a community, stage by stage and batch by batch. How far it is stands in Valkey after every batch.

A batch may be done twice (its run may die before that is noted), so every part finds what is there already. Two batches
are under way at a time: while Valkey works on one, the next is thought up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from plaza.challenges.projection import ChallengeProjections
from plaza.core.domain import Core
from plaza.core.errors import Invalid
from plaza.demo.generator import LARGE_COMMUNITY, SMALL_COMMUNITY, CommunityPlan
from plaza.demo.keys import DEMO_RUNS, DEMO_SEEDS
from plaza.demo.loaders.articles import ArticlesLoader
from plaza.demo.loaders.challenges import ChallengesLoader
from plaza.demo.loaders.live import LiveLoader
from plaza.demo.loaders.shop import ShopLoader
from plaza.demo.loaders.social import FOLLOWERS_A_BATCH, SocialLoader
from plaza.demo.phrases import bank
from plaza.demo.users import CommunityUsers, GeneratedUsers
from plaza.shop.items import Items
from plaza.social.sync import Sync

COMMUNITY: Final = "community"
COMMUNITY_POSTS: Final = 190
COMMUNITY_ARTICLES: Final = 34

# A crowd has an article for so many posts, and a challenge for so many people.
POSTS_AN_ARTICLE: Final = 50
PEOPLE_A_CHALLENGE: Final = 500
MOST_CHALLENGES: Final = 500

MOST_USERS: Final = 50_000_000
MOST_POSTS: Final = 1_000_000_000
MOST_SEED: Final = 999_999
UNDER_WAY: Final = 2


@dataclass(frozen=True, slots=True)
class LoadStage:
    """One kind of thing: so many of it, in batches of a size. `load` says how many records it wrote."""

    name: str
    count: int
    size: int
    load: Callable[[int, int], Awaitable[int]]

    @property
    def batches(self) -> int:
        return -(-self.count // self.size)

    def things(self, batch: int) -> int:
        return min(self.size, self.count - batch * self.size)


@dataclass(slots=True)
class LoadResult:
    """What a run did: records written, and how many things of each stage; nothing if it had been done before."""

    records: int
    stages: dict[str, int]


# Told the stage, how many of its things are done now, and the records written for them.
Progress = Callable[[LoadStage, int, int], None]


class DemoLoader:
    """Makes communities."""

    def __init__(self, core: Core, sync: Sync, items: Items) -> None:
        self._core = core
        self._valkey = core.valkey
        self._sync = sync
        self._items = items

    async def community(self, anchor_ms: int) -> LoadResult:
        """The small community of a first start. Gently: requests have their turn between the batches."""
        plan = CommunityPlan(COMMUNITY, CommunityUsers(), COMMUNITY_POSTS, anchor_ms, SMALL_COMMUNITY)
        challenges = len(bank("challenges")["challenges"])
        stages = self._stages(plan, articles=COMMUNITY_ARTICLES, challenges=challenges, batch=25)
        live = LiveLoader(self._core.functions, self._core.settings, plan)
        return await self._run(COMMUNITY, [*stages, LoadStage("events", 1, 1, live.load)], under_way=1)

    async def crowd(self, seed: int, users: int, posts: int, progress: Progress | None = None) -> LoadResult:
        """A community of any size, on top of what is there."""
        for field, value, least, most in (
            ("seed", seed, 0, MOST_SEED),
            ("users", users, 2, MOST_USERS),
            ("posts", posts, 0, MOST_POSTS),
        ):
            if not least <= value <= most:
                raise Invalid(f"must be {least} to {most}", field=field)
        plan = CommunityPlan(str(seed), GeneratedUsers(seed, users), posts, await self._anchor(seed), LARGE_COMMUNITY)
        challenges = min(max(users // PEOPLE_A_CHALLENGE, 1), MOST_CHALLENGES)
        stages = self._stages(plan, articles=posts // POSTS_AN_ARTICLE, challenges=challenges, batch=250)
        return await self._run(f"{seed}:{users}:{posts}", stages, progress)

    def _stages(self, plan: CommunityPlan, *, articles: int, challenges: int, batch: int) -> list[LoadStage]:
        core, settings = self._core, self._core.settings
        social = SocialLoader(self._sync, plan)
        reading = ArticlesLoader(core.functions, plan, articles, settings.voting_days)
        projections = ChallengeProjections(core.sql, core.functions, core.clock, settings.max_post_age)
        items = bank("shop")["items"]
        return [
            LoadStage("people", plan.people.size, 2 * batch, social.users),
            LoadStage("posts", plan.posts, batch, social.posts),
            LoadStage("follows", plan.people.size, min(batch, FOLLOWERS_A_BATCH), social.follows),
            LoadStage("articles", articles, batch // 5, reading.load),
            LoadStage("challenges", challenges, 10, ChallengesLoader(core.sql, projections, plan, challenges).load),
            LoadStage("items", len(items), len(items), ShopLoader(self._items, self._valkey).load),
        ]

    async def _anchor(self, seed: int) -> int:
        """The moment before which everything of a seed lies: that of its first run."""
        now = self._core.clock.now_ms()
        _, anchor = await self._valkey.batch(
            [("HSETNX", DEMO_SEEDS(), seed, now), ("HGET", DEMO_SEEDS(), seed)],
        )
        return int(anchor)

    async def _run(
        self, run: str, stages: Sequence[LoadStage], progress: Progress | None = None, under_way: int = UNDER_WAY
    ) -> LoadResult:
        noted = await self._valkey.call("HGET", DEMO_RUNS(), run)
        stage_done, batches_done = msgspec.json.decode(noted, type=tuple[int, int]) if noted else (0, 0)
        made = LoadResult(0, {})
        for place, stage in enumerate(stages):
            if place < stage_done:
                continue
            first = batches_done if place == stage_done else 0
            if progress is not None and first:
                progress(stage, min(first * stage.size, stage.count), 0)
            await self._stage(run, place, stage, first, made, progress, under_way)
        await self._note(run, len(stages), 0)
        return made

    async def _stage(
        self,
        run: str,
        place: int,
        stage: LoadStage,
        first: int,
        made: LoadResult,
        progress: Progress | None,
        under_way: int,
    ) -> None:
        waiting: deque[tuple[int, asyncio.Task[int]]] = deque()
        try:
            for batch in range(first, stage.batches + under_way):
                if batch < stage.batches:
                    waiting.append((batch, asyncio.ensure_future(stage.load(batch, stage.size))))
                    await asyncio.sleep(0)  # it is sent before the next one is thought up
                if waiting and (len(waiting) == under_way or batch >= stage.batches):
                    done, task = waiting.popleft()
                    records = await task
                    made.records += records
                    made.stages[stage.name] = made.stages.get(stage.name, 0) + stage.things(done)
                    await self._note(run, place, done + 1)
                    if progress is not None:
                        progress(stage, stage.things(done), records)
        finally:
            for _, task in waiting:
                task.cancel()
            if waiting:
                await asyncio.wait([task for _, task in waiting])

    async def _note(self, run: str, stage: int, batches: int) -> None:
        await self._valkey.call("HSET", DEMO_RUNS(), run, msgspec.json.encode((stage, batches)))
