"""How users sign in: e-mail address, one-time codes, passkeys and recovery codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import segno
from markupsafe import Markup

from plaza.accounts.email_links import Emails
from plaza.accounts.model import (
    PasskeyChange,
    PasskeyId,
    PasskeyOptions,
    TotpEnrolment,
)
from plaza.accounts.passkeys import Passkeys
from plaza.accounts.second_factor import SecondFactors
from plaza.accounts.sign_in_proof import SignInProof
from plaza.core.auth import Actor
from plaza.core.errors import PlazaError, Unavailable
from plaza.core.http.access import USER
from plaza.core.http.request import Request
from plaza.core.http.responses import JSON, Response
from plaza.core.passkey_credentials import NewPasskeyCredential
from plaza.core.security_log import AccountLog
from plaza.social.credentials import Credentials
from plaza.web import forms
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.routes_settings import settings_tabs

page = PageRoutes()

PATH: Final = "/app/security"
# What a page says after a change. The address names the message, so that a reload shows it again and no other text.
MESSAGES: Final[Mapping[str, str]] = {
    "email": "Your address is saved. Open the link in the mail that we sent to it.",
    "codes-off": "One-time codes are off.",
    "passkey": "The passkey is added.",
    "renamed": "The passkey is renamed.",
    "removed": "The passkey is removed.",
}


class SecurityPage:
    """Builds the page of a user, with a problem beside the form that caused it."""

    def __init__(self, emails: Emails, factors: SecondFactors, passkeys: Passkeys, credentials: Credentials) -> None:
        self._emails = emails
        self._factors = factors
        self._passkeys = passkeys
        self._credentials = credentials

    async def response(
        self, request: Request, site: PageResponses, *, status: int = 200, **context: Any
    ) -> Response[str]:
        """Return the page. Five round trips."""
        visitor = await site.visitors.from_request(request)
        actor = visitor.require_user()
        values: dict[str, Any] = {
            "message": "",
            "problems": {},
            "enrolment": None,
            "qr_code": "",
            "recovery_codes": (),
            "email": await self._credentials.get_email(actor.name) or "",
            "is_verified": await self._emails.is_verified(actor.name),
            "has_password": await self._credentials.has_any_password(actor.name),
            "mfa": await self._factors.status(actor.name),
            "passkeys": await self._passkeys.list_all(actor.name),
            "party": self._passkeys.relying_party,
            "needs_mfa": actor.lacks_mfa,
            "tabs": settings_tabs("Security"),
            **context,
        }
        return site.page(request, visitor, "security.html", status=status, return_path=PATH, **values)

    async def refused(
        self, request: Request, site: PageResponses, section: str, error: PlazaError, **context: Any
    ) -> Response[str]:
        """Return the page after a refused form. The user may see the page; only the submitted values are wrong."""
        if isinstance(error, Unavailable):
            raise error
        status = 422 if error.status in (401, 403) else error.status
        return await self.response(request, site, status=status, problems={section: error.detail}, **context)


def _changed(message: str) -> Response[str]:
    return Response(status=303, headers=[("location", f"{PATH}?changed={message}")])


async def _user(request: Request, site: PageResponses) -> Actor:
    return (await site.visitors.from_request(request)).require_user()


@page.get("/security", access=USER)
async def security(
    request: Request, site: PageResponses, security_page: SecurityPage, changed: str = ""
) -> Response[str]:
    """Show your e-mail address and second factors."""
    return await security_page.response(request, site, message=MESSAGES.get(changed, ""))


@page.post("/security/email", access=USER, limit=None)  # the password check has its own limit
async def change_email(
    request: Request, body: bytes, site: PageResponses, security_page: SecurityPage, proof: SignInProof, emails: Emails
) -> Response[str]:
    """Set your e-mail address, with your password, and send a link to verify it."""
    actor, fields = await _user(request, site), forms.parse_form(body)
    try:
        await proof.require(actor, fields.get("password"), request.address)
        await emails.change(actor, fields.get("email", ""), request.address)
    except PlazaError as error:
        return await security_page.refused(request, site, "email", error, email=fields.get("email", ""))
    return _changed("email")


@page.post("/security/totp", access=USER, limit=None)
async def enrol_totp(
    request: Request,
    body: bytes,
    site: PageResponses,
    security_page: SecurityPage,
    proof: SignInProof,
    factors: SecondFactors,
) -> Response[str]:
    """Start to set up one-time codes, with your password."""
    actor = await _user(request, site)
    try:
        await proof.require(actor, forms.parse_form(body).get("password"), request.address)
    except PlazaError as error:
        return await security_page.refused(request, site, "totp", error)
    return await security_page.response(request, site, **_enrolment(await factors.enrol(actor)))


def _enrolment(enrolment: TotpEnrolment) -> dict[str, Any]:
    image = segno.make(enrolment.uri, error="m").svg_inline(scale=4, border=4, dark="#000", light="#fff")
    return {"enrolment": enrolment, "qr_code": Markup(image)}  # noqa: S704 drawn from squares


@page.post("/security/totp/confirm", access=USER)
async def confirm_totp(
    request: Request,
    body: bytes,
    site: PageResponses,
    security_page: SecurityPage,
    factors: SecondFactors,
    log: AccountLog,
) -> Response[str]:
    """Turn one-time codes on with a first code, and show the recovery codes."""
    actor, fields = await _user(request, site), forms.parse_form(body)
    try:
        codes = await factors.confirm(actor, fields.get("code", "").replace(" ", ""))
    except PlazaError as error:
        pending = await factors.pending(actor)
        context = {} if pending is None else _enrolment(pending)
        return await security_page.refused(request, site, "totp", error, **context)
    await log.record(actor.name, "second_factor_enabled", request.address)
    return await security_page.response(request, site, recovery_codes=codes)


@page.post("/security/totp/remove", access=USER, limit=None)
async def remove_totp(
    request: Request,
    body: bytes,
    site: PageResponses,
    security_page: SecurityPage,
    proof: SignInProof,
    factors: SecondFactors,
    log: AccountLog,
) -> Response[str]:
    """Turn one-time codes off, with your password and a code."""
    actor, fields = await _user(request, site), forms.parse_form(body)
    try:
        await proof.require(actor, fields.get("password"), request.address)
        await proof.require_code(actor, fields.get("code", ""))
    except PlazaError as error:
        return await security_page.refused(request, site, "totp", error)
    await factors.disable(actor.name)
    await log.record(actor.name, "second_factor_removed", request.address)
    return _changed("codes-off")


@page.post("/security/recovery-codes", access=USER, limit=None)
async def renew_recovery_codes(
    request: Request,
    body: bytes,
    site: PageResponses,
    security_page: SecurityPage,
    proof: SignInProof,
    factors: SecondFactors,
    log: AccountLog,
) -> Response[str]:
    """Replace your recovery codes, with your password, and show the new ones."""
    actor = await _user(request, site)
    try:
        await proof.require(actor, forms.parse_form(body).get("password"), request.address)
        codes = await factors.renew_recovery_codes(actor.name)
    except PlazaError as error:
        return await security_page.refused(request, site, "recovery", error)
    await log.record(actor.name, "recovery_codes_renewed", request.address)
    return await security_page.response(request, site, recovery_codes=codes)


@page.post("/security/passkeys/options", access=USER, limit=None, media_type=JSON)
async def passkey_options(
    request: Request, body: bytes, site: PageResponses, proof: SignInProof, passkeys: Passkeys
) -> PasskeyOptions:
    """Get the options for a new passkey, with your password. The script of the page asks for them."""
    actor = await _user(request, site)
    await proof.require(actor, forms.parse_form(body).get("password"), request.address)
    return PasskeyOptions(await passkeys.registration_options(actor))


@page.post("/security/passkeys", access=USER)
async def add_passkey(
    request: Request, body: bytes, site: PageResponses, security_page: SecurityPage, passkeys: Passkeys, log: AccountLog
) -> Response[str]:
    """Add the passkey that the browser made."""
    actor, fields = await _user(request, site), forms.parse_form(body)
    try:
        name = forms.convert_fields({"name": fields.get("name", "")}, PasskeyChange).name
        added = await passkeys.register(actor, name, forms.json_field(fields, "credential", NewPasskeyCredential))
    except PlazaError as error:
        return await security_page.refused(request, site, "passkeys", error)
    await log.record(actor.name, "passkey_added", request.address)
    if added.recovery_codes is None:
        return _changed("passkey")
    return await security_page.response(request, site, recovery_codes=added.recovery_codes, message=MESSAGES["passkey"])


@page.post("/security/passkeys/{id}/rename", access=USER)
async def rename_passkey(
    request: Request, body: bytes, site: PageResponses, id: PasskeyId, security_page: SecurityPage, passkeys: Passkeys
) -> Response[str]:
    """Rename a passkey."""
    actor = await _user(request, site)
    try:
        await passkeys.rename(actor, id, forms.read_form(body, PasskeyChange).name)
    except PlazaError as error:
        return await security_page.refused(request, site, "passkeys", error)
    return _changed("renamed")


@page.post("/security/passkeys/{id}/remove", access=USER, limit=None)
async def remove_passkey(
    request: Request,
    body: bytes,
    site: PageResponses,
    id: PasskeyId,
    security_page: SecurityPage,
    proof: SignInProof,
    passkeys: Passkeys,
    log: AccountLog,
) -> Response[str]:
    """Remove a passkey, with your password."""
    actor = await _user(request, site)
    try:
        await proof.require(actor, forms.parse_form(body).get("password"), request.address)
        await passkeys.remove(actor, id)
    except PlazaError as error:
        return await security_page.refused(request, site, "passkeys", error)
    await log.record(actor.name, "passkey_removed", request.address)
    return _changed("removed")
