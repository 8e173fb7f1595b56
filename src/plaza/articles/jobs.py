"""Articles' background job: delete the votes of deleted articles, which can be too many for one request."""

from __future__ import annotations

from plaza.articles.service import Articles
from plaza.core.leases import Lease
from plaza.core.timers import Timer

# How long votes of a deleted article remain at most if the deleting process died or stopped after its share.
FINISH_DELETING_SECONDS = 60.0


def timers(articles: Articles) -> list[Timer]:
    async def finish_deleting(fence: Lease) -> str:
        total = 0
        while finished := await articles.finish_deleting():
            await fence.check()
            total += finished
        return f"{total} deleted articles had votes left"

    return [Timer("articles.deleting", FINISH_DELETING_SECONDS, finish_deleting)]
