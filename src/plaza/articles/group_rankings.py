"""Builds a group's rankings from the rankings of all articles. One build serves all readers for a minute.

One ZINTERSTORE of 100,000 articles out of a million would block Valkey for 200 ms. Instead, SSCAN scans the group in
small steps; each step copies the members' scores into a key that no one reads, and the finished key is renamed. On one
server a step is one function. On a cluster the group and the ranking are on different nodes, so the scores pass through
this process.

If many readers in many processes find the ranking expired, one of them gets a lease and builds it. The others wait: an
older copy would show a vote later than the guaranteed minute. Within a process all readers wait for one task. A first
page waits only for a moment: most of a large group's first articles are among the first of all articles, so they are
found without the group's ranking.

Articles can be deleted or leave the group during a build. `articles_add_scores` therefore adds only current members of
the group, and `articles_remove_from_group` also removes from the unfinished ranking. Articles can also join behind the
scan's position: `articles_add_to_group` adds them to the unfinished ranking.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from typing import Final

from plaza.articles.keys import GROUP, GROUP_BUILDER, GROUP_BUILDING, GROUP_RANKINGS, GROUP_SECONDS, RANKINGS
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions

# Members per scan.
STEP: Final = 100
CLUSTER_STEP: Final = 250

# On one server a step scans until it has used this CPU time. Time on the clock would make steps short, and many, on a
# busy machine.
STEP_SECONDS: Final = 0.001

# After this time a first page is read from the ranking of all articles, if its articles are among the first there.
FIRST_PAGE_SECONDS: Final = 0.05
FIRST_PAGE_BATCH: Final = 1_000
MAX_FIRST_PAGE_BATCHES: Final = 5

# On one server, a group of at most this size is built in a single step: three round trips would take longer.
SINGLE_STEP_SIZE: Final = 500

# How often a process asks whether another one has finished, and when it gives up.
POLL_SECONDS: Final = 0.02
TIMEOUT_SECONDS: Final = 30.0


class GroupRankings:
    """Builds rankings of groups on demand."""

    def __init__(
        self,
        functions: Functions,
        *,
        step: int | None = None,
        step_seconds: float = STEP_SECONDS,
        single_step_size: int = SINGLE_STEP_SIZE,
    ) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._step_size = step or (CLUSTER_STEP if functions.valkey.clustered else STEP)
        self._step_seconds = step_seconds
        self._single_step_size = single_step_size
        self._builds: dict[str, asyncio.Task[None]] = {}

    async def ensure(self, order: str, group: str) -> None:
        """Return when the ranking exists or the group is empty."""
        # A reader that is cancelled must not cancel the build for the other readers.
        await asyncio.shield(self._start_build(order, group))

    async def first_members(self, order: str, group: str, count: int) -> list[tuple[str, float]]:
        """The first members with their scores; of a large group without waiting until its ranking exists.

        Before that, two round trips for each thousand articles that are looked through, at most 5,000.
        """
        build = self._start_build(order, group)
        await asyncio.wait([build], timeout=FIRST_PAGE_SECONDS)
        if not build.done():
            found = await self._find_among_all(order, group, count)
            if len(found) == count:
                return found
        await asyncio.shield(build)
        return list(await self._valkey.call("ZRANGE", GROUP_RANKINGS[order](group), 0, count - 1, "REV", "WITHSCORES"))

    async def _find_among_all(self, order: str, group: str, count: int) -> list[tuple[str, float]]:
        """The first members of a group, as far as they are among the first of all articles."""
        found: list[tuple[str, float]] = []
        for batch in range(MAX_FIRST_PAGE_BATCHES):
            first = batch * FIRST_PAGE_BATCH
            last = first + FIRST_PAGE_BATCH - 1
            rows = await self._valkey.call("ZRANGE", RANKINGS[order](), first, last, "REV", "WITHSCORES")
            if not rows:
                break
            are_members = await self._valkey.call("SMISMEMBER", GROUP(group), *(member for member, _ in rows))
            known = {member for member, _ in found}  # an article that was overtaken between two reads is in both
            for row, is_member in zip(rows, are_members, strict=True):
                if is_member and row[0] not in known:
                    found.append(row)
            if len(found) >= count:
                return found[:count]
        return found

    def _start_build(self, order: str, group: str) -> asyncio.Task[None]:
        name = GROUP_RANKINGS[order](group)
        task = self._builds.get(name)
        if task is None:
            task = self._builds[name] = asyncio.create_task(self._build_or_wait(order, group))
            task.add_done_callback(lambda task: self._forget_build(name, task))
        return task

    def _forget_build(self, name: str, task: asyncio.Task[None]) -> None:
        del self._builds[name]
        if not task.cancelled():
            task.exception()  # marks it as retrieved; the readers that still wait get it from the task

    async def _build_or_wait(self, order: str, group: str) -> None:
        keys = [GROUP_RANKINGS[order](group), GROUP_BUILDING(order, group), GROUP_BUILDER(order, group), GROUP(group)]
        if not self._valkey.clustered:
            keys.append(RANKINGS[order]())
        token = secrets.token_hex(8)
        until = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < until:
            state = await self._functions.run("articles_begin_build", keys, token, self._single_step_size, group)
            if state == "ready" or (state == "build" and await self._build(order, group, token)):
                return
            await asyncio.sleep(POLL_SECONDS)
        raise Unavailable("Building this group's list takes too long. Try again later.")

    async def _build(self, order: str, group: str, token: str) -> bool:
        """Build a ranking; False if the lease ran out and another process builds it now."""
        began = time.monotonic()
        building, builder = GROUP_BUILDING(order, group), GROUP_BUILDER(order, group)
        add_members = self._add_members_on_a_cluster if self._valkey.clustered else self._add_members
        if not await add_members(order, [building, builder, GROUP(group)], token):
            return False
        # The first scores were read when the build began, and a vote must show within a minute.
        left_ms = max(GROUP_SECONDS * 1000 - round((time.monotonic() - began) * 1000), 1000)
        keys = [GROUP_RANKINGS[order](group), building, builder]
        return bool(await self._functions.run("articles_publish", keys, token, left_ms))

    async def _add_members(self, order: str, keys: list[str], token: str) -> bool:
        """Add all members to the unfinished ranking; False if the lease is lost. One round trip for each step."""
        cursor: str | None = "0"
        while cursor is not None:
            args = token, cursor, self._step_size, self._step_seconds
            cursor = await self._functions.run("articles_step", [*keys, RANKINGS[order]()], *args)
            if cursor == "0":
                return True
        return False

    async def _add_members_on_a_cluster(self, order: str, keys: list[str], token: str) -> bool:
        """As `_add_members`, with the group and the ranking on different nodes. Two round trips for each step.

        The next members are scanned while the last are added.
        """
        cursor, members = await self._scan(keys[-1], "0")
        while True:
            scores = await self._valkey.call("ZMSCORE", RANKINGS[order](), *members) if members else ()
            found = [(member, repr(score)) for member, score in zip(members, scores, strict=True) if score is not None]
            adding = self._functions.run("articles_add_scores", keys, token, *itertools.chain(*found))
            if cursor == "0":
                return bool(await adding)
            is_added, (cursor, members) = await asyncio.gather(adding, self._scan(keys[-1], cursor))
            if not is_added:
                return False

    async def _scan(self, group: str, cursor: str) -> tuple[str, list[str]]:
        following, members = await self._valkey.call("SSCAN", group, cursor, "COUNT", self._step_size)
        return str(following), members
