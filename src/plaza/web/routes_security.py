"""How users sign in: e-mail address, one-time codes, passkeys and recovery codes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

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


# What a form does for a signed-in user, with its fields.
Change = Callable[[Actor, Mapping[str, str]], Awaitable[Response[str]]]


class SecurityPage:
    """Builds the page of a user, and runs its forms: a problem is shown beside the form that caused it."""

    def __init__(
        self,
        emails: Emails,
        factors: SecondFactors,
        passkeys: Passkeys,
        credentials: Credentials,
        proof: SignInProof,
        log: AccountLog,
    ) -> None:
        self._proof = proof
        self._log = log
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

    async def submit(
        self,
        request: Request,
        body: bytes,
        site: PageResponses,
        section: str,
        change: Change,
        *,
        needs_password: bool = True,
        records: str = "",
    ) -> Response[str]:
        """Run a form, with the user's password if it needs one, and record it in the security log as `records`.

        If it is refused, return the page with the problem.
        """
        actor, fields = await _user(request, site), forms.parse_form(body)
        try:
            if needs_password:
                await self._proof.require(actor, fields.get("password"), request.address)
            response = await change(actor, fields)
            if records:
                await self._log.record(actor.name, records, request.address)
            return response
        except Unavailable:
            raise
        except PlazaError as error:
            # The user may see the page; only the submitted values are wrong.
            status = 422 if error.status in (401, 403) else error.status
            context: dict[str, Any] = {"email": fields["email"]} if section == "email" and "email" in fields else {}
            if section == "totp" and not needs_password and (pending := await self._factors.pending(actor)) is not None:
                context |= _enrolment(pending)
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
    request: Request, body: bytes, site: PageResponses, security_page: SecurityPage, emails: Emails
) -> Response[str]:
    """Set your e-mail address, with your password, and send a link to verify it."""

    async def change(actor: Actor, fields: Mapping[str, str]) -> Response[str]:
        await emails.change(actor, fields.get("email", ""), request.address)
        return _changed("email")

    return await security_page.submit(request, body, site, "email", change)


@page.post("/security/totp", access=USER, limit=None)
async def enrol_totp(
    request: Request, body: bytes, site: PageResponses, security_page: SecurityPage, factors: SecondFactors
) -> Response[str]:
    """Start to set up one-time codes, with your password."""

    async def enrol(actor: Actor, fields: Mapping[str, str]) -> Response[str]:
        return await security_page.response(request, site, **_enrolment(await factors.enrol(actor)))

    return await security_page.submit(request, body, site, "totp", enrol)


def _enrolment(enrolment: TotpEnrolment) -> dict[str, Any]:
    import segno  # QR codes: only a new second factor needs them

    image = segno.make(enrolment.uri, error="m").svg_inline(scale=4, border=4, dark="#000", light="#fff")
    return {"enrolment": enrolment, "qr_code": Markup(image)}  # noqa: S704 drawn from squares


@page.post("/security/totp/confirm", access=USER)
async def confirm_totp(
    request: Request, body: bytes, site: PageResponses, security_page: SecurityPage, factors: SecondFactors
) -> Response[str]:
    """Turn one-time codes on with a first code, and show the recovery codes."""

    async def confirm(actor: Actor, fields: Mapping[str, str]) -> Response[str]:
        codes = await factors.confirm(actor, fields.get("code", "").replace(" ", ""))
        return await security_page.response(request, site, recovery_codes=codes)

    return await security_page.submit(
        request, body, site, "totp", confirm, needs_password=False, records="second_factor_enabled"
    )


@page.post("/security/totp/remove", access=USER, limit=None)
async def remove_totp(
    request: Request,
    body: bytes,
    site: PageResponses,
    security_page: SecurityPage,
    proof: SignInProof,
    factors: SecondFactors,
) -> Response[str]:
    """Turn one-time codes off, with your password and a code."""

    async def remove(actor: Actor, fields: Mapping[str, str]) -> Response[str]:
        await proof.require_code(actor, fields.get("code", ""))
        await factors.disable(actor.name)
        return _changed("codes-off")

    return await security_page.submit(request, body, site, "totp", remove, records="second_factor_removed")


@page.post("/security/recovery-codes", access=USER, limit=None)
async def renew_recovery_codes(
    request: Request, body: bytes, site: PageResponses, security_page: SecurityPage, factors: SecondFactors
) -> Response[str]:
    """Replace your recovery codes, with your password, and show the new ones."""

    async def renew(actor: Actor, fields: Mapping[str, str]) -> Response[str]:
        codes = await factors.renew_recovery_codes(actor.name)
        return await security_page.response(request, site, recovery_codes=codes)

    return await security_page.submit(request, body, site, "recovery", renew, records="recovery_codes_renewed")


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
    request: Request, body: bytes, site: PageResponses, security_page: SecurityPage, passkeys: Passkeys
) -> Response[str]:
    """Add the passkey that the browser made."""

    async def add(actor: Actor, fields: Mapping[str, str]) -> Response[str]:
        name = forms.convert_fields({"name": fields.get("name", "")}, PasskeyChange).name
        added = await passkeys.register(actor, name, forms.json_field(fields, "credential", NewPasskeyCredential))
        if added.recovery_codes is None:
            return _changed("passkey")
        codes, message = added.recovery_codes, MESSAGES["passkey"]
        return await security_page.response(request, site, recovery_codes=codes, message=message)

    return await security_page.submit(
        request, body, site, "passkeys", add, needs_password=False, records="passkey_added"
    )


@page.post("/security/passkeys/{id}/rename", access=USER)
async def rename_passkey(
    request: Request, body: bytes, site: PageResponses, id: PasskeyId, security_page: SecurityPage, passkeys: Passkeys
) -> Response[str]:
    """Rename a passkey."""

    async def rename(actor: Actor, fields: Mapping[str, str]) -> Response[str]:
        await passkeys.rename(actor, id, forms.read_form(body, PasskeyChange).name)
        return _changed("renamed")

    return await security_page.submit(request, body, site, "passkeys", rename, needs_password=False)


@page.post("/security/passkeys/{id}/remove", access=USER, limit=None)
async def remove_passkey(
    request: Request, body: bytes, site: PageResponses, id: PasskeyId, security_page: SecurityPage, passkeys: Passkeys
) -> Response[str]:
    """Remove a passkey, with your password."""

    async def remove(actor: Actor, fields: Mapping[str, str]) -> Response[str]:
        await passkeys.remove(actor, id)
        return _changed("removed")

    return await security_page.submit(request, body, site, "passkeys", remove, records="passkey_removed")
