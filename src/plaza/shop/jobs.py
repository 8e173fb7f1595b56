"""What a worker does for the shop."""

from __future__ import annotations

from plaza.caching.item_views import HALVE_SECONDS, ItemViews
from plaza.core.leases import Lease
from plaza.core.timers import Timer
from plaza.sessions.service import Sessions

# Often enough that a wave of new sessions does not outgrow the limit by much.
CLEAN_SECONDS = 30.0


def timers(sessions: Sessions, item_views: ItemViews) -> list[Timer]:
    async def clean(_: Lease) -> str:
        return f"{await sessions.clean()} sessions ended"

    async def halve(_: Lease) -> str:
        await item_views.halve()
        return "views halved"

    return [
        Timer("shop.sessions", CLEAN_SECONDS, clean),
        Timer("shop.popular", HALVE_SECONDS, halve, at_seconds=0),
    ]
