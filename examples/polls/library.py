"""The Lua library of polls."""

from __future__ import annotations

from examples.polls.keys import CATALOGUE
from plaza.core.functions import Library

LIBRARY = Library.read("polls", CATALOGUE, "examples.polls.lua", "polls")
