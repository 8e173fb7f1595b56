"""Mails that tell users what happened to their accounts, so that they notice what an attacker does.

They go to the last verified address: an attacker who sets another one cannot redirect them. A request only adds an
entry to the stream of mails; a worker sends them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from plaza.accounts.keys import ACCOUNT_EMAIL, CATALOGUE
from plaza.accounts.security_log import SqlSecurityLog
from plaza.core.addresses import stored_address
from plaza.core.clock import Clock
from plaza.core.events import Event, Events
from plaza.core.mail import Mail
from plaza.core.settings import AccountAddress
from plaza.core.valkey import Valkey, scan_pages

MAIL_STREAM: Final = "mail"
SIGN_IN: Final = "sign_in"
API_KEY_CREATED: Final = "api_key_created"

# What a mail says about an action of the security log. Others are not mailed.
SENTENCES: Final = {
    "password_changed": "the password of your account was changed",
    "password_reset": "the password of your account was set by a link in a mail",
    "email_changed": "the e-mail address of your account was changed",
    "second_factor_enabled": "one-time codes were turned on for your account",
    "second_factor_removed": "one-time codes were turned off for your account",
    "recovery_codes_renewed": "your recovery codes were replaced",
    "passkey_added": "a passkey was added to your account",
    "passkey_removed": "a passkey of your account was removed",
    "account_deleted": "your account was deleted",
    SIGN_IN: "someone signed in to your account from a place where you have not signed in before",
    API_KEY_CREATED: "an API key was created on the server. You get this mail because you are an admin",
}


class MailedNotices:
    """Asks for mails about what happened to accounts."""

    def __init__(self, valkey: Valkey, events: Events, clock: Clock, addresses: AccountAddress) -> None:
        self._valkey = valkey
        self._events = events
        self._clock = clock
        self._addresses = addresses

    async def notify(self, username: str, action: str, address: str | None) -> None:
        """Ask for a mail to the user's verified address, if there is one. Two round trips; none for other actions."""
        if action not in SENTENCES:
            return
        email = await self._valkey.call("HGET", ACCOUNT_EMAIL(username), "address")
        if email is not None:
            await self._events.emit(
                MAIL_STREAM,
                email,
                purpose="notice",
                action=action,
                username=username,
                address=email,
                client=stored_address(address, self._addresses),
                at_ms=self._clock.now_ms(),
            )

    async def users_with_address(self) -> list[str]:
        """Return the users who have verified an address. Reads all key names, for rare actions of operators."""
        found: set[str] = set()
        for node in self._valkey.primaries():
            async for names in scan_pages(node, "SCAN", match=ACCOUNT_EMAIL("*"), type="hash"):
                found |= {match.parts[0] for name in names if (match := CATALOGUE.match(name))}
        return sorted(found)


class NoticeMails:
    """Writes the mails; runs in a worker."""

    def __init__(self, log: SqlSecurityLog, public_url: str) -> None:
        self._log = log
        self._public_url = public_url

    async def mail(self, event: Event) -> Mail | None:
        """Return the mail of a notice; None for a sign-in from where the user has signed in before."""
        fields = event.fields
        username, action, client, at_ms = fields["username"], fields["action"], fields["client"], int(fields["at_ms"])
        if action == SIGN_IN and await self._log.has_signed_in_from(username, client, at_ms):
            return None
        at = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
        text = (
            f"Hello {username},\n\n{SENTENCES[action]}.\n\nTime: {at}\n"
            + (f"From: {client}\n" if client else "")
            + "\nIf this was you, or you know about it, you need not do anything. If not, choose a new password at\n"
            f"{self._public_url}/app/forgot-password\nand check your sessions and second factors.\n"
        )
        return Mail(fields["address"], "Security of your account", text)
