"""Where a request comes from, and what sessions may store of it: a short device name, never the whole user agent.

The name is made here and not by a library: sessions need a browser and a system that their user recognizes, and nothing
that would tell two users with the same browser apart.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

from plaza.core.addresses import stored_address
from plaza.core.settings import AccountAddress

MAX_DEVICE_CHARACTERS: Final = 40
# Real user agents have 100 to 200 characters.
MAX_USER_AGENT_CHARACTERS: Final = 500

# In this order: most browsers also name the engines and browsers that they are compatible with.
_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS: Final = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)
# The first word of other programs: `python-httpx/0.28.1` is `python-httpx`.
_PROGRAM: Final = re.compile(r"[A-Za-z0-9._ -]{1,40}")


class ClientInfo(Struct, frozen=True):
    """The address of a request, and the program that sent it. `known_device` is the cookie of an earlier sign-in."""

    address: str | None = None
    user_agent: str = ""
    known_device: str = ""

    @property
    def device_name(self) -> str:
        """Return a short name of the program: `Firefox on Linux`; empty if it is unknown."""
        return _device_name(self.user_agent[:MAX_USER_AGENT_CHARACTERS])

    def stored_address(self, mode: AccountAddress) -> str:
        return stored_address(self.address, mode)


UNKNOWN_CLIENT: Final = ClientInfo()


@lru_cache(1_024)
def _device_name(user_agent: str) -> str:
    """Return the browser and the system of a user agent, or the name of another program."""
    browser = next((name for mark, name in _BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    if browser and system:
        return f"{browser} on {system}"
    program = _PROGRAM.match(user_agent)
    return browser or system or (program[0].strip()[:MAX_DEVICE_CHARACTERS] if program else "")
