"""Reads for a page that shows what is left while a part of Valkey does not respond."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from plaza.core.errors import Unavailable

T = TypeVar("T")


class PartialReads:
    """Reads the parts of a page. `missing` says whether one of them could not be read."""

    def __init__(self) -> None:
        self.missing = False

    async def read(self, part: Awaitable[T], otherwise: T) -> T:
        """Return a part of the page, or `otherwise` while it cannot be read."""
        try:
            return await part
        except Unavailable:
            self.missing = True
            return otherwise
