"""The keys of notes. Names, access rules, documentation and most of the audit follow from this declaration."""

from __future__ import annotations

from plaza.core.keyspace import Catalogue, Key, KeyAccess
from plaza.core.tokens import USERNAME

NOTES = Key(
    "notes:<username>",
    "hash",
    "A user's entries.",
    contains="id → text",
    owner="username",
    element_regex="<notes_entry>",
    read=KeyAccess.SELF,
)

CATALOGUE = Catalogue.from_module("notes", globals(), {"notes_entry": "[0-9a-f]{16}", "username": USERNAME})
