"""What the pages need from the demo: whether it is on, and which accounts need no password."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from plaza.core.errors import NotFound


class DemoAccount(NamedTuple):
    """An account that needs no password while the demo is on."""

    username: str
    display_name: str
    role: str


class DemoAccounts(Protocol):
    """The demo's accounts and its switch."""

    async def accounts(self, host: str) -> list[DemoAccount]:
        """The accounts that visitors of this host may use, in display order; none if the demo is off."""

    async def is_on(self) -> bool | None:
        """Whether the demo is on; None if it is not installed."""

    async def switch(self, on: bool) -> object:
        """Turn the demo on or off."""


class NoDemo:
    """Where not all domains run, there is no demo (`DemoAccounts`)."""

    async def accounts(self, host: str) -> list[DemoAccount]:
        return []

    async def is_on(self) -> bool | None:
        return None

    async def switch(self, on: bool) -> object:
        raise NotFound("There is no demo here.")
