"""The desk over HTTP, for admins."""

from __future__ import annotations

from plaza.core.auth import Actor
from plaza.core.health_history import HealthHistory, HealthHistoryPage, HistorySpan
from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.routes import Routes
from plaza.core.paging import Page
from plaza.desk.directory import UserDirectory
from plaza.desk.growth import Growth
from plaza.desk.model import (
    GrowthFigures,
    GrowthQuery,
    ListedName,
    ListedUser,
    ListedUsersPage,
    ListedUsersQuery,
    NewNote,
    NoteId,
    UserNote,
    UserNotesPage,
)
from plaza.desk.notes import UserNotes

route = Routes("desk", prefix="/admin", about="For operators: all users, notes about them, and growth.")


@route.get("/users", access=ADMIN)
async def list_all_users(query: ListedUsersQuery, directory: UserDirectory) -> ListedUsersPage:
    """List all users, newest first; with `q`, those whose name begins so, by name."""
    return await directory.page(query)


@route.get("/users/{username}", access=ADMIN)
async def get_listed_user(username: ListedName, directory: UserDirectory) -> ListedUser:
    """Get the role and the state of a user."""
    return await directory.read(username)


@route.get("/users/{username}/notes", access=ADMIN)
async def list_user_notes(username: ListedName, page: Page, notes: UserNotes) -> UserNotesPage:
    """List the notes of operators about a user, newest first."""
    return await notes.page(username, page)


@route.post(
    "/users/{username}/notes",
    access=ADMIN,
    status=201,
    idempotent=True,
    example={"text": "Asked for the return address by mail."},
)
async def create_user_note(
    actor: Actor, username: ListedName, body: NewNote, request: Request, notes: UserNotes
) -> UserNote:
    """Add a note about a user. Only operators see it, and the user in an export of their data."""
    return await notes.create(actor, username, body.text, request.row_operation)


@route.delete("/users/{username}/notes/{id}", access=ADMIN, status=204)
async def delete_user_note(username: ListedName, id: NoteId, notes: UserNotes) -> None:
    """Delete a note about a user."""
    await notes.delete(username, id)


@route.get("/growth", access=ADMIN)
async def get_growth(query: GrowthQuery, growth: Growth) -> GrowthFigures:
    """Get new users, active users, posts, votes and orders by day."""
    return await growth.figures(query.days)


@route.get("/health", access=ADMIN)
async def get_health_history(history: HealthHistory, span: HistorySpan = "hour") -> HealthHistoryPage:
    """Get requests and response times of all processes: an hour in ten seconds, or a week in five minutes."""
    return await history.page(span)
