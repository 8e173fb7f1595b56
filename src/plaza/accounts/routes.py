"""The HTTP routes of accounts."""

from __future__ import annotations

from collections.abc import AsyncIterator

from plaza.accounts.email_links import Emails
from plaza.accounts.model import (
    AccountSessionId,
    EmailChanged,
    EmailVerified,
    IncorrectPassword,
    InvalidLink,
    LogPage,
    LogQuery,
    MailAccepted,
    MfaStatus,
    NewEmail,
    NotEnrolled,
    PasswordProof,
    PasswordReset,
    RecoveryCodes,
    ResetConfirmation,
    ResetRequest,
    SessionOwner,
    SessionPage,
    SessionsEnded,
    SignInAgain,
    TotpCode,
    TotpEnrolment,
    TotpRemoval,
    VerifyEmail,
)
from plaza.accounts.second_factor import SecondFactors
from plaza.accounts.security_log import SqlSecurityLog
from plaza.accounts.sessions import AccountSessions
from plaza.accounts.sign_in_proof import SignInProof
from plaza.core import csv_text
from plaza.core.auth import Actor
from plaza.core.domain import WrongCode
from plaza.core.errors import TooFast
from plaza.core.http.access import ADMIN, PUBLIC, USER
from plaza.core.http.action_summaries import ActionSummaries
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import Routes
from plaza.core.paging import Page
from plaza.core.password_strength import WeakPassword
from plaza.core.security_log import AccountLog

route = Routes("accounts")


@route.post(
    "/auth/email",
    access=USER,
    status=202,
    limit=None,
    raises=[IncorrectPassword, SignInAgain, TooFast],
    example={"email": "ana@example.org", "password": "correct horse battery"},
)
async def set_email(actor: Actor, body: NewEmail, request: Request, proof: SignInProof, emails: Emails) -> MailAccepted:
    """Set your e-mail address, with your password. A mail with a link verifies it."""
    await proof.require(actor, body.password, request.address)
    await emails.change(actor, body.email, request.address)
    return MailAccepted()


@route.post(
    "/auth/email/verify",
    access=PUBLIC,
    raises=[InvalidLink, EmailChanged],
    example={"token": "dmVyaWZ5X3Rva2VuX29mX2FfbGluaw"},
)
async def verify_email(body: VerifyEmail, request: Request, emails: Emails) -> EmailVerified:
    """Verify an e-mail address by the token of its link."""
    link = await emails.verify(body.token, request.address)
    return EmailVerified(link.username, link.address)


@route.post("/auth/reset", access=PUBLIC, status=202, example={"email": "ana@example.org"})
async def request_password_reset(body: ResetRequest, request: Request, emails: Emails) -> MailAccepted:
    """Request a password reset. The response is the same whether the address has an account or not."""
    await emails.request_reset(body.email, request.address)
    return MailAccepted()


@route.post(
    "/auth/reset/confirm",
    access=PUBLIC,
    raises=[InvalidLink, WeakPassword],
    example={"token": "cmVzZXRfdG9rZW5fb2ZfYV9saW5r", "password": "a new horse battery"},
)
async def confirm_password_reset(body: ResetConfirmation, request: Request, emails: Emails) -> PasswordReset:
    """Set a new password by the token of a reset link. Every session of the account ends."""
    return PasswordReset((await emails.reset(body.token, body.password, request.address)).username)


@route.get("/auth/mfa", access=USER)
async def get_mfa_status(actor: Actor, second_factors: SecondFactors) -> MfaStatus:
    """Read whether your account has a second factor."""
    return await second_factors.status(actor.name)


@route.post(
    "/auth/mfa/totp",
    access=USER,
    limit=None,
    raises=[IncorrectPassword, SignInAgain, TooFast],
    example={"password": "correct horse battery"},
)
async def enrol_totp(
    actor: Actor, body: PasswordProof, request: Request, proof: SignInProof, second_factors: SecondFactors
) -> TotpEnrolment:
    """Start setting up one-time codes. `POST /auth/mfa/totp/confirm` with a first code turns them on."""
    await proof.require(actor, body.password, request.address)
    return await second_factors.enrol(actor)


@route.post("/auth/mfa/totp/confirm", access=USER, raises=[WrongCode, NotEnrolled], example={"code": "492039"})
async def confirm_totp(
    actor: Actor, body: TotpCode, request: Request, second_factors: SecondFactors, log: AccountLog
) -> RecoveryCodes:
    """Turn one-time codes on. The recovery codes are shown this once."""
    codes = await second_factors.confirm(actor, body.code)
    await log.record(actor.name, "second_factor_enabled", request.address)
    return RecoveryCodes(codes)


@route.post(
    "/auth/mfa/recovery-codes",
    access=USER,
    limit=None,
    raises=[IncorrectPassword, SignInAgain, NotEnrolled, TooFast],
    example={"password": "correct horse battery"},
)
async def create_recovery_codes(
    actor: Actor,
    body: PasswordProof,
    request: Request,
    proof: SignInProof,
    second_factors: SecondFactors,
    log: AccountLog,
) -> RecoveryCodes:
    """Create new recovery codes, with your password. The old ones are void."""
    await proof.require(actor, body.password, request.address)
    codes = await second_factors.renew_recovery_codes(actor.name)
    await log.record(actor.name, "recovery_codes_renewed", request.address)
    return RecoveryCodes(codes)


@route.post(
    "/auth/mfa/totp/remove",
    access=USER,
    limit=None,
    raises=[IncorrectPassword, SignInAgain, WrongCode, TooFast],
    example={"password": "correct horse battery", "code": "k3v9-x7qm"},
)
async def remove_totp(
    actor: Actor,
    body: TotpRemoval,
    request: Request,
    proof: SignInProof,
    second_factors: SecondFactors,
    log: AccountLog,
) -> MfaStatus:
    """Turn one-time codes off, with the password and a code."""
    await proof.require(actor, body.password, request.address)
    await proof.require_code(actor, body.code)
    await second_factors.disable(actor.name)
    await log.record(actor.name, "second_factor_removed", request.address)
    return await second_factors.status(actor.name)


@route.get("/auth/sessions", access=USER)
async def list_account_sessions(actor: Actor, page: Page, sessions: AccountSessions) -> SessionPage:
    """List your sessions, of programs and of browsers, last used first."""
    return await sessions.page(actor, page)


@route.delete("/auth/sessions/{id}", access=USER, status=204)
async def end_account_session(actor: Actor, id: AccountSessionId, request: Request, sessions: AccountSessions) -> None:
    """End one of your sessions. Its access tokens are void at once."""
    await sessions.end(actor, id, request.address)


@route.delete("/auth/sessions", access=USER)
async def end_other_account_sessions(actor: Actor, request: Request, sessions: AccountSessions) -> SessionsEnded:
    """End all your other sessions. The one that the token belongs to stays."""
    return SessionsEnded(await sessions.end_others(actor, request.address))


@route.get("/admin/users/{username}/sessions", access=ADMIN)
async def list_sessions_of_user(username: SessionOwner, page: Page, sessions: AccountSessions) -> SessionPage:
    """List the sessions of a user, of programs and of browsers, last used first."""
    return await sessions.page_of(username, page)


@route.delete("/admin/users/{username}/sessions/{id}", access=ADMIN, status=204)
async def end_session_of_user(username: SessionOwner, id: AccountSessionId, sessions: AccountSessions) -> None:
    """End a session of a user. Its access tokens are void at once."""
    await sessions.end_of(username, id)


@route.delete("/admin/users/{username}/sessions", access=ADMIN)
async def end_all_sessions_of_user(username: SessionOwner, sessions: AccountSessions) -> SessionsEnded:
    """End all sessions of a user."""
    return SessionsEnded(await sessions.end_all_of(username))


@route.get("/admin/log", access=ADMIN, limit_first=True)
async def list_security_log(query: LogQuery, log: SqlSecurityLog, summaries: ActionSummaries) -> LogPage:
    """List admin and security actions, latest first."""
    return await log.search(query, summaries.matching(query.q or ""))


@route.get("/admin/log.csv", access=ADMIN, media_type=csv_text.MEDIA_TYPE, limit_first=True)
async def export_log(query: LogQuery, log: SqlSecurityLog, summaries: ActionSummaries) -> Response[str]:
    """Download all admin and security actions that match, latest first. `limit` and `cursor` are ignored."""
    return log_download(log, query, summaries)


def log_download(log: SqlSecurityLog, query: LogQuery, summaries: ActionSummaries) -> Response[str]:
    """Return the log as a CSV file, sent as it is read."""
    chunks: AsyncIterator[str] = log.csv_chunks(query, summaries.matching(query.q or ""))
    return Response(chunks, headers=[("content-disposition", 'attachment; filename="security-log.csv"')])
