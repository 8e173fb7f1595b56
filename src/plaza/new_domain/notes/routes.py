"""The HTTP routes of notes."""

from __future__ import annotations

from plaza.core.auth import Actor
from plaza.core.errors import Conflict
from plaza.core.http.access import USER
from plaza.core.http.request import Request
from plaza.core.http.routes import Routes
from plaza.new_domain.notes.model import NewNotesEntry, NotesEntry, NotesEntryId, NotesPage
from plaza.new_domain.notes.service import Notes

route = Routes("notes", about="A list of entries for each user.")


@route.post("/notes", access=USER, status=201, idempotent=True, raises=[Conflict], example={"text": "Buy milk"})
async def add_notes_entry(request: Request, actor: Actor, body: NewNotesEntry, notes: Notes) -> NotesEntry:
    """Add an entry to the caller's list."""
    return await notes.add(actor, body, request.operation)


@route.get("/notes", access=USER)
async def list_notes(actor: Actor, notes: Notes) -> NotesPage:
    """List the caller's entries."""
    return NotesPage(await notes.list(actor))


@route.delete("/notes/{id}", access=USER)
async def remove_notes_entry(actor: Actor, id: NotesEntryId, notes: Notes) -> None:
    """Remove one of the caller's entries."""
    await notes.remove(actor, id)
