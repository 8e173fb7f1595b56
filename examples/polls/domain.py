"""The declaration of the polls domain."""

from __future__ import annotations

from examples.polls.keys import POLL, USER_POLLS
from examples.polls.library import LIBRARY
from examples.polls.personal_data import PollsPersonalData
from examples.polls.routes import route
from examples.polls.service import Polls
from plaza.core.domain import Core, Domain, Parts
from plaza.core.invariants import Invariants


def build(core: Core) -> Parts:
    return Parts([Polls(core.functions)], personal_data=PollsPersonalData(core.functions), personal_keys=[USER_POLLS])


DOMAIN = Domain(LIBRARY, [route], build, Invariants(repairs={"poll": POLL, "voter": POLL}))
