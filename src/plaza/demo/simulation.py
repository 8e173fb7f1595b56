"""Keeps the demo community active: every few seconds users like, post, vote, track a day or view an item.

Steps are independent, so any worker can run the next one. Deleted and suspended users do nothing. A refused action (the
post was deleted, the day is tracked already) is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from plaza.core.auth import Actor
from plaza.core.domain import Core
from plaza.core.errors import PlazaError, Unavailable
from plaza.demo.actions import DemoAction, DemoActions, RandomChoices
from plaza.demo.audience import DemoAudience
from plaza.demo.users import CommunityUsers, DemoUser
from plaza.live.heartbeats import LiveService
from plaza.social.keys import AUTH_USER, USER


class DemoSimulation:
    """Runs steps of the simulation."""

    def __init__(self, core: Core, services: Mapping[type, Any], rng: Random | None = None) -> None:
        self._valkey = core.valkey
        self._rng = rng or Random()
        self._community = CommunityUsers()
        self._choices = RandomChoices(core.valkey, self._rng)
        self._actions = DemoActions(core, services, self._choices, self._rng)
        self._audience = DemoAudience(services[LiveService], core.clock)

    async def step(self) -> str:
        """Run one step. Returns what was done, for operators."""
        done = [f"{await self._audience.beat()} beats"]
        for name, chance, act in self._actions.weighted():
            if self._rng.random() < chance:
                user = await self._choose_user()
                if user is not None and await self._try(act, user):
                    done.append(name)
        return ", ".join(done)

    async def _choose_user(self) -> DemoUser | None:
        user = self._choices.choose(self._community.users, 1.3)
        role, suspended = await self._valkey.batch(
            [("HGET", USER(user.username), "role"), ("HGET", AUTH_USER(user.username), "suspended_at")]
        )
        return None if role is None or suspended is not None else user

    async def _try(self, act: DemoAction, user: DemoUser) -> bool:
        try:
            await act(user, Actor(user.username, "user"))
        except Unavailable:
            raise
        except PlazaError:
            return False
        return True
