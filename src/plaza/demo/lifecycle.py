"""The demo of a running server: its state, its worker loop and its accounts without passwords.

A first `plaza serve` that finds no data requests the demo in Valkey. One worker loads it; if that worker dies, another
continues. Then one worker at a time runs a simulation, one step every few seconds.

Demo accounts have no password, except for the admin (`offered_accounts.py`). They can be used only from the sign-in
page, and only while the server listens on a loopback address and the request is for such an address, or if an operator
has set `PLAZA_DEMO=on`. When the demo is switched off, their sessions end.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from plaza.core.domain import Core
from plaza.core.errors import NotFound
from plaza.core.leases import LeaseHeld, Leases
from plaza.core.settings import Settings
from plaza.core.timers import Timer, Timers
from plaza.core.valkey import Valkey
from plaza.demo.keys import DEMO
from plaza.web.demo_accounts import DemoAccount

if TYPE_CHECKING:  # `parts.py` imports them
    from plaza.demo.loader import DemoLoader
    from plaza.demo.offered_accounts import OfferedAccounts
    from plaza.demo.simulation import DemoSimulation

log = structlog.get_logger("plaza.demo")

# How often the simulation runs a step.
STEP_SECONDS: Final = 3.0
# How often a worker checks whether there is a demo. A check is one read.
CHECK_SECONDS: Final = 15.0
# The server should respond before the demo is loaded.
START_DELAY_SECONDS: Final = 0.3

# Short, because a user is waiting: a start after a kill must not wait long for the dead process's lease.
LOAD_LEASE_SECONDS: Final = 3.0

WANTED, LOADED = "wanted", "loaded"


class DemoState(Struct, frozen=True):
    """The state of the demo."""

    state: str
    since_ms: int
    on: bool

    @property
    def loaded(self) -> bool:
        return self.state == LOADED


class DemoParts(Struct, frozen=True):
    """What a running demo needs."""

    loader: DemoLoader
    simulation: DemoSimulation
    offered: OfferedAccounts


class Demo:
    """The demo, for the pages, the worker and the command line. Its parts are built when they are first needed."""

    def __init__(self, core: Core, build_parts: Callable[[], DemoParts]) -> None:
        self._valkey = core.valkey
        self._build_parts = build_parts
        self._prepared: bool | None = None  # the state of the switch for which this process has prepared the accounts
        self._settings = core.settings
        self._leases = Leases(core.functions, LOAD_LEASE_SECONDS)
        self._timers = Timers(core.functions, Leases(core.functions), "demo")
        self.timers = ["demo.simulate"]
        self._timer = Timer("demo.simulate", STEP_SECONDS, lambda _: self.parts.simulation.step(), timeout_seconds=60)

    @cached_property
    def parts(self) -> DemoParts:
        return self._build_parts()

    async def state(self) -> DemoState | None:
        """Return the state; None if there is no demo. One round trip."""
        state, since, on = await self._valkey.call("HMGET", DEMO(), "state", "since", "on")
        return None if state is None else DemoState(state, int(since), on == "1")

    async def switch(self, on: bool) -> DemoState:
        """Turn the simulation and the accounts on or off, at once and for every process. Off, their sessions end."""
        found = await self.state()
        if found is None:
            raise NotFound("This server has no demo.")
        await self._valkey.call("HSET", DEMO(), "on", int(on))
        switched = replace(found, on=on)
        if not on or is_open(self._settings):  # else the server's worker opens them: its settings may differ
            await self._prepare(switched)
        return switched

    async def is_on(self) -> bool | None:
        """Whether the demo is on; None if there is none, or the setting turns it off."""
        found = await self.state()
        return None if found is None or self._settings.demo == "off" else found.on

    async def accounts(self, host: str) -> list[DemoAccount]:
        """Return the accounts that a request for this host may use, in display order. Empty while the demo is off.

        Another site's DNS name can point to this machine (DNS rebinding), and a proxy on it forwards foreign requests.
        Both have another name in the `Host` header.
        """
        if not is_open(self._settings) or (self._settings.demo == "auto" and not _is_loopback(_host_name(host))):
            return []
        found = await self.state()
        return [] if found is None or not found.on else await self.parts.offered.without_password(found.since_ms)

    async def turn(self) -> float:
        """Load the demo or run one simulation step, if due. Returns the seconds until the next call."""
        found = await self.state()
        if found is None:
            return CHECK_SECONDS
        if found.loaded and found.on is not self._prepared:
            await self._prepare(found)
        if self._settings.demo == "off":
            return CHECK_SECONDS
        if not found.loaded:
            await asyncio.sleep(START_DELAY_SECONDS)
            return await self._load(found)
        if not found.on:
            return CHECK_SECONDS
        return await self._timers.run_if_due(self._timer)

    async def _prepare(self, found: DemoState) -> None:
        """Open the accounts if the demo is on and the settings of this process allow them, else close them."""
        if found.on and is_open(self._settings):
            await self.parts.offered.open(found.since_ms)
        else:
            await self.parts.offered.close(found.since_ms)
        self._prepared = found.on

    async def _load(self, found: DemoState) -> float:
        try:
            async with self._leases.hold("demo.load"):
                result = await self.parts.loader.load_community(found.since_ms)
                await self._prepare(found)
                await self._valkey.call("HSET", DEMO(), "state", LOADED)
        except LeaseHeld:
            return 0.5
        log.info("demo_loaded", records=result.records)
        return 0.0


def is_open(settings: Settings) -> bool:
    """Whether demo accounts may be used: if only this machine can connect, or if the setting allows it."""
    if settings.demo == "auto":
        return _is_loopback(settings.host) and not settings.trusted_proxies
    return settings.demo == "on"


def _host_name(host: str) -> str:
    """Return the name or address in a `Host` header, without port and IPv6 brackets; empty if it is not valid."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/@]+))(?::[0-9]+)?", host)
    return (found[1] or found[2]).lower() if found else ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def may_load_demo(settings: Settings) -> bool:
    """Whether a first start may load the demo: only with its own stores, never on a public server."""
    own = not settings.valkey_url and not settings.database_url and not (settings.data_dir / "plaza.sqlite").exists()
    return own and is_open(settings)


async def request_demo(valkey: Valkey, now_ms: int) -> bool:
    """Request the demo if Valkey is empty. Returns whether it was requested."""
    if await valkey.call("DBSIZE"):
        return False
    await valkey.call("HSET", DEMO(), "state", WANTED, "since", now_ms, "on", 1)
    return True
