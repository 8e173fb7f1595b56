"""Builds a group's rankings from the rankings of all articles. One build serves all readers for a minute.

One ZINTERSTORE of 100,000 articles out of a million would block Valkey for 200 ms. Instead, SSCAN scans the group in
small steps; each step copies the members' scores into a key that no one reads, and the finished key is renamed. On one
server a step is one function. On a cluster the group and the ranking are on different nodes, so the scores pass through
this process.

If many readers in many processes find the ranking expired, one of them gets a lease and builds it. The others wait: an
older copy would show a vote later than the guaranteed minute. Within a process all readers wait for one task.

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

# Members per step. A step keeps Valkey busy for 0.5 ms, on a slow machine for 2 ms.
STEP: Final = 200

# On one server, a group of at most this size is built in a single step: three round trips would take longer.
SINGLE_STEP_SIZE: Final = 500

# How often a process asks whether another one has finished, and when it gives up.
POLL_SECONDS: Final = 0.02
TIMEOUT_SECONDS: Final = 30.0


class GroupRankings:
    """Builds rankings of groups on demand."""

    def __init__(self, functions: Functions, *, step: int = STEP, single_step_size: int = SINGLE_STEP_SIZE) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._step_size = step
        self._single_step_size = single_step_size
        self._builds: dict[str, asyncio.Task[None]] = {}

    async def ensure(self, order: str, group: str) -> None:
        """Return when the ranking exists or the group is empty."""
        name = GROUP_RANKINGS[order](group)
        task = self._builds.get(name)
        if task is None:
            task = self._builds[name] = asyncio.create_task(self._build_or_wait(order, group))
            task.add_done_callback(lambda task: self._forget_build(name, task))
        # A reader that is cancelled must not cancel the build for the other readers.
        await asyncio.shield(task)

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
        step = self._step_on_a_cluster if self._valkey.clustered else self._step_on_one_server
        cursor = await step(order, [building, builder, GROUP(group)], token, "0")
        while cursor not in (None, "0"):
            cursor = await step(order, [building, builder, GROUP(group)], token, cursor)
        if cursor is None:
            return False
        # The first scores were read when the build began, and a vote must show within a minute.
        left_ms = max(GROUP_SECONDS * 1000 - round((time.monotonic() - began) * 1000), 1000)
        keys = [GROUP_RANKINGS[order](group), building, builder]
        return bool(await self._functions.run("articles_publish", keys, token, left_ms))

    async def _step_on_one_server(self, order: str, keys: list[str], token: str, cursor: str) -> str | None:
        """Add the next members. Returns the next cursor, None if the lease is lost. One round trip."""
        args = token, cursor, self._step_size
        following: str | None = await self._functions.run("articles_step", [*keys, RANKINGS[order]()], *args)
        return following

    async def _step_on_a_cluster(self, order: str, keys: list[str], token: str, cursor: str) -> str | None:
        """As `_step_on_one_server`, with the group and the ranking on different nodes. Three round trips."""
        following, members = await self._valkey.call("SSCAN", keys[-1], cursor, "COUNT", self._step_size)
        if not members:
            return str(following)
        scores = await self._valkey.call("ZMSCORE", RANKINGS[order](), *members)
        found = [(member, repr(score)) for member, score in zip(members, scores, strict=True) if score is not None]
        if found and not await self._functions.run("articles_add_scores", keys, token, *itertools.chain(*found)):
            return None
        return str(following)
