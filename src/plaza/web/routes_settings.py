"""Account settings: profile, sessions, password, data export and account deletion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

from markupsafe import Markup

from plaza.accounts.model import AccountSessionId
from plaza.accounts.sessions import AccountSessions
from plaza.core.errors import Forbidden, Invalid, NotFound, PlazaError, TooFast
from plaza.core.http.access import USER
from plaza.core.http.request import Request
from plaza.core.http.responses import JSON, ZIP, Response
from plaza.sessions.cookies import clear_cookie, token_from
from plaza.sessions.sign_in import SignIn
from plaza.social.account_deletion import AccountDeletion
from plaza.social.account_export import AccountExport
from plaza.social.credentials import Credentials
from plaza.social.model import PasswordChange, Profile
from plaza.social.password_changes import PasswordChanges
from plaza.social.users import Users
from plaza.web import forms
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.rendering import tabs
from plaza.web.security import HOME
from plaza.web.text_html import user_path
from plaza.web.visitors import Visitor

page = PageRoutes()

# The fields of the profile form. An empty field is removed from the profile.
PROFILE_FIELDS: Final[tuple[str, ...]] = ("display_name", "bio", "links")


def settings_tabs(current: str) -> Markup:
    """The tabs of the settings pages."""
    names = ("Profile", "Account", "Security", "Blocked", "Muted")
    return tabs("Settings", tuple((name, f"/app/{name.lower()}") for name in names), current)


@page.get("/profile", access=USER)
async def own_profile(request: Request, site: PageResponses, users: Users) -> Response[str]:
    """Show the form to edit your profile."""
    visitor = await site.visitors.from_request(request)
    user = await users.get(visitor.require_user(), visitor.name)
    return _profile_page(site, request, visitor, user)


def _profile_page(
    site: PageResponses, request: Request, visitor: Visitor, user: Any, *, status: int = 200, **context: str
) -> Response[str]:
    values: dict[str, Any] = {"user": user, "problem": "", "field": "", "tabs": settings_tabs("Profile"), **context}
    return site.page(request, visitor, "profile-edit.html", status=status, return_path="/app/profile", **values)


@page.post("/profile", access=USER)
async def change_profile(request: Request, body: bytes, site: PageResponses, users: Users) -> Response[str]:
    """Edit your profile."""
    visitor = await site.visitors.from_request(request)
    fields = forms.parse_form(body)
    try:
        changes = {name: fields[name] or None for name in PROFILE_FIELDS if name in fields}
        await users.update_profile(visitor.require_user(), visitor.name, forms.convert_fields(changes, Profile))
    except Invalid as error:
        values = {name: fields.get(name, "") for name in PROFILE_FIELDS}
        problem = {"problem": error.detail, "field": error.extra.get("field", "")}
        return _profile_page(site, request, visitor, values, status=error.status, **problem)
    return site.form_response(request, visitor, b"", user_path(visitor.name))


@page.get("/account", access=USER)
async def account(request: Request, site: PageResponses, sessions: AccountSessions, changed: str = "") -> Response[str]:
    """Show your account: sessions, password, data export and deletion."""
    return await _account_page(request, site, sessions, password_changed=changed == "password")


async def _account_page(
    request: Request, site: PageResponses, sessions: AccountSessions, **context: Any
) -> Response[str]:
    visitor = await site.visitors.from_request(request)
    own = await sessions.list_all(visitor.require_user())
    values = {"password_changed": False, "password_problem": "", "deletion_problem": "", **context}
    values |= {"tabs": settings_tabs("Account"), "sessions": own}
    return site.page(request, visitor, "account.html", return_path="/app/account", **values)


@page.post("/account/sessions/{id}/end", access=USER)
async def end_session(
    request: Request, body: bytes, site: PageResponses, id: AccountSessionId, sessions: AccountSessions
) -> Response[str]:
    """End another of your sessions."""
    visitor = await site.visitors.from_request(request)
    actor = visitor.require_user()
    with suppress(NotFound):  # ended by an earlier click
        await sessions.end(actor, id, request.address)
    context: dict[str, Any] = {"message": "Session signed out.", "sessions": await sessions.list_all(actor)}
    return site.form_response(request, visitor, body, "/app/account", "sessions.html", **context)


@page.post("/account/sessions/end-others", access=USER)
async def end_other_sessions(
    request: Request, body: bytes, site: PageResponses, sessions: AccountSessions
) -> Response[str]:
    """End all your other sessions."""
    visitor = await site.visitors.from_request(request)
    actor = visitor.require_user()
    await sessions.end_others(actor, request.address)
    context: dict[str, Any] = {"message": "All other sessions signed out.", "sessions": await sessions.list_all(actor)}
    return site.form_response(request, visitor, body, "/app/account", "sessions.html", **context)


@page.post("/account/password", access=USER, limit=None)  # attempts are limited per username
async def change_password(
    request: Request,
    body: bytes,
    site: PageResponses,
    passwords: PasswordChanges,
    sessions: AccountSessions,
    user_sign_in: SignIn,
) -> Response[str]:
    """Change your password. This ends all sessions, and starts a new one in this browser."""
    visitor = await site.visitors.from_request(request)
    try:
        change = forms.read_form(body, PasswordChange)
        await passwords.change_in_browser(visitor.require_user(), change, request.client)
    except (Forbidden, Invalid, TooFast) as error:
        return await _account_page(request, site, sessions, status=_status(error), password_problem=error.detail)
    visit = await user_sign_in.admit(token_from(request), visitor.name, request.client)
    renewed = await site.visitors.from_visit(request, visit)
    return Response(status=303, headers=[*renewed.cookie, ("location", "/app/account?changed=password")])


@page.get("/account/export", access=USER, media_type=JSON, limit="export", limit_first=True)
async def export(request: Request, site: PageResponses, exports: AccountExport) -> Response[bytes]:
    """Download all your data."""
    visitor = await site.visitors.from_request(request)
    data = await exports.everything(visitor.require_user(), request.address)
    return _download(data, f"plaza-{visitor.name}.json", JSON)


@page.get("/account/export.zip", access=USER, media_type=ZIP, limit="export", limit_first=True)
async def export_archive(request: Request, site: PageResponses, exports: AccountExport) -> Response[bytes]:
    """Download all your data with your pictures, as a ZIP archive."""
    visitor = await site.visitors.from_request(request)
    archive = await exports.archive(visitor.require_user(), request.address)
    return _download(archive, f"plaza-{visitor.name}.zip", ZIP)


def _download(chunks: AsyncIterator[bytes], filename: str, media_type: str) -> Response[bytes]:
    disposition = ("content-disposition", f'attachment; filename="{filename}"')
    return Response(chunks, headers=[disposition, ("cache-control", "no-store")], media_type=media_type)


@page.post("/account/leave", access=USER, limit=None)
async def delete_account(
    request: Request,
    body: bytes,
    site: PageResponses,
    credentials: Credentials,
    sessions: AccountSessions,
    deletion: AccountDeletion,
) -> Response[str]:
    """Delete your account, with its password."""
    visitor = await site.visitors.from_request(request)
    actor = visitor.require_user()
    try:
        if not await credentials.has_password(actor.name, forms.parse_form(body).get("password", ""), request.address):
            raise Forbidden("The password is wrong.")
    except (Forbidden, TooFast) as error:
        return await _account_page(request, site, sessions, status=_status(error), deletion_problem=error.detail)
    await deletion.delete(actor, actor.name, request.address)
    return Response(status=303, headers=[clear_cookie(request), ("location", HOME)])


def _status(error: PlazaError) -> int:
    # The user may see the page; only the submitted values are wrong.
    return 422 if error.status == 403 else error.status
