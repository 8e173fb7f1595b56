"""How the caches plug in: keys, Lua and invariants. They have no routes; the shop schedules rows and serves pages."""

from __future__ import annotations

from plaza.caching.invariants import INVARIANTS
from plaza.caching.keys import ROW_SCHEDULE
from plaza.caching.library import LIBRARY
from plaza.core.domain import Core, Domain, Parts
from plaza.core.due_times import make_all_due


def build(core: Core) -> Parts:
    """Return no services: each user of the caches builds its own, with its own loader and options."""

    async def make_rows_due() -> None:
        await make_all_due(core.valkey, ROW_SCHEDULE(), core.clock.now_s())

    return Parts([], on_clock_set_back=[make_rows_due])


DOMAIN = Domain(LIBRARY, [], build, INVARIANTS)
