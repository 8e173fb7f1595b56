"""The desk has no Lua: its one key needs single commands only."""

from __future__ import annotations

from plaza.core.functions import Library
from plaza.desk.keys import CATALOGUE

LIBRARY = Library("desk", CATALOGUE, "")
