"""Loads a community, stage by stage and batch by batch. The progress is saved in Valkey after every batch.

A batch may be loaded twice, if the process dies before its progress is saved. So every loader skips what exists. Two
batches run at a time: while Valkey writes one, the next is generated.
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
from plaza.demo.loaders.pictures import PicturesLoader
from plaza.demo.loaders.shop import ShopLoader
from plaza.demo.loaders.social import FOLLOWERS_PER_BATCH, SocialLoader
from plaza.demo.phrases import read_texts
from plaza.demo.users import CommunityUsers, GeneratedUsers
from plaza.shop.items import Items
from plaza.social.inbound_sync import InboundSync

COMMUNITY: Final = "community"
COMMUNITY_POSTS: Final = 143  # each sentence of `topics` once
COMMUNITY_ARTICLES: Final = 34

# A generated community has one article per so many posts, and one challenge per so many users.
POSTS_PER_ARTICLE: Final = 50
USERS_PER_CHALLENGE: Final = 500
MAX_CHALLENGES: Final = 500

MAX_USERS: Final = 50_000_000
MAX_POSTS: Final = 1_000_000_000
MAX_SEED: Final = 999_999
CONCURRENT_BATCHES: Final = 2


@dataclass(frozen=True, slots=True)
class LoadStage:
    """A kind of data: `count` items in batches of `size`. `load` returns the number of records it wrote."""

    name: str
    count: int
    size: int
    load: Callable[[int, int], Awaitable[int]]

    @property
    def batches(self) -> int:
        return -(-self.count // self.size)

    def items_in(self, batch: int) -> int:
        return min(self.size, self.count - batch * self.size)


@dataclass(slots=True)
class LoadResult:
    """The result of a run: records written, and items per stage. Empty if the run was done before."""

    records: int
    stages: dict[str, int]


# Called with the stage, the number of items done and the number of records written.
Progress = Callable[[LoadStage, int, int], None]


class DemoLoader:
    """Loads communities."""

    def __init__(self, core: Core, sync: InboundSync, items: Items, pictures: PicturesLoader) -> None:
        self._core = core
        self._pictures = pictures
        self._valkey = core.valkey
        self._sync = sync
        self._items = items

    async def load_community(self, anchor_ms: int) -> LoadResult:
        """Load the small community of a first start, one batch at a time, so that requests are not delayed."""
        plan = CommunityPlan(COMMUNITY, CommunityUsers(), COMMUNITY_POSTS, anchor_ms, SMALL_COMMUNITY)
        challenges = len(read_texts("challenges")["challenges"])
        stages = self._stages(plan, articles=COMMUNITY_ARTICLES, challenges=challenges, batch=25)
        live = LiveLoader(self._core.functions, self._core.settings, plan)
        last = [LoadStage("events", 1, 1, live.load), LoadStage("pictures", 1, 1, self._pictures.load)]
        return await self._run(COMMUNITY, [*stages, *last], concurrent_batches=1)

    async def load_generated(self, seed: int, users: int, posts: int, progress: Progress | None = None) -> LoadResult:
        """Load a generated community of any size beside existing data."""
        for field, value, least, most in (
            ("seed", seed, 0, MAX_SEED),
            ("users", users, 2, MAX_USERS),
            ("posts", posts, 0, MAX_POSTS),
        ):
            if not least <= value <= most:
                raise Invalid(f"must be {least} to {most}", field=field)
        plan = CommunityPlan(str(seed), GeneratedUsers(seed, users), posts, await self._anchor(seed), LARGE_COMMUNITY)
        challenges = min(max(users // USERS_PER_CHALLENGE, 1), MAX_CHALLENGES)
        stages = self._stages(plan, articles=posts // POSTS_PER_ARTICLE, challenges=challenges, batch=250)
        return await self._run(f"{seed}:{users}:{posts}", stages, progress)

    def _stages(self, plan: CommunityPlan, *, articles: int, challenges: int, batch: int) -> list[LoadStage]:
        core, settings = self._core, self._core.settings
        social = SocialLoader(self._sync, plan)
        articles_loader = ArticlesLoader(core.functions, plan, articles, settings.voting_days)
        projections = ChallengeProjections(core.sql, core.functions, core.clock, settings.max_post_age)
        items = read_texts("shop")["items"]
        return [
            LoadStage("users", plan.users.size, 2 * batch, social.users),
            LoadStage("posts", plan.posts, batch, social.posts),
            LoadStage("follows", plan.users.size, min(batch, FOLLOWERS_PER_BATCH), social.follows),
            LoadStage("articles", articles, batch // 5, articles_loader.load),
            LoadStage("challenges", challenges, 10, ChallengesLoader(core.sql, projections, plan, challenges).load),
            LoadStage("items", len(items), len(items), ShopLoader(self._items, self._valkey).load),
        ]

    async def _anchor(self, seed: int) -> int:
        """Return the time of a seed's first run. All data of the seed is older."""
        now = self._core.clock.now_ms()
        _, anchor = await self._valkey.batch(
            [("HSETNX", DEMO_SEEDS(), seed, now), ("HGET", DEMO_SEEDS(), seed)],
        )
        return int(anchor)

    async def _run(
        self,
        run: str,
        stages: Sequence[LoadStage],
        progress: Progress | None = None,
        concurrent_batches: int = CONCURRENT_BATCHES,
    ) -> LoadResult:
        progress_json = await self._valkey.call("HGET", DEMO_RUNS(), run)
        stage_done, batches_done = msgspec.json.decode(progress_json, type=tuple[int, int]) if progress_json else (0, 0)
        result = LoadResult(0, {})
        for place, stage in enumerate(stages):
            if place < stage_done:
                continue
            first = batches_done if place == stage_done else 0
            if progress is not None and first:
                progress(stage, min(first * stage.size, stage.count), 0)
            await self._stage(run, place, stage, first, result, progress, concurrent_batches)
        await self._save_progress(run, len(stages), 0)
        return result

    async def _stage(
        self,
        run: str,
        place: int,
        stage: LoadStage,
        first: int,
        result: LoadResult,
        progress: Progress | None,
        concurrent_batches: int,
    ) -> None:
        waiting: deque[tuple[int, asyncio.Task[int]]] = deque()
        try:
            for batch in range(first, stage.batches + concurrent_batches):
                if batch < stage.batches:
                    waiting.append((batch, asyncio.ensure_future(stage.load(batch, stage.size))))
                    await asyncio.sleep(0)  # send it before the next one is generated
                if waiting and (len(waiting) == concurrent_batches or batch >= stage.batches):
                    done, task = waiting.popleft()
                    records = await task
                    result.records += records
                    result.stages[stage.name] = result.stages.get(stage.name, 0) + stage.items_in(done)
                    await self._save_progress(run, place, done + 1)
                    if progress is not None:
                        progress(stage, stage.items_in(done), records)
        finally:
            for _, task in waiting:
                task.cancel()
            if waiting:
                await asyncio.wait([task for _, task in waiting])

    async def _save_progress(self, run: str, stage: int, batches: int) -> None:
        await self._valkey.call("HSET", DEMO_RUNS(), run, msgspec.json.encode((stage, batches)))
