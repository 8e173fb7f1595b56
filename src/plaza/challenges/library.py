"""The Lua library of challenges."""

from __future__ import annotations

from plaza.challenges.keys import CATALOGUE, TICKETS_SECONDS
from plaza.core.functions import Library

LIBRARY = Library.read(
    "challenges", CATALOGUE, "plaza.challenges.lua", "projection", constants={"TICKETS_SECONDS": TICKETS_SECONDS}
)
