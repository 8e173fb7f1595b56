"""Signing up, in and out."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from plaza.core.errors import Conflict, Invalid, NotFound, PlazaError, TooFast, Unauthenticated
from plaza.core.http.access import PUBLIC
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.sessions.cookies import clear_cookie, token_of
from plaza.sessions.service import Sessions, Visit
from plaza.shop.model import Login
from plaza.social.accounts import Accounts
from plaza.social.model import Registration, Username, UsernameTaken
from plaza.web import assets, avatars, forms, sign_in
from plaza.web.drafts import carried_by
from plaza.web.routing import PageRoutes
from plaza.web.security import HOME, local
from plaza.web.site import Site

page = PageRoutes()


@page.get("/assets/{version}/{name}", access=PUBLIC, limit=None)
async def asset(version: str, name: str) -> Response[bytes]:
    """A style or a script of the pages."""
    return assets.asset(version, name)


@page.get("/avatars/{username}", access=PUBLIC, limit=None, media_type="image/svg+xml")
async def avatar(username: Username) -> Response[str]:
    """The tile that stands for a person, as a file."""
    return Response(avatars.file(username), headers=[("cache-control", "public, max-age=86400")])


@page.get("/sign-in", access=PUBLIC)
async def sign_in_page(request: Request, site: Site, next: str = HOME) -> Response[str]:
    """Where people sign in; with the demo on, also its accounts."""
    return await sign_in.sign_in_page(request, site, local(next))


@page.post("/sign-in", access=PUBLIC, limit=None)  # tries are counted by the name that is tried
async def submit_sign_in(request: Request, body: bytes, site: Site, sessions: Sessions) -> Response[str]:
    """Sign in by name and password."""
    fields = forms.fields_of(body)
    next, draft = local(fields.get(forms.NEXT)), carried_by(fields)
    name, password = fields.get("username", ""), fields.get("password", "")
    try:
        login = forms.convert({"username": name, "password": password}, Login)
        visit = await sessions.login(token_of(request), login, request.address)
    except (Unauthenticated, Invalid, TooFast) as error:
        said = {"username": name, "problem": error.detail}
        return await sign_in.sign_in_page(request, site, next, status=_status(error), draft=draft, **said)
    return sign_in.let_in(request, site, await site.visitors.behind(request, visit), next, draft)


@page.post("/sign-in/as", access=PUBLIC)
async def switch(request: Request, body: bytes, site: Site, sessions: Sessions) -> Response[str]:
    """Look around as one of the demo's accounts. Nobody else's account opens so."""
    fields = forms.fields_of(body)
    name = fields.get("as", "")
    if name not in {account.username for account in await site.demo.accounts(sign_in.host_of(request))}:
        raise NotFound("The demo has no such account.")
    who = await site.visitors.behind(request, await sessions.admit(token_of(request), name))
    return sign_in.let_in(request, site, who, local(fields.get(forms.NEXT)), carried_by(fields))


@page.get("/sign-up", access=PUBLIC)
async def sign_up_page(request: Request, site: Site, next: str = HOME) -> Response[str]:
    """Where people make an account."""
    return await _sign_up(request, site, local(next))


async def _sign_up(request: Request, site: Site, next: str, *, status: int = 200, **said: Any) -> Response[str]:
    who = await site.visitors.at_the_door(request)
    given = {"username": "", "display_name": "", "problem": "", "field": "", **said}
    return site.page(request, who, "sign-up.html", status=status, here=next, to=next, **given)


@page.post("/sign-up", access=PUBLIC, limit=None)
async def sign_up(request: Request, body: bytes, site: Site, sessions: Sessions, accounts: Accounts) -> Response[str]:
    """Make an account and sign in."""
    fields = forms.fields_of(body)
    next = local(fields.get(forms.NEXT))
    try:
        visit = await _joined(request, forms.read(body, Registration), sessions, accounts)
    except (Conflict, Invalid, TooFast) as error:
        given = {name: fields.get(name, "") for name in ("username", "display_name")}
        field = error.extra.get("field", "username" if isinstance(error, Conflict) else "")
        return await _sign_up(request, site, next, status=_status(error), problem=error.detail, field=field, **given)
    return sign_in.let_in(request, site, await site.visitors.behind(request, visit), next, None)


async def _joined(request: Request, given: Registration, sessions: Sessions, accounts: Accounts) -> Visit:
    """A session of a new account. Who clicked twice has it already, and is signed in to it by the same password."""
    try:
        new = await accounts.register(given, request.address)
    except UsernameTaken:
        with suppress(Unauthenticated, TooFast):
            return await sessions.login(token_of(request), Login(given.username, given.password), request.address)
        raise
    return await sessions.admit(token_of(request), new.user.username)


@page.post("/sign-out", access=PUBLIC, limit=None)  # whoever did too much may go
async def sign_out(request: Request, body: bytes, site: Site, sessions: Sessions) -> Response[str]:
    """End the session."""
    await sessions.logout(token_of(request))
    return Response(status=303, headers=[clear_cookie(request), ("location", HOME)])


def _status(error: PlazaError) -> int:
    # A browser that gets 401 without a challenge is at a loss; the form says what is wrong.
    return 422 if error.status == 401 else error.status
