"""What the pages need to know of the demo: whether it is on, and as whom one may look around without a password."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class DemoAccount(NamedTuple):
    username: str
    display_name: str
    role: str


class DemoAccounts(Protocol):
    """Who knows the demo's accounts, and can switch it off. No accounts mean that there is none, or that it is off."""

    async def accounts(self, host: str) -> list[DemoAccount]:
        """Accounts that whoever asked this host may use, in the order they are shown."""

    async def is_on(self) -> bool | None:
        """Whether it is on; None if there is none."""

    async def switch(self, on: bool) -> object:
        """Turn it on or off, as an admin."""
