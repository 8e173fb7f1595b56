"""The demo of a running server: whether there is one, who looks after it, and who may walk in without a password.

It is asked for once, when a first `plaza serve` finds everything empty, and that is noted in Valkey; whichever worker
comes first loads it, and if it dies, the next goes on. After that a simulation keeps the place alive, one step every
few seconds, in one worker however many there are.

Its accounts have no password at all, so nobody signs in to them by one. They open from the sign-in page alone, and only
while this process listens where nobody else can reach it and is asked for by a name of this machine, or an operator has
said `PLAZA_DEMO=on`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from dataclasses import dataclass
from typing import Final

import structlog

from plaza.core.domain import Core
from plaza.core.errors import NotFound
from plaza.core.leases import LeaseHeld, Leases
from plaza.core.settings import Settings
from plaza.core.timers import Timer, Timers
from plaza.core.valkey import Valkey
from plaza.demo.keys import DEMO
from plaza.demo.loader import DemoLoader
from plaza.demo.simulation import TICK_SECONDS, DemoSimulation
from plaza.demo.users import CommunityUsers
from plaza.social.keys import AUTH_USER, USER
from plaza.web.demo_accounts import DemoAccount

log = structlog.get_logger("plaza.demo")

# How often a worker looks whether there is a demo to look after: a read, and nothing else.
LOOK_SECONDS: Final = 15.0
# The server is to answer first.
SETTLE_SECONDS: Final = 0.3

# Somebody is waiting for it: a start after a kill is not to wait long for the dead.
LOAD_LEASE_SECONDS: Final = 3.0

WANTED, LOADED = "wanted", "loaded"


@dataclass(frozen=True, slots=True)
class DemoState:
    """What is known of the demo."""

    state: str
    since_ms: int
    on: bool

    @property
    def loaded(self) -> bool:
        return self.state == LOADED


class Demo:
    """The demo, for the pages, the worker and the command line."""

    def __init__(self, core: Core, loader: DemoLoader, simulation: DemoSimulation) -> None:
        self._valkey = core.valkey
        self._settings = core.settings
        self.loader = loader
        self._leases = Leases(core.functions, LOAD_LEASE_SECONDS)
        self._timers = Timers(core.functions, Leases(core.functions), "demo")
        self.timers = ["demo.simulate"]
        self._timer = Timer("demo.simulate", TICK_SECONDS, lambda _: simulation.step(), timeout_seconds=60)

    async def state(self) -> DemoState | None:
        """None if there is no demo. One round trip."""
        state, since, on = await self._valkey.call("HMGET", DEMO(), "state", "since", "on")
        return None if state is None else DemoState(state, int(since), on == "1")

    async def switch(self, on: bool) -> DemoState:
        """Turn the simulation and the accounts on or off, at once and for every process."""
        found = await self.state()
        if found is None:
            raise NotFound("There is no demo here.")
        await self._valkey.call("HSET", DEMO(), "on", int(on))
        return DemoState(found.state, found.since_ms, on)

    async def is_on(self) -> bool | None:
        """Whether it is on; None if there is none, or the setting says that it stands still."""
        found = await self.state()
        return None if found is None or self._settings.demo == "off" else found.on

    async def accounts(self, host: str) -> list[DemoAccount]:
        """Accounts that whoever asked this host may use, in the order they are shown. None while the demo is off.

        A page of somebody else's can have its own name lead to this machine, and so ask as if it were ours; and a proxy
        here passes on what others ask. Both ask for another host than this machine's.
        """
        if not is_open(self._settings) or (self._settings.demo == "auto" and not _is_loopback(_name_in(host))):
            return []
        found = await self.state()
        if found is None or not found.on:
            return []
        names = [person.username for person in CommunityUsers().people if person.switchable]
        there = await self._valkey.batch([("HMGET", USER(name), "display_name", "role") for name in names])
        # Whoever has taken a name that was deleted has a password, and is nobody of the demo.
        taken = await self._valkey.batch([("EXISTS", AUTH_USER(name)) for name in names])
        return [
            DemoAccount(name, shown or name, role)
            for name, (shown, role), secret in zip(names, there, taken, strict=True)
            if role is not None and not secret
        ]

    async def turn(self) -> float:
        """What a worker does about the demo, again and again. Returns the seconds until it is worth coming back."""
        if self._settings.demo == "off":
            return LOOK_SECONDS
        found = await self.state()
        if found is None:
            return LOOK_SECONDS
        if not found.loaded:
            await asyncio.sleep(SETTLE_SECONDS)
            return await self._load(found.since_ms)
        if not found.on:
            return LOOK_SECONDS
        return await self._timers.run_if_due(self._timer)

    async def _load(self, since_ms: int) -> float:
        try:
            async with self._leases.hold("demo.load"):
                made = await self.loader.community(since_ms)
                await self._valkey.call("HSET", DEMO(), "state", LOADED)
        except LeaseHeld:
            return 0.5
        log.info("the demo community has moved in", records=made.records)
        return 0.0


def is_open(settings: Settings) -> bool:
    """Whether accounts may open without a password: where only this machine can ask, or where that was asked for."""
    if settings.demo == "auto":
        return _is_loopback(settings.host) and not settings.trusted_proxies
    return settings.demo == "on"


def _name_in(host: str) -> str:
    """The name or address in a `Host` header, without the port and the brackets of IPv6; empty if it is none."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/@]+))(?::[0-9]+)?", host)
    return (found[1] or found[2]).lower() if found else ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def suits(settings: Settings) -> bool:
    """Whether a first start with these settings, on stores of its own, is one to fill: never on somebody's server."""
    own = not settings.valkey_url and not settings.database_url and not (settings.data_dir / "plaza.sqlite").exists()
    return own and is_open(settings)


async def ask_for(valkey: Valkey, now_ms: int) -> bool:
    """Note that a community is wanted, if there is nothing yet."""
    if await valkey.call("DBSIZE"):
        return False
    await valkey.call("HSET", DEMO(), "state", WANTED, "since", now_ms, "on", 1)
    return True
