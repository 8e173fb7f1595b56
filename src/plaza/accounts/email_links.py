"""Verified e-mail addresses, and password reset by one-time links.

A request only adds an entry to the stream `events:mail`: its response and its duration reveal nothing about an address.
A worker makes the link and sends it, and tries again if the mail server is unavailable. Of a link's token only the hash
is stored.
"""

from __future__ import annotations

import secrets
from typing import Final

import msgspec

from plaza.accounts.keys import ACCOUNT_EMAIL, ADDRESS_USERS, ONE_TIME_LINK, RESET_SECONDS, VERIFY_SECONDS
from plaza.accounts.model import EmailChanged, InvalidLink, OneTimeLink, Purpose, digest, normalize_address
from plaza.accounts.security_notices import MAIL_STREAM, NoticeMails
from plaza.core.auth import Actor, Auth
from plaza.core.clock import Clock
from plaza.core.domain import CredentialStore, SignOut
from plaza.core.events import Event, Events
from plaza.core.mail import Mail, Mailer
from plaza.core.rate_limits import Limiter
from plaza.core.security_log import AccountLog
from plaza.core.valkey import Valkey

# One person may have several accounts with one address. A mail that names more would be abuse.
MAX_ACCOUNTS_PER_ADDRESS: Final = 10

_LIFETIME_SECONDS: Final[dict[Purpose, int]] = {"verify": VERIFY_SECONDS, "reset": RESET_SECONDS}
_DECODER: Final = msgspec.json.Decoder(OneTimeLink)


class Emails:
    """Verifies addresses and resets passwords by mail."""

    def __init__(
        self,
        valkey: Valkey,
        events: Events,
        credentials: CredentialStore,
        sessions: SignOut | None,
        auth: Auth,
        limiter: Limiter,
        clock: Clock,
        log: AccountLog,
    ) -> None:
        self._valkey = valkey
        self._events = events
        self._credentials = credentials
        self._sessions = sessions
        self._auth = auth
        self._limiter = limiter
        self._clock = clock
        self._log = log

    async def change(self, actor: Actor, email: str, client: str | None) -> None:
        """Set the user's address and ask for a verification mail. Three round trips."""
        address = normalize_address(email)
        await self._limiter.take("mail", actor.name, client)
        await self._credentials.set_email(actor.name, address)
        await self._log.record(actor.name, "email_changed", client)
        await self._events.emit(MAIL_STREAM, address, purpose="verify", username=actor.name, address=address)

    async def request_reset(self, email: str, client: str | None) -> None:
        """Ask for a reset mail to an address, whether it has accounts or not. Two round trips."""
        address = normalize_address(email)
        await self._limiter.take("mail", digest(address), client)
        await self._events.emit(MAIL_STREAM, address, purpose="reset", address=address)

    async def verify(self, token: str, client: str | None) -> OneTimeLink:
        """Confirm the address of a link. Raises `EmailChanged` if the profile has another address by now."""
        link = await self._take_link(token, "verify")
        if await self._email_of(link.username) != link.address:
            raise EmailChanged
        # The index first: an entry without its hash is ignored, a hash without its entry would never be found.
        await self._valkey.call("SADD", ADDRESS_USERS(digest(link.address)), link.username)
        fields = ("address", link.address, "verified_at", self._clock.now_ms())
        await self._valkey.call("HSET", ACCOUNT_EMAIL(link.username), *fields)
        await self._log.record(link.username, "email_verified", client)
        return link

    async def reset(self, token: str, password: str, client: str | None) -> OneTimeLink:
        """Set a new password by a link. Every session and token of the account ends.

        A weak password does not use the link up. A link to an address that is no longer the account's is void.
        """
        key = ONE_TIME_LINK(digest(token))
        found = _read_link(await self._valkey.call("GET", key), "reset")
        await self._credentials.require_strong(found.username, password)
        link = await self._take_link(token, "reset")
        if link.username not in await self.accounts_of(link.address):
            raise InvalidLink
        await self._credentials.set_password(link.username, password)
        if self._sessions is not None:
            await self._sessions.sign_out(link.username)
        await self._auth.revoke_tokens(link.username)
        await self._log.record(link.username, "password_reset", client)
        return link

    async def is_verified(self, username: str) -> bool:
        """Whether the address in the profile is the one that was verified. Two round trips."""
        address = await self._valkey.call("HGET", ACCOUNT_EMAIL(username), "address")
        return address is not None and await self._email_of(username) == address

    async def _email_of(self, username: str) -> str:
        return ((await self._credentials.get_email(username)) or "").strip().lower()

    async def accounts_of(self, address: str) -> list[str]:
        """Return the users whose verified and present address this is."""
        found = await self._valkey.call("SRANDMEMBER", ADDRESS_USERS(digest(address)), MAX_ACCOUNTS_PER_ADDRESS)
        names = [name for name in sorted(found) if await self.is_verified(name)]
        return [name for name in names if await self._email_of(name) == address]

    async def new_link(self, link: OneTimeLink) -> str:
        """Store a link and return its token. One round trip."""
        token = secrets.token_urlsafe(32)
        lifetime = _LIFETIME_SECONDS[link.purpose]
        await self._valkey.call("SET", ONE_TIME_LINK(digest(token)), msgspec.json.encode(link), "EX", lifetime)
        return token

    async def _take_link(self, token: str, purpose: Purpose) -> OneTimeLink:
        """Return what a link is for; a second use finds nothing."""
        return _read_link(await self._valkey.call("GETDEL", ONE_TIME_LINK(digest(token))), purpose)


def _read_link(stored: str | None, purpose: Purpose) -> OneTimeLink:
    link = _DECODER.decode(stored) if stored is not None else None
    if link is None or link.purpose != purpose:
        raise InvalidLink
    return link


class MailJob:
    """Sends the mails that requests asked for; runs in a worker."""

    def __init__(self, emails: Emails, notices: NoticeMails, mailer: Mailer, public_url: str) -> None:
        self._emails = emails
        self._notices = notices
        self._mailer = mailer
        self._public_url = public_url

    async def handle(self, event: Event) -> None:
        """Send one mail. Handled twice, it sends a second link; the first stays valid."""
        address = event.fields["address"]
        if event.fields["purpose"] == "verify":
            await self._mailer.send(await self._verification(event.fields["username"], address))
        elif event.fields["purpose"] == "notice":
            if notice := await self._notices.mail(event):
                await self._mailer.send(notice)
        else:
            for username in await self._emails.accounts_of(address):
                await self._mailer.send(await self._reset(username, address))

    async def _verification(self, username: str, address: str) -> Mail:
        token = await self._emails.new_link(OneTimeLink("verify", username, address))
        text = (
            f"Hello {username},\n\nconfirm that this is your e-mail address:\n\n"
            f"{self._public_url}/app/verify-email?token={token}\n\n"
            "The link works once, within 24 hours. If you did not ask for it, ignore this mail.\n"
        )
        return Mail(address, "Confirm your e-mail address", text)

    async def _reset(self, username: str, address: str) -> Mail:
        token = await self._emails.new_link(OneTimeLink("reset", username, address))
        text = (
            f"Hello {username},\n\nchoose a new password for your account:\n\n"
            f"{self._public_url}/app/reset-password?token={token}\n\n"
            "The link works once, within an hour. If you did not ask for it, ignore this mail: your password stays.\n"
        )
        return Mail(address, "Reset your password", text)
