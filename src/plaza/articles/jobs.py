"""Articles' background jobs: delete the votes of deleted articles, and find groups that other services have written.

An article can have too many votes to delete in one request. A group's name is part of its key's name, so only a scan of
all key names finds a group that no one has read yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from plaza.articles.keys import ARTICLE_GROUPS, CATALOGUE, GROUP, GROUPS
from plaza.articles.service import Articles
from plaza.core.leases import Lease
from plaza.core.sequences import chunks
from plaza.core.timers import Timer
from plaza.core.valkey import scan_pages

# How long votes of a deleted article remain at most if the deleting process died or stopped after its share.
FINISH_DELETING_SECONDS = 60.0
# How often key names are scanned for groups of other services.
DISCOVER_SECONDS = 600.0
# Articles that are indexed at once.
MAX_CONCURRENT = 50


def timers(articles: Articles) -> list[Timer]:
    async def finish_deleting(fence: Lease) -> str:
        total = 0
        while finished := await articles.finish_deleting():
            await fence.check()
            total += finished
        return f"{total} deleted articles had votes left"

    async def discover(_: Lease) -> str:
        return f"{await discover_groups(articles)} groups of other services found"

    return [
        Timer("articles.deleting", FINISH_DELETING_SECONDS, finish_deleting),
        Timer("articles.discover", DISCOVER_SECONDS, discover),
    ]


async def discover_groups(articles: Articles) -> int:
    """Index the groups that other services have changed since they were read. Returns how many."""
    found = 0
    for server in articles.valkey.primaries():
        async for names in scan_pages(server, "SCAN", match="group:*", type="set"):
            matches = (CATALOGUE.match(name) for name in names)
            groups = [match.parts[0] for match in matches if match is not None and match.key is GROUP]
            for group in await _changed_groups(articles, groups):
                await _index_group(articles, group)
                found += 1
    return found


async def _changed_groups(articles: Articles, groups: Sequence[str]) -> list[str]:
    """Return the groups whose size differs from the one in the list of groups."""
    sizes = await articles.valkey.batch([("SCARD", GROUP(group)) for group in groups])
    listed = await articles.valkey.call("ZMSCORE", GROUPS(), *groups) if groups else []
    return [group for group, size, known in zip(groups, sizes, listed, strict=True) if size != known]


async def _index_group(articles: Articles, group: str) -> None:
    """Set a group's size, and add the group to the indexes of its articles."""
    key = GROUP(group)
    await articles.functions.run("articles_repair_group_size", [key], "", group)
    async for members in scan_pages(articles.valkey, "SSCAN", key):
        ids = [id for member in members if (id := member.removeprefix("article:")).isdigit()]
        known = await articles.valkey.batch([("SISMEMBER", ARTICLE_GROUPS(id), group) for id in ids])
        missing = [id for id, is_known in zip(ids, known, strict=True) if not is_known]
        for batch in chunks(missing, MAX_CONCURRENT):
            calls = (articles.functions.run("articles_repair_group", [key], "", group, id) for id in batch)
            await asyncio.gather(*calls)
