"""The Lua library of challenges."""

from __future__ import annotations

from plaza.challenges.keys import CATALOGUE
from plaza.core.functions import Library

LIBRARY = Library.read("challenges", CATALOGUE, "plaza.challenges.lua", "projection")
