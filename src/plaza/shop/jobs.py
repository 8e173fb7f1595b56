"""The worker's job for the shop."""

from __future__ import annotations

from plaza.caching.item_views import HALVE_SECONDS, ItemViews
from plaza.core.leases import Lease
from plaza.core.timers import Timer


def timers(item_views: ItemViews) -> list[Timer]:
    async def halve(_: Lease) -> str:
        await item_views.halve()
        return "views halved"

    return [Timer("shop.popular", HALVE_SECONDS, halve, at_seconds=0)]
