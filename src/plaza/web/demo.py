"""What the pages need to know of the demo: whether it is on, and as whom one may look around without a password."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class DemoAccount(NamedTuple):
    username: str
    display_name: str
    role: str


class DemoAccounts(Protocol):
    """Who knows the demo's accounts. None means that there is no demo."""

    async def accounts(self) -> list[DemoAccount]:
        """Accounts that anybody may use, in the order they are shown."""


class NoDemo:
    async def accounts(self) -> list[DemoAccount]:
        return []
