"""Media has no Lua, because it has no keys."""

from __future__ import annotations

from plaza.core.functions import Library
from plaza.media.keys import CATALOGUE

LIBRARY = Library("media", CATALOGUE, "")
