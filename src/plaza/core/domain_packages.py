"""The installed packages that offer a domain, without importing them."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

GROUP: Final = "plaza.domains"


def domain_packages() -> list[EntryPoint]:
    """Return the entry points of domains."""
    return _installed(tuple(sys.path))


@cache
def _installed(path: tuple[str, ...]) -> list[EntryPoint]:
    """Return the entry points of packages in these folders. It reads a file of every installed package: 20 ms."""
    return sorted(entry_points(group=GROUP), key=lambda point: point.name)
