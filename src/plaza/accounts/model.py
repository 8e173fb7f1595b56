"""Requests and responses of accounts, and how addresses are compared."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from plaza.core.account_sessions import AccountSession
from plaza.core.errors import BadRequest, Conflict, Forbidden, Invalid, Unavailable
from plaza.core.number_parsing import MAX_TIME_MS
from plaza.core.paging import Page, Pagination
from plaza.core.passkey_credentials import NewPasskeyCredential
from plaza.core.security_log import LogKind
from plaza.core.text_patterns import USERNAME_PATTERN
from plaza.core.validation_messages import described_pattern

# A code of the step before or after is accepted: phones' clocks differ, and typing takes time.
TOTP_STEPS_AROUND: Final = 1

# RFC 5321 allows 254 characters. Anything stricter than "one @, no spaces" refuses real addresses; the mail decides.
_ADDRESS: Final = re.compile(r"[^@\s\x00-\x1f\x7f]{1,64}@[^@\s\x00-\x1f\x7f]{1,189}")

Purpose = Literal["verify", "reset"]
_EMAIL: Final = described_pattern(
    "Invalid e-mail address. Use the form name@example.org",
    r"^[ \t\r\n]*[^@\s\x00-\x1f\x7f-\x9f\ufeff]{1,64}@[^@\s\x00-\x1f\x7f-\x9f\ufeff]{1,189}[ \t\r\n]*$(?!\n)",
)
EmailAddress = Annotated[str, Meta(min_length=3, max_length=254, pattern=_EMAIL, description="An e-mail address.")]
LinkToken = Annotated[str, Meta(min_length=20, max_length=100, description="The token of a one-time link.")]
OneTimeCode = Annotated[str, Meta(min_length=6, max_length=40, description="A code, or a recovery code.")]
SessionOwner = Annotated[
    str,
    Meta(pattern=USERNAME_PATTERN, description="Case-sensitive.", examples=["ben"]),
]
AccountSessionId = Annotated[
    str,
    Meta(
        pattern=described_pattern("Invalid session id. It has 32 of 0-9 and a-f", r"^[0-9a-f]{32}$(?!\n)"),
        description="Id of a session.",
        examples=["5f3b9c1e8d7a4b2c9e0f1a2b3c4d5e6f"],
    ),
]
PasskeyId = Annotated[
    str,
    Meta(
        pattern=described_pattern("Invalid passkey id. It has 64 of 0-9 and a-f", r"^[0-9a-f]{64}$(?!\n)"),
        description="Id of a passkey.",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    ),
]
PasskeyName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=50,
        pattern=described_pattern("A name is one line of text", r"^[^\x00-\x1f\x7f\u2028\u2029]+$(?!\n)"),
        description="A name by which the user recognizes the device.",
    ),
]
LogText = Annotated[str, Meta(max_length=300)]
Password = Annotated[str, Meta(min_length=8, max_length=256)]


class ProviderFailed(Unavailable):
    title, code = "The sign-in provider does not respond", "provider_failed"


class SignInRefused(BadRequest):
    title, code = "The provider did not confirm the sign-in. Start again", "sign_in_refused"


class Identity(msgspec.Struct, frozen=True):
    """Who the provider says a user is. `sub` is the provider's permanent id of the user."""

    iss: str
    sub: str
    preferred_username: str | None = None
    name: str | None = None
    email: str | None = None
    email_verified: bool = False


class InvalidLink(BadRequest):
    title, code = "This link is invalid, was used already or has expired", "invalid_link"


class EmailChanged(Conflict):
    title, code = "The account's address has changed since this link was sent", "email_changed"


class NotEnrolled(Conflict):
    title, code = "No second factor is being set up. Start with POST /auth/mfa/totp", "mfa_not_enrolled"


class IncorrectPassword(Forbidden):
    title, code = "The password is wrong", "password_wrong"


class SignInAgain(Forbidden):
    title, code = "This needs a recent sign-in. Sign in again", "sign_in_again"


class InvalidChallenge(BadRequest):
    title, code = (
        "The challenge is invalid, was used already or has expired. Request a new one",
        "invalid_challenge",
    )


class PasskeyKnown(Conflict):
    title, code = "This passkey is registered already", "passkey_exists"


class TooManyPasskeys(Conflict):
    title, code = "The account has too many passkeys", "too_many_passkeys"


class NewEmail(msgspec.Struct, forbid_unknown_fields=True):
    """An address, and the password of the account: mail to the address can reset the password."""

    email: EmailAddress
    password: Annotated[str, Meta(max_length=1_000)] | None = None


class VerifyEmail(msgspec.Struct, forbid_unknown_fields=True):
    token: LinkToken


class ResetRequest(msgspec.Struct, forbid_unknown_fields=True):
    email: EmailAddress


class ResetConfirmation(msgspec.Struct, forbid_unknown_fields=True):
    token: LinkToken
    password: Password


class MailAccepted(msgspec.Struct):
    """The same response whether a mail is sent or not: it does not reveal which addresses have an account."""

    accepted: bool = True


class EmailVerified(msgspec.Struct):
    username: str
    email: str


class PasswordReset(msgspec.Struct):
    username: str


class TotpEnrolment(msgspec.Struct):
    """What an authenticator needs: the secret, or the URI as a QR code."""

    secret: str
    uri: str


class TotpCode(msgspec.Struct, forbid_unknown_fields=True):
    code: OneTimeCode


class TotpRemoval(msgspec.Struct, forbid_unknown_fields=True):
    code: OneTimeCode
    password: Annotated[str, Meta(max_length=1_000)] | None = None


class RecoveryCodes(msgspec.Struct):
    recovery_codes: list[str]


class MfaStatus(msgspec.Struct):
    """The second factors of an account. `enabled`: signing in with the password needs one of them."""

    enabled: bool
    totp: bool
    passkeys: int
    recovery_codes_left: int


class PasswordProof(msgspec.Struct, forbid_unknown_fields=True):
    """The password of the account. An account without one needs a recent sign-in instead."""

    password: Annotated[str, Meta(max_length=1_000)] | None = None


class PasskeyRegistration(msgspec.Struct, forbid_unknown_fields=True):
    name: PasskeyName
    credential: NewPasskeyCredential


class PasskeyChange(msgspec.Struct, forbid_unknown_fields=True):
    name: PasskeyName


class PasskeyOptions(msgspec.Struct):
    """The options for the browser: `PublicKeyCredential.parseCreationOptionsFromJSON`, or `…RequestOptionsFromJSON`."""

    options: dict[str, Any]


class Passkey(msgspec.Struct):
    """A passkey. `backed_up`: its authenticator copies it to other devices. Times are Unix milliseconds."""

    id: str
    name: str
    created_at: int
    last_used_at: int | None
    backed_up: bool


class PasskeyAdded(Passkey):
    """A new passkey. `recovery_codes` are given with the first second factor of an account, and shown this once."""

    recovery_codes: list[str] | None = None


class PasskeyPage(msgspec.Struct, frozen=True):
    passkeys: list[Passkey]
    pagination: Pagination


class SessionPage(msgspec.Struct, frozen=True):
    sessions: list[AccountSession]
    pagination: Pagination


class SessionsEnded(msgspec.Struct):
    ended: int


class LogQuery(Page, frozen=True):
    """The query of the security log. `q` is found anywhere in an entry, whatever its case, or in the summary of the
    action; the others match exactly.
    """

    kind: LogKind | None = None
    actor: LogText | None = None
    action: LogText | None = None
    subject: LogText | None = None
    result: LogText | None = None
    q: LogText | None = None
    since: Annotated[int, Meta(ge=0, le=MAX_TIME_MS, description="Unix milliseconds; from this moment on.")] | None = (
        None
    )
    until: Annotated[int, Meta(ge=0, le=MAX_TIME_MS, description="Unix milliseconds; before this moment.")] | None = (
        None
    )


class LoggedAction(msgspec.Struct, frozen=True):
    """An action. `kind` is `admin` for what an admin, an API key or a command did, `account` for what users did to
    their accounts. `result` is an HTTP status or a word; `started` if the outcome is unknown. Times are Unix
    milliseconds.
    """

    id: int
    at: int
    kind: str
    actor: str
    action: str
    subject: str
    detail: str
    address: str
    result: str
    request_id: str


class LogPage(msgspec.Struct, frozen=True):
    actions: list[LoggedAction]
    pagination: Pagination


class OneTimeLink(msgspec.Struct):
    """What is stored for a link."""

    purpose: Purpose
    username: str
    address: str


def normalize_address(text: str) -> str:
    """Return an address as it is compared and stored: without surrounding spaces, in lower case."""
    address = text.strip().lower()
    if len(address) > 254 or not _ADDRESS.fullmatch(address):
        raise Invalid("Invalid e-mail address. Use the form name@example.org.", field="email")
    return address


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
