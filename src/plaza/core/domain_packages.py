"""The installed packages that offer a domain, without importing them."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

GROUP: Final = "plaza.domains"


def domain_packages() -> list[EntryPoint]:
    """Return the entry points of domains."""
    return _installed(tuple(sys.path))


@cache
def _installed(path: tuple[str, ...]) -> list[EntryPoint]:
    """Return the entry points of packages in these folders.

    `entry_points` reads and parses the metadata of every installed package. Looking for the group first takes a fifth.
    """
    files = (file for folder in path for file in Path(folder).glob("*-info/entry_points.txt"))
    if not any(GROUP in file.read_text() for file in files):
        return []
    return sorted(entry_points(group=GROUP), key=lambda point: point.name)
