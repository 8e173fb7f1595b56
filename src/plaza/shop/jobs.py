"""The shop's background job: halve the view counts of items, so that recent views decide what is popular."""

from __future__ import annotations

from plaza.caching.item_views import HALVE_SECONDS, ItemViews
from plaza.core.leases import Lease
from plaza.core.timers import Timer


def timers(item_views: ItemViews) -> list[Timer]:
    async def halve(_: Lease) -> str:
        await item_views.halve()
        return "views halved"

    return [Timer("shop.popular", HALVE_SECONDS, halve, at_seconds=0)]
