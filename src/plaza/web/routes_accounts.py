"""Sign-up, sign-in and sign-out; assets and avatars."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from plaza.core.domain import MfaRequired, WrongCode
from plaza.core.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound, PlazaError, TooFast, Unauthenticated
from plaza.core.http.access import PUBLIC
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.passkey_credentials import PasskeyCredential
from plaza.core.security_log import AccountLog
from plaza.sessions.cookies import clear_cookie, sign_in_client, token_from
from plaza.sessions.model import Login, Visit
from plaza.sessions.service import Sessions
from plaza.sessions.sign_in import SignIn
from plaza.social.accounts import Accounts
from plaza.social.credentials import Credentials
from plaza.social.model import Registration, Username, UsernameTaken
from plaza.web import assets, avatars, forms, sign_in
from plaza.web.drafts import carried_draft
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.security import HOME, local_path

page = PageRoutes()


@page.get("/assets/{version}/{name}", access=PUBLIC, limit=None)
async def asset(request: Request, version: str, name: str) -> Response[bytes]:
    """Get a style sheet, script or font of the pages."""
    return assets.serve_asset(version, name, request.headers.get("accept-encoding", ""))


@page.get("/avatars/{username}", access=PUBLIC, limit=None, media_type="image/svg+xml")
async def avatar(username: Username) -> Response[str]:
    """Get a user's generated avatar."""
    return Response(avatars.avatar_file(username), headers=[("cache-control", "public, max-age=86400")])


@page.get("/sign-in", access=PUBLIC)
async def sign_in_page(request: Request, site: PageResponses, next: str = HOME) -> Response[str]:
    """Show the sign-in page, with the demo's accounts if the demo is on."""
    return await sign_in.sign_in_page(request, site, local_path(next))


@page.post("/sign-in", access=PUBLIC, limit=None)  # attempts are limited per username
async def submit_sign_in(request: Request, body: bytes, site: PageResponses, user_sign_in: SignIn) -> Response[str]:
    """Sign in with username, password and, if the account has a second factor, a code."""
    fields = forms.parse_form(body)
    next_path, draft = local_path(fields.get(forms.NEXT)), carried_draft(fields)
    given = {"username": fields.get("username", ""), "password": fields.get("password", "")}
    if fields.get("code"):
        given["code"] = fields["code"]
    try:
        login = forms.convert_fields(given, Login)
        visit = await user_sign_in.login(token_from(request), login, sign_in_client(request))
    except (Unauthenticated, Invalid, TooFast) as error:
        values = {"username": given["username"], "problem": error.detail, "needs_code": "code" in given}
        if isinstance(error, MfaRequired | WrongCode):
            values |= {"problem": f"{error.title}. Enter both.", "needs_code": True}
        return await sign_in.sign_in_page(request, site, next_path, status=_status(error), draft=draft, **values)
    visitor = await site.visitors.from_visit(request, visit)
    device = user_sign_in.new_device(login.username)
    return sign_in.signed_in_response(request, site, visitor, next_path, draft, device)


@page.post("/sign-in/passkey", access=PUBLIC, limit="auth")
async def sign_in_with_passkey(
    request: Request, body: bytes, site: PageResponses, user_sign_in: SignIn, credentials: Credentials
) -> Response[str]:
    """Sign in with a passkey alone."""
    fields = forms.parse_form(body)
    next_path, draft = local_path(fields.get(forms.NEXT)), carried_draft(fields)
    try:
        credential = forms.json_field(fields, "credential", PasskeyCredential)
        user = await credentials.passkey_user(credential, request.address)
    except (Unauthenticated, Forbidden, BadRequest, Invalid) as error:
        status, problem = _status(error), f"{error.title}."
        return await sign_in.sign_in_page(request, site, next_path, status=status, draft=draft, problem=problem)
    visit = await user_sign_in.admit(token_from(request), user.name, request.client)
    visitor = await site.visitors.from_visit(request, visit)
    return sign_in.signed_in_response(request, site, visitor, next_path, draft, user_sign_in.new_device(user.name))


@page.post("/sign-in/as", access=PUBLIC)
async def sign_in_as_demo_account(
    request: Request, body: bytes, site: PageResponses, user_sign_in: SignIn, log: AccountLog
) -> Response[str]:
    """Sign in to a demo account without a password."""
    fields = forms.parse_form(body)
    name = fields.get("as", "")
    if name not in {account.username for account in await site.demo.accounts(sign_in.visited_host(request))}:
        raise NotFound("There is no such demo account.")
    visit = await user_sign_in.admit(token_from(request), name, request.client)
    visitor = await site.visitors.from_visit(request, visit)
    await log.record(name, "sign_in", request.address, detail="demo")
    next_path = local_path(fields.get(forms.NEXT))
    return sign_in.signed_in_response(request, site, visitor, next_path, carried_draft(fields))


@page.get("/sign-up", access=PUBLIC)
async def sign_up_page(request: Request, site: PageResponses, next: str = HOME) -> Response[str]:
    """Show the sign-up page."""
    return await _sign_up_page(request, site, local_path(next))


async def _sign_up_page(
    request: Request, site: PageResponses, next_path: str, *, status: int = 200, **context: Any
) -> Response[str]:
    visitor = await site.visitors.for_sign_in(request)
    values = {"username": "", "display_name": "", "problem": "", "field": "", **context}
    return site.page(
        request, visitor, "sign-up.html", status=status, return_path=next_path, next_path=next_path, **values
    )


@page.post("/sign-up", access=PUBLIC, limit=None)
async def sign_up(
    request: Request, body: bytes, site: PageResponses, user_sign_in: SignIn, accounts: Accounts
) -> Response[str]:
    """Create an account and sign in."""
    fields = forms.parse_form(body)
    next_path = local_path(fields.get(forms.NEXT))
    try:
        visit = await _register(request, forms.read_form(body, Registration), user_sign_in, accounts)
    except (Conflict, Invalid, TooFast) as error:
        values = {name: fields.get(name, "") for name in ("username", "display_name")}
        values["problem"] = error.detail
        values["field"] = error.extra.get("field", "username" if isinstance(error, Conflict) else "")
        return await _sign_up_page(request, site, next_path, status=_status(error), **values)
    visitor = await site.visitors.from_visit(request, visit)
    return sign_in.signed_in_response(request, site, visitor, next_path, None, user_sign_in.new_device(visitor.name))


async def _register(request: Request, new: Registration, user_sign_in: SignIn, accounts: Accounts) -> Visit:
    """Create an account and its session. After a double click the account exists: then the password signs in to it."""
    try:
        await accounts.create(new, request.client)
    except UsernameTaken:
        with suppress(Unauthenticated, TooFast):
            login = Login(new.username, new.password)
            return await user_sign_in.login(token_from(request), login, sign_in_client(request))
        raise
    return await user_sign_in.admit(token_from(request), new.username, request.client)


@page.post("/sign-out", access=PUBLIC, limit=None)  # also for users over their limit
async def sign_out(request: Request, body: bytes, site: PageResponses, sessions: Sessions) -> Response[str]:
    """Sign out and end the session."""
    await sessions.logout(token_from(request), request.address)
    return Response(status=303, headers=[clear_cookie(request), ("location", HOME)])


def _status(error: PlazaError) -> int:
    # Browsers expect an authentication challenge with 401. The form itself says what is wrong.
    return 422 if error.status == 401 else error.status
