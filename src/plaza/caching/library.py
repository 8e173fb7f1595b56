"""The Lua library of the caches, one file per noun."""

from __future__ import annotations

from typing import Final

from plaza.caching.keys import CATALOGUE
from plaza.core.functions import Library

# How long a row that is not scheduled is fresh.
BRIEF_SECONDS: Final = 5.0

LIBRARY = Library.read(
    "caching",
    CATALOGUE,
    "plaza.caching.lua",
    "row_cache",
    "page_cache",
    "item_views",
    "repair",
    constants={"BRIEF_MS": round(BRIEF_SECONDS * 1000)},
)
