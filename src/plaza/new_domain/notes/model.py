"""The types of notes. Requests and responses are checked against them, and OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

# So that one user cannot fill the memory.
MAX_ENTRIES: Final = 100

NotesEntryId = Annotated[str, Meta(pattern="^[0-9a-f]{16}$", examples=["0123456789abcdef"])]


class NewNotesEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """An entry to add."""

    text: Annotated[str, Meta(min_length=1, max_length=500)]


class NotesEntry(Struct, frozen=True):
    id: str
    text: str


class NotesPage(Struct, frozen=True):
    notes: list[NotesEntry]
