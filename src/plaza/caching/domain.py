"""How the caches plug in: keys, Lua and invariants. They have no routes; the shop schedules rows and serves pages."""

from __future__ import annotations

from plaza.caching.invariants import INVARIANTS
from plaza.caching.library import LIBRARY
from plaza.core.domain import Core, Domain, Parts


def build(core: Core) -> Parts:
    """Return no services: each user of the caches builds its own, with its own loader and options."""
    return Parts([])


DOMAIN = Domain(LIBRARY, [], build, INVARIANTS)
