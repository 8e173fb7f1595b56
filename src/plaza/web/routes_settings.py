"""One's own account: the profile, the password, where one is signed in, what is held about one, and leaving."""

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
from plaza.sessions.cookies import clear_cookie, token_of
from plaza.sessions.service import Sessions
from plaza.shop.model import Session, SessionId
from plaza.social.accounts import Accounts
from plaza.social.credentials import Credentials
from plaza.social.deletion import AccountDeletion
from plaza.social.export import AccountExport
from plaza.social.model import PasswordChange, Profile
from plaza.social.users import Users
from plaza.web import forms
from plaza.web.rendering import tabs
from plaza.web.routing import PageRoutes
from plaza.web.security import HOME
from plaza.web.site import Site
from plaza.web.text_html import user_path
from plaza.web.visitors import Visitor

page = PageRoutes()

# What the form of a profile shows. An empty one takes the field away.
EDITED: Final = ("display_name", "bio", "links")
# Nobody is signed in at more places than they can look through.
MOST_SESSIONS: Final = 50


def own_tabs(on: str) -> Markup:
    """What is one's own, beside the feeds."""
    return tabs(
        "Yours", tuple((name, f"/app/{name.lower()}") for name in ("Profile", "Account", "Blocked", "Muted")), on
    )


@page.get("/profile", access=USER)
async def own_profile(request: Request, site: Site, people: Users) -> Response[str]:
    """Where one changes one's own profile."""
    who = await site.visitors.of(request)
    user = await people.get(who.person(), who.name)
    return _profile(site, request, who, user)


def _profile(site: Site, request: Request, who: Visitor, user: Any, *, status: int = 200, **said: str) -> Response[str]:
    given: dict[str, Any] = {"problem": "", "field": "", "tabs": own_tabs("Profile"), **said}
    return site.page(request, who, "profile-edit.html", status=status, user=user, here="/app/profile", **given)


@page.post("/profile", access=USER)
async def change_profile(request: Request, body: bytes, site: Site, people: Users) -> Response[str]:
    """Change one's own profile."""
    who = await site.visitors.of(request)
    given = forms.fields_of(body)
    try:
        profile = forms.convert({name: given[name] or None for name in EDITED if name in given}, Profile)
        await people.update_profile(who.person(), who.name, profile)
    except Invalid as error:
        shown = {name: given.get(name, "") for name in EDITED}
        about = {"problem": error.detail, "field": error.extra.get("field", "")}
        return _profile(site, request, who, shown, status=error.status, **about)
    return site.done(request, who, b"", user_path(who.name))


@page.get("/account", access=USER)
async def account(request: Request, site: Site, sessions: Sessions, changed: str = "") -> Response[str]:
    """The password, where one is signed in, what is held, and the way out."""
    return await _account(request, site, sessions, changed=changed == "password")


async def _account(request: Request, site: Site, sessions: Sessions, **said: Any) -> Response[str]:
    who = await site.visitors.of(request)
    who.person()
    given = {"changed": False, "password_problem": "", "leave_problem": "", "tabs": own_tabs("Account"), **said}
    own = await _sessions(request, sessions)
    return site.page(request, who, "account.html", here="/app/account", sessions=own, **given)


async def _sessions(request: Request, sessions: Sessions) -> list[Session]:
    visit, _ = await sessions.visit(token_of(request))
    return (await sessions.page(visit, Page(limit=MOST_SESSIONS))).sessions


@page.post("/account/sessions/{id}/end", access=USER)
async def end_session(request: Request, body: bytes, site: Site, id: SessionId, sessions: Sessions) -> Response[str]:
    """Sign out somewhere else."""
    who = await site.visitors.of(request)
    who.person()
    visit, _ = await sessions.visit(token_of(request))
    with suppress(NotFound):  # by a second click: then it has ended
        await sessions.end_own(visit, id)
    own = await _sessions(request, sessions)
    return site.done(request, who, body, "/app/account", "sessions.html", said="Signed out there.", sessions=own)


@page.post("/account/password", access=USER, limit=None)  # tries are counted by the name
async def change_password(
    request: Request, body: bytes, site: Site, accounts: Accounts, sessions: Sessions
) -> Response[str]:
    """Change the password. Every session ends, and this browser begins a new one."""
    who = await site.visitors.of(request)
    try:
        await accounts.change_password(who.person(), forms.read(body, PasswordChange), request.address)
    except (Forbidden, Invalid, TooFast) as error:
        return await _account(request, site, sessions, status=_status(error), password_problem=error.detail)
    visit = await sessions.admit(token_of(request), who.name)
    new = await site.visitors.behind(request, visit)
    return Response(status=303, headers=[*new.cookie, ("location", "/app/account?changed=password")])


@page.get("/account/export", access=USER, media_type=JSON)
async def export(request: Request, site: Site, exports: AccountExport) -> Response[bytes]:
    """Everything held about one, as a file."""
    who = await site.visitors.of(request)
    held = json.format(json.encode(await exports.everything(who.person())), indent=2)
    named = ("content-disposition", f'attachment; filename="plaza-{who.name}.json"')
    return Response(held, headers=[named, ("cache-control", "no-store")], media_type=JSON)


@page.post("/account/leave", access=USER, limit=None)
async def leave(
    request: Request, body: bytes, site: Site, credentials: Credentials, sessions: Sessions, deletion: AccountDeletion
) -> Response[str]:
    """Delete the account, by its password."""
    who = await site.visitors.of(request)
    me = who.person()
    try:
        if await credentials.check(me.name, forms.fields_of(body).get("password", ""), request.address) is None:
            raise Forbidden("The password is wrong.")
    except (Forbidden, TooFast) as error:
        return await _account(request, site, sessions, status=_status(error), leave_problem=error.detail)
    await deletion.delete(me, me.name)
    return Response(status=303, headers=[clear_cookie(request), ("location", HOME)])


def _status(error: PlazaError) -> int:
    # The page is theirs; only what they typed is wrong.
    return 422 if error.status == 403 else error.status
