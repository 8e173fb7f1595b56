"""How challenges plug in."""

from __future__ import annotations

from importlib.resources import files

from plaza.challenges.derived import Derived
from plaza.challenges.keys import CATALOGUE
from plaza.challenges.posts import Posts
from plaza.challenges.routes import route
from plaza.challenges.service import Challenges
from plaza.core.domain import Core, Domain, Parts
from plaza.core.functions import Library

LIBRARY = Library("challenges", CATALOGUE, files("plaza.challenges").joinpath("functions.lua").read_text())


def build(core: Core) -> Parts:
    """Challenges on an open core."""
    derived = Derived(core.sql, core.functions, core.clock, core.settings.max_post_age)
    return Parts([Challenges(core.sql, derived, core.clock), Posts(core.sql, derived, core.clock)])


DOMAIN = Domain(LIBRARY, [route], build)
