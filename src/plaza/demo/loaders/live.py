"""Loads an event with sessions and an audience of the last hour."""

from __future__ import annotations

from typing import Final

from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.demo.generator import CommunityPlan
from plaza.demo.phrases import read_texts
from plaza.live.heartbeats import LiveService
from plaza.live.keys import EVENT_INFO, LIVE_AWAKE
from plaza.live.model import EventDeclaration
from plaza.live.simulation import GROUPS, AudienceSimulation

EVENT: Final[str] = read_texts("shop")["event"]["id"]
DAY_MS: Final = 86_400_000
# The names that the audience simulation uses.
SESSIONS: Final = (f"{EVENT}-main", f"{EVENT}-side")


class LiveLoader:
    def __init__(self, functions: Functions, settings: Settings, plan: CommunityPlan) -> None:
        self._functions = functions
        self._settings = settings
        self._plan = plan

    async def load(self, batch: int, size: int) -> int:
        """Simulate the audience once. A second run only lists the event for the worker."""
        event, valkey = read_texts("shop")["event"], self._functions.valkey
        if await valkey.call("HEXISTS", EVENT_INFO(EVENT), "born"):
            await valkey.call("ZADD", LIVE_AWAKE(), "GT", self._plan.anchor_ms, EVENT)
            return 0
        clock = ManualClock(self._plan.anchor_ms)
        live = LiveService(self._functions, self._settings, clock, origin="import")
        started = self._plan.anchor_ms - event["minutes"] * 60_000
        await live.declare(
            EVENT, EventDeclaration(event["title"], list(SESSIONS), list(GROUPS), started, event["description"])
        )
        for coming in read_texts("shop")["coming"]:
            today = self._plan.anchor_ms // DAY_MS
            starts_at = (today + coming["in_days"]) * DAY_MS + coming["hour"] * 3_600_000
            await live.declare(
                coming["id"],
                EventDeclaration(coming["title"], starts_at=starts_at, description=coming["description"]),
            )
        audience = AudienceSimulation(
            self._functions,
            self._settings,
            EVENT,
            viewers=event["viewers"],
            minutes=event["minutes"],
            seed=1,
            origin="import",
        )
        return (await audience.run(clock)).beats
