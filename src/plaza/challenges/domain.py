"""How challenges plug in."""

from __future__ import annotations

from plaza.challenges.daily_job import Roll
from plaza.challenges.invariants import Inspection
from plaza.challenges.jobs import timers
from plaza.challenges.library import LIBRARY
from plaza.challenges.participation import Standings
from plaza.challenges.personal_data import Participants
from plaza.challenges.posts import Posts
from plaza.challenges.projection import Derived
from plaza.challenges.recommendation.recommender import Recommender
from plaza.challenges.routes import route
from plaza.challenges.service import Challenges
from plaza.core.domain import Core, Domain, Parts
from plaza.core.leases import Leases


def build(core: Core) -> Parts:
    """Challenges on an open core."""
    derived = Derived(core.sql, core.functions, core.clock, core.settings.max_post_age)
    roll = Roll(derived, Leases(core.functions))
    services = [
        Challenges(core.sql, derived, core.clock),
        Posts(core.sql, derived, core.clock),
        roll,
        Recommender(derived, core.provided.blocks),
        Standings(core.sql, core.clock),
    ]
    return Parts(
        services, timers=timers(roll), personal_data=Participants(derived), inspectors=[Inspection(derived, roll)]
    )


DOMAIN = Domain(LIBRARY, [route], build)
