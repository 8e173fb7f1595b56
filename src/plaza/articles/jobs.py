"""What articles leave to a worker."""

from __future__ import annotations

from plaza.articles.service import Articles
from plaza.core.leases import Lease
from plaza.core.timers import Timer

# A deleter that died, or did not wait for a hundred thousand votes to go, leaves the rest for this long at most.
FINISH_SECONDS = 60.0


def timers(articles: Articles) -> list[Timer]:
    async def finish_deleting(fence: Lease) -> str:
        count = 0
        while some := await articles.finish_deleting():
            await fence.check()
            count += some
        return f"{count} deleted articles had votes left"

    return [Timer("articles.deleting", FINISH_SECONDS, finish_deleting)]
