"""The Lua library of notes."""

from __future__ import annotations

from plaza.core.functions import Library
from plaza.new_domain.notes.keys import CATALOGUE
from plaza.new_domain.notes.model import MAX_ENTRIES

LIBRARY = Library.read(
    "notes", CATALOGUE, "plaza.new_domain.notes.lua", "notes", constants={"MAX_ENTRIES": MAX_ENTRIES}
)
