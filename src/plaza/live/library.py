"""The Lua library of live: one file per noun, in the order in which they build on each other."""

from __future__ import annotations

from plaza.core.functions import Library
from plaza.live.keys import CATALOGUE

_NOUNS = ("audience", "heartbeats", "queries", "maintenance", "repair")

LIBRARY = Library.read("live", CATALOGUE, "plaza.live.lua", *_NOUNS)
