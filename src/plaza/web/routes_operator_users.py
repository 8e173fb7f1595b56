"""The operators' pages of users: find them, and everything an operator does about one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, get_args

import msgspec

from plaza.accounts.model import AccountSessionId
from plaza.accounts.sessions import AccountSessions
from plaza.core.errors import Invalid, NotFound
from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.router import encode_segment
from plaza.core.paging import Page
from plaza.core.roles import ROLES, Role
from plaza.desk.directory import UserDirectory
from plaza.desk.model import ListedState, ListedUsersQuery, NewNote, NoteId
from plaza.desk.notes import UserNotes
from plaza.social.model import Username
from plaza.social.users import Users
from plaza.web import forms
from plaza.web.operator_navigation import ask_for_suspension, confirmation, filtered_path, operator_page, quoted
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.text_html import next_page_link

page = PageRoutes()

PATH: Final = "/app/operator/users"
TAB: Final = "Users"
ROWS: Final = 50
NOTES_SHOWN: Final = 50

# What a role may do, for the page that asks before it changes.
_RIGHTS: Final = {
    "user": "A user writes posts, comments and orders like everyone.",
    "model": "A model is listed among the models, and ranked by engagement.",
    "admin": "An admin sees and changes everything here, also roles, and every other user's data.",
}


class RoleChoice(msgspec.Struct):
    """The role that an operator chose."""

    role: Role


def _path(username: str) -> str:
    return f"{PATH}/{encode_segment(username)}"


@page.get("/operator/users", access=ADMIN)
async def users(
    request: Request,
    site: PageResponses,
    directory: UserDirectory,
    q: str = "",
    role: str = "",
    state: str = "",
    cursor: str = "",
) -> Response[str]:
    """List users by the beginning of the name, role and state."""
    visitor = await site.visitors.from_request(request)
    used = {"q": q.strip()[:30], "role": role if role in ROLES else ""}
    used["state"] = state if state in get_args(ListedState) else ""
    fields = {name: value or None for name, value in used.items()} | {"q": used["q"]}
    query = forms.convert_fields({**fields, "limit": ROWS, "cursor": cursor or None}, ListedUsersQuery)
    found = await directory.page(query)
    context: dict[str, Any] = {
        "users": found.users,
        "filters": used,
        "roles": ROLES,
        "states": get_args(ListedState),
        "more": next_page_link(filtered_path(PATH, **used), found.pagination, "More users"),
    }
    return operator_page(request, site, visitor, "operator-users.html", TAB, **context)


@page.get("/operator/users/{username}", access=ADMIN)
async def user(
    request: Request,
    site: PageResponses,
    username: Username,
    directory: UserDirectory,
    users: Users,
    notes: UserNotes,
    sessions: AccountSessions,
) -> Response[str]:
    """Show a user with the sessions, the notes, and what can be done."""
    return await _user_page(request, site, username, directory, users, notes, sessions)


async def _user_page(
    request: Request,
    site: PageResponses,
    username: str,
    directory: UserDirectory,
    users: Users,
    notes: UserNotes,
    sessions: AccountSessions,
    problem: str = "",
) -> Response[str]:
    visitor = await site.visitors.from_request(request)
    context: dict[str, Any] = {
        "listed": await directory.read(username),
        "user": await users.get(None, username),
        "sessions": await sessions.list_of(username),
        "notes": (await notes.page(username, Page(limit=NOTES_SHOWN))).notes,
        "roles": ROLES,
        "path": _path(username),
        "problem": problem,
        "text": forms.parse_form(request.body).get("text", "") if problem else "",
    }
    status, template = 422 if problem else 200, "operator-user.html"
    return operator_page(request, site, visitor, template, TAB, return_path=_path(username), status=status, **context)


@page.get("/operator/users/{username}/suspend", access=ADMIN)
async def confirm_suspension(
    request: Request, site: PageResponses, username: Username, directory: UserDirectory
) -> Response[str]:
    """Show what a suspension does, before it is done."""
    await directory.read(username)
    path = _path(username)
    return await ask_for_suspension(request, site, username, action=f"{path}/suspension", back=path)


@page.post("/operator/users/{username}/suspension", access=ADMIN, logged_fields=("on",))
async def set_suspension(
    request: Request, body: bytes, site: PageResponses, username: Username, users: Users, directory: UserDirectory
) -> Response[str]:
    """Suspend a user, or lift the suspension."""
    visitor = await site.visitors.from_request(request)
    await users.suspend(visitor.require_user(), username, on=forms.is_on(body))
    await directory.refresh([username])
    return site.form_response(request, visitor, b"", _path(username))


@page.get("/operator/users/{username}/role", access=ADMIN)
async def confirm_role(
    request: Request, site: PageResponses, username: Username, directory: UserDirectory, role: Role = "user"
) -> Response[str]:
    """Show what another role does, before it is set."""
    visitor = await site.visitors.from_request(request)
    found = await directory.read(username)
    if found.role == role:
        return Response(status=303, headers=[*visitor.cookie, ("location", _path(username))])
    own: list[str] = []
    if username == visitor.name:
        own.append("This is your own account: you lose these pages at once.")
        admins = (await directory.page(ListedUsersQuery(role="admin", state="active", limit=2))).users
        if all(each.username == username for each in admins):
            own.append("No other user is an admin. The command “plaza users role” makes one.")
    return await confirmation(
        request,
        site,
        TAB,
        title=f"Make {username} {'an admin' if role == 'admin' else f'a {role}'}?",
        effects=[f"The role is {found.role} now.", _RIGHTS[role], "Tokens with the old role are void at once.", *own],
        fields={"role": role},
        button="Change the role",
        back=_path(username),
    )


@page.post("/operator/users/{username}/role", access=ADMIN, logged_fields=("role",))
async def set_role(
    request: Request, body: bytes, site: PageResponses, username: Username, users: Users, directory: UserDirectory
) -> Response[str]:
    """Change the role of a user."""
    visitor = await site.visitors.from_request(request)
    await users.set_role(visitor.require_user(), username, forms.read_form(body, RoleChoice).role)
    await directory.refresh([username])
    return site.form_response(request, visitor, b"", _path(username))


@page.get("/operator/users/{username}/sessions", access=ADMIN)
async def confirm_ending(
    request: Request, site: PageResponses, username: Username, sessions: AccountSessions, id: str = ""
) -> Response[str]:
    """Show which sessions of a user would end."""
    found = [session for session in await sessions.list_of(username) if id in ("", session.id)]
    if not found:
        raise NotFound("This user has no such session.")
    named = ", ".join(session.device or ("a program" if session.kind == "api" else "a browser") for session in found)
    return await confirmation(
        request,
        site,
        TAB,
        title=f"End {'this session' if id else f'all {len(found)} sessions'} of {username}?",
        effects=[f"Signed out at once: {named}.", "The user can sign in again."],
        fields={"id": id} if id else {},
        button="End the session" if id else "End all sessions",
        back=_path(username),
    )


@page.post("/operator/users/{username}/sessions", access=ADMIN, logged_fields=("id",))
async def end_sessions(
    request: Request, body: bytes, site: PageResponses, username: Username, sessions: AccountSessions
) -> Response[str]:
    """End one or all sessions of a user."""
    visitor = await site.visitors.from_request(request)
    id = forms.parse_form(body).get("id")
    if id:
        with suppress(NotFound):  # ended by an earlier click
            await sessions.end_of(username, forms.convert_fields({"id": id}, _ChosenSession).id)
    else:
        await sessions.end_all_of(username)
    return site.form_response(request, visitor, b"", _path(username))


class _ChosenSession(msgspec.Struct):
    id: AccountSessionId


@page.post("/operator/users/{username}/notes", access=ADMIN)
async def add_note(
    request: Request,
    body: bytes,
    site: PageResponses,
    username: Username,
    directory: UserDirectory,
    users: Users,
    notes: UserNotes,
    sessions: AccountSessions,
) -> Response[str]:
    """Add a note about a user. The same form writes one note."""
    visitor = await site.visitors.from_request(request)
    try:
        text = forms.read_form(body, NewNote).text
        await notes.create(visitor.require_user(), username, text, site.idempotency_key(request, body))
    except Invalid as error:
        return await _user_page(request, site, username, directory, users, notes, sessions, error.detail)
    return site.form_response(request, visitor, b"", _path(username))


@page.get("/operator/users/{username}/notes/{id}/delete", access=ADMIN)
async def confirm_note_deletion(
    request: Request, site: PageResponses, username: Username, id: NoteId, notes: UserNotes
) -> Response[str]:
    """Show which note would be deleted."""
    note = await notes.get(username, id)
    return await confirmation(
        request,
        site,
        TAB,
        title="Delete this note?",
        effects=[*quoted(note.text), f"The note about {username} is gone for all operators."],
        button="Delete the note",
        back=_path(username),
    )


@page.post("/operator/users/{username}/notes/{id}/delete", access=ADMIN)
async def delete_note(
    request: Request, body: bytes, site: PageResponses, username: Username, id: NoteId, notes: UserNotes
) -> Response[str]:
    """Delete a note about a user."""
    visitor = await site.visitors.from_request(request)
    with suppress(NotFound):  # deleted by an earlier click
        await notes.delete(username, id)
    return site.form_response(request, visitor, b"", _path(username))
