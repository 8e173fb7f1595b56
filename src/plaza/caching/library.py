"""The Lua library of the caches, one file per noun."""

from __future__ import annotations

from plaza.caching.keys import CATALOGUE
from plaza.core.functions import Library

LIBRARY = Library.read("caching", CATALOGUE, "plaza.caching.lua", "row_cache", "page_cache", "item_views", "repair")
