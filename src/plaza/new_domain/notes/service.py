"""Adds, lists and removes the entries of a user."""

from __future__ import annotations

from plaza.core.auth import Actor
from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from plaza.new_domain.notes.keys import NOTES
from plaza.new_domain.notes.model import NewNotesEntry, NotesEntry


class Notes:
    """The entries of users."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._valkey = functions.valkey

    async def add(self, actor: Actor, new: NewNotesEntry, operation: str) -> NotesEntry:
        """Add an entry; the same operation run twice adds one. One round trip."""
        id = operation[:16]
        await self._functions.run("notes_add", [NOTES(actor.name)], id, new.text)
        return NotesEntry(id, new.text)

    async def list(self, actor: Actor) -> list[NotesEntry]:
        """List the entries of the caller. One round trip."""
        entries = await self._valkey.call("HGETALL", NOTES(actor.name))
        return [NotesEntry(id, text) for id, text in sorted(entries.items())]

    async def remove(self, actor: Actor, id: str) -> None:
        """Remove an entry. One round trip."""
        if not await self._valkey.call("HDEL", NOTES(actor.name), id):
            raise NotFound("You have no entry with this id.", id=id)
