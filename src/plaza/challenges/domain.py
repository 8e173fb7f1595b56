"""How challenges plug in."""

from __future__ import annotations

from importlib.resources import files

from plaza.challenges.derived import Derived
from plaza.challenges.jobs import timers
from plaza.challenges.keys import CATALOGUE
from plaza.challenges.posts import Posts
from plaza.challenges.roll import Roll
from plaza.challenges.routes import route
from plaza.challenges.service import Challenges
from plaza.core.domain import Core, Domain, Parts
from plaza.core.functions import Library
from plaza.core.leases import Leases

LIBRARY = Library("challenges", CATALOGUE, files("plaza.challenges").joinpath("functions.lua").read_text())


def build(core: Core) -> Parts:
    """Challenges on an open core."""
    derived = Derived(core.sql, core.functions, core.clock, core.settings.max_post_age)
    roll = Roll(derived, Leases(core.functions))
    services = [Challenges(core.sql, derived, core.clock), Posts(core.sql, derived, core.clock), roll]
    return Parts(services, timers(roll))


DOMAIN = Domain(LIBRARY, [route], build)
