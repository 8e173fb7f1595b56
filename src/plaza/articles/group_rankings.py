"""A group's lists: cut from the order of all articles, kept for a minute, computed once for all who wait.

One ZINTERSTORE of 100,000 articles out of a million would stop Valkey for 200 ms. Here the group is gone through by
SSCAN, two hundred at a time; their scores are put in a key that nobody reads, and when it is whole it is renamed. On
one server a step is one function; on a cluster the group and the order live apart, and the scores pass through here.

Of all readers who meet a list that has expired, in all processes, one gets the lease and builds. The others wait for
it rather than be shown an older list: a minute is what a vote may take to be seen, and a copy kept longer would break
that. In one process all wait for the same task, which asks Valkey on their behalf.

An article may be deleted, or leave the group, while the list is built. `fold` therefore takes in only what is in the
group at that moment, and `expel` removes from the list being built as from the list itself, each in one atomic step.
One that joins meanwhile may fall where the scan has been already: `admit` puts it in as long as someone builds.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from typing import Final

from plaza.articles.keys import CUTS, GROUP, GROUP_BUILDER, GROUP_BUILDING, GROUP_SECONDS, RANKINGS
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions

# Members of one step. Valkey is busy with each for half a millisecond, on a slow machine for two.
STEP: Final = 200

# A group that is no larger is cut in a single step on one server: waiting for three would take longer than it saves.
AT_ONCE: Final = 500

# How often one process asks whether another has finished, and how long it has patience for.
ASK_SECONDS: Final = 0.02
PATIENCE_SECONDS: Final = 30.0


class Cuts:
    """Builds the lists of groups."""

    def __init__(self, functions: Functions, *, step: int = STEP, at_once: int = AT_ONCE) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._size = step
        self._at_once = at_once
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def ensure(self, order: str, group: str) -> bool:
        """Return when the list is there, or the group is empty."""
        name = CUTS[order](group)
        task = self._under_way.get(name)
        if task is None:
            task = self._under_way[name] = asyncio.create_task(self._build_or_wait(order, group))
            task.add_done_callback(lambda task: self._done(name, task))
        # One reader who goes away takes nothing from the others.
        await asyncio.shield(task)
        return True

    def _done(self, name: str, task: asyncio.Task[None]) -> None:
        del self._under_way[name]
        if not task.cancelled():
            task.exception()  # its readers have heard of it, those who are still there

    async def _build_or_wait(self, order: str, group: str) -> None:
        keys = [CUTS[order](group), GROUP_BUILDING(order, group), GROUP_BUILDER(order, group), GROUP(group)]
        if not self._valkey.clustered:
            keys.append(RANKINGS[order]())
        token = secrets.token_hex(8)
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            state = await self._functions.run("articles_begin", keys, token, self._at_once)
            if state == "there" or (state == "yours" and await self._build(order, group, token)):
                return
            await asyncio.sleep(ASK_SECONDS)
        raise Unavailable("The list of this group takes too long to build.")

    async def _build(self, order: str, group: str, token: str) -> bool:
        """Build a list; False if it took so long that another builder was let in."""
        began = time.monotonic()
        building, builder = GROUP_BUILDING(order, group), GROUP_BUILDER(order, group)
        step = self._step_on_a_cluster if self._valkey.clustered else self._step_on_one_server
        cursor = await step(order, [building, builder, GROUP(group)], token, "0")
        while cursor not in (None, "0"):
            cursor = await step(order, [building, builder, GROUP(group)], token, cursor)
        if cursor is None:
            return False
        # The first scores were read when it began, and no vote may wait for more than a minute.
        left = max(GROUP_SECONDS * 1000 - round((time.monotonic() - began) * 1000), 1000)
        keys = [CUTS[order](group), building, builder]
        return bool(await self._functions.run("articles_publish", keys, token, left))

    async def _step_on_one_server(self, order: str, keys: list[str], token: str, cursor: str) -> str | None:
        """Take in the articles behind a cursor. Returns the next one, None if the lease is lost. One round trip."""
        args = token, cursor, self._size
        found: str | None = await self._functions.run("articles_step", [*keys, RANKINGS[order]()], *args)
        return found

    async def _step_on_a_cluster(self, order: str, keys: list[str], token: str, cursor: str) -> str | None:
        """The same where the group and the order live apart: the scores pass through here. Three round trips."""
        following, members = await self._valkey.call("SSCAN", keys[-1], cursor, "COUNT", self._size)
        if not members:
            return str(following)
        scores = await self._valkey.call("ZMSCORE", RANKINGS[order](), *members)
        found = [(member, repr(score)) for member, score in zip(members, scores, strict=True) if score is not None]
        if found and not await self._functions.run("articles_fold", keys, token, *itertools.chain(*found)):
            return None
        return str(following)
