"""Account settings: profile, sessions, password, data export and account deletion."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from markupsafe import Markup
from msgspec import json

from plaza.core.errors import Forbidden, Invalid, NotFound, PlazaError, TooFast
from plaza.core.http.access import USER
from plaza.core.http.request import Request
from plaza.core.http.responses import JSON, Response
from plaza.core.paging import Page
from plaza.sessions.cookies import clear_cookie, token_from
from plaza.sessions.model import Session, SessionId
from plaza.sessions.service import Sessions
from plaza.sessions.sign_in import SignIn
from plaza.social.account_deletion import AccountDeletion
from plaza.social.account_export import AccountExport
from plaza.social.accounts import Accounts
from plaza.social.credentials import Credentials
from plaza.social.model import PasswordChange, Profile
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
# More than a user can look through.
MAX_SESSIONS_SHOWN: Final = 50


def settings_tabs(current: str) -> Markup:
    """The tabs of the settings pages."""
    names = ("Profile", "Account", "Blocked", "Muted")
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
async def account(request: Request, site: PageResponses, sessions: Sessions, changed: str = "") -> Response[str]:
    """Show your account: sessions, password, data export and deletion."""
    return await _account_page(request, site, sessions, password_changed=changed == "password")


async def _account_page(request: Request, site: PageResponses, sessions: Sessions, **context: Any) -> Response[str]:
    visitor = await site.visitors.from_request(request)
    visitor.require_user()
    values = {"password_changed": False, "password_problem": "", "deletion_problem": "", **context}
    values |= {"tabs": settings_tabs("Account"), "sessions": await _own_sessions(request, sessions)}
    return site.page(request, visitor, "account.html", return_path="/app/account", **values)


async def _own_sessions(request: Request, sessions: Sessions) -> list[Session]:
    visit = await sessions.visit(token_from(request))
    return (await sessions.page(visit, Page(limit=MAX_SESSIONS_SHOWN))).sessions


@page.post("/account/sessions/{id}/end", access=USER)
async def end_session(
    request: Request, body: bytes, site: PageResponses, id: SessionId, sessions: Sessions
) -> Response[str]:
    """End another of your sessions."""
    visitor = await site.visitors.from_request(request)
    visitor.require_user()
    visit = await sessions.visit(token_from(request))
    with suppress(NotFound):  # ended by an earlier click
        await sessions.end_own(visit, id)
    context: dict[str, Any] = {"message": "Session signed out.", "sessions": await _own_sessions(request, sessions)}
    return site.form_response(request, visitor, body, "/app/account", "sessions.html", **context)


@page.post("/account/password", access=USER, limit=None)  # attempts are limited per username
async def change_password(
    request: Request, body: bytes, site: PageResponses, accounts: Accounts, sessions: Sessions, user_sign_in: SignIn
) -> Response[str]:
    """Change your password. This ends all sessions, and starts a new one in this browser."""
    visitor = await site.visitors.from_request(request)
    try:
        await accounts.change_password(visitor.require_user(), forms.read_form(body, PasswordChange), request.address)
    except (Forbidden, Invalid, TooFast) as error:
        return await _account_page(request, site, sessions, status=_status(error), password_problem=error.detail)
    visit = await user_sign_in.admit(token_from(request), visitor.name)
    renewed = await site.visitors.from_visit(request, visit)
    return Response(status=303, headers=[*renewed.cookie, ("location", "/app/account?changed=password")])


@page.get("/account/export", access=USER, media_type=JSON, limit_first=True)
async def export(request: Request, site: PageResponses, exports: AccountExport) -> Response[bytes]:
    """Download all your data."""
    visitor = await site.visitors.from_request(request)
    data = json.format(json.encode(await exports.everything(visitor.require_user(), request.address)), indent=2)
    disposition = ("content-disposition", f'attachment; filename="plaza-{visitor.name}.json"')
    return Response(data, headers=[disposition, ("cache-control", "no-store")], media_type=JSON)


@page.post("/account/leave", access=USER, limit=None)
async def delete_account(
    request: Request,
    body: bytes,
    site: PageResponses,
    credentials: Credentials,
    sessions: Sessions,
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
