"""Pages of the links in mails: a forgotten password, a new password, a verified address.

Opening a link shows a form and uses nothing up: mail programs open links before their users do.
"""

from __future__ import annotations

from typing import Any, Final

from plaza.accounts.email_links import Emails
from plaza.accounts.model import ResetConfirmation, ResetRequest, VerifyEmail
from plaza.core.errors import BadRequest, Conflict, Invalid, PlazaError, TooFast
from plaza.core.http.access import PUBLIC
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.web import forms
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes

page = PageRoutes()

MAX_TOKEN_CHARACTERS: Final = 100


async def _page(request: Request, site: PageResponses, template: str, **context: Any) -> Response[str]:
    visitor = await site.visitors.for_sign_in(request)
    values: dict[str, Any] = {"problem": "", "is_done": False, **context}
    return site.page(request, visitor, template, return_path="/app/sign-in", **values)


@page.get("/forgot-password", access=PUBLIC)
async def forgot_password(request: Request, site: PageResponses) -> Response[str]:
    """Show the form to request a password reset."""
    return await _page(request, site, "forgot-password.html", email="")


@page.post("/forgot-password", access=PUBLIC)
async def request_reset(request: Request, body: bytes, site: PageResponses, emails: Emails) -> Response[str]:
    """Send a reset link. The page is the same whether the address has an account or not."""
    email = forms.parse_form(body).get("email", "")
    try:
        wanted = forms.convert_fields({"email": email}, ResetRequest)
        await emails.request_reset(wanted.email, request.address)
    except (Invalid, TooFast) as error:
        context = {"status": error.status, "problem": error.detail, "email": email}
        return await _page(request, site, "forgot-password.html", **context)
    return await _page(request, site, "forgot-password.html", is_done=True, email=email)


@page.get("/reset-password", access=PUBLIC)
async def reset_password_page(request: Request, site: PageResponses, token: str = "") -> Response[str]:
    """Show the form for a new password, from the link of a mail."""
    return await _page(request, site, "reset-password.html", token=token[:MAX_TOKEN_CHARACTERS])


@page.post("/reset-password", access=PUBLIC)
async def reset_password(request: Request, body: bytes, site: PageResponses, emails: Emails) -> Response[str]:
    """Set a new password by a link. Every session of the account ends."""
    fields = forms.parse_form(body)
    try:
        given = {name: fields.get(name, "") for name in ("token", "password")}
        new = forms.convert_fields(given, ResetConfirmation)
        await emails.reset(new.token, new.password, request.address)
    except (BadRequest, Invalid) as error:
        context = {"status": error.status, "problem": _reason(error), "token": fields.get("token", "")}
        return await _page(request, site, "reset-password.html", **context)
    return await _page(request, site, "reset-password.html", is_done=True, token="")


@page.get("/verify-email", access=PUBLIC)
async def verify_email_page(request: Request, site: PageResponses, token: str = "") -> Response[str]:
    """Show the form to verify an address, from the link of a mail."""
    return await _page(request, site, "verify-email.html", token=token[:MAX_TOKEN_CHARACTERS], email="")


@page.post("/verify-email", access=PUBLIC)
async def verify_email(request: Request, body: bytes, site: PageResponses, emails: Emails) -> Response[str]:
    """Verify an address by a link."""
    token = forms.parse_form(body).get("token", "")
    try:
        link = await emails.verify(forms.convert_fields({"token": token}, VerifyEmail).token, request.address)
    except (BadRequest, Conflict, Invalid) as error:
        context = {"status": error.status, "problem": _reason(error), "token": "", "email": ""}
        return await _page(request, site, "verify-email.html", **context)
    return await _page(request, site, "verify-email.html", is_done=True, token="", email=link.address)


def _reason(error: PlazaError) -> str:
    """What the page says: a link's token is not something that users type, so its form is no reason to name it."""
    if error.extra.get("field") == "token":
        return "This link is invalid, was used already or has expired."
    return f"{error.title}." if error.detail == error.title else error.detail
