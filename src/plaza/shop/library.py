"""The Lua library of the shop: one file per noun, in the order in which they build on each other."""

from __future__ import annotations

from plaza.core.functions import Library
from plaza.shop.keys import CATALOGUE

_NOUNS = ("rows", "sessions", "carts", "pages", "repair")

LIBRARY = Library.read("shop", CATALOGUE, "plaza.shop.lua", *_NOUNS)
