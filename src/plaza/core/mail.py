"""Sends mail by SMTP; without a mail server, writes each mail as a file that the operator can read.

`PLAZA_SMTP_URL` names the server: `smtp://user:password@host:587?from=plaza@example.org` (STARTTLS when the server
offers it, required when there is a password) or `smtps://…` (TLS from the first byte).
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

import aiosmtplib

from plaza.core.errors import SettingError, Unavailable

TIMEOUT_SECONDS: Final = 10.0

_DEFAULT_PORTS: Final = {"smtp": 587, "smtps": 465}


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail in plain text."""

    to: str
    subject: str
    text: str


class Mailer(Protocol):
    async def send(self, mail: Mail) -> None:
        """Hand a mail over. Raises `MailFailed`, which the caller may retry."""


class MailFailed(Unavailable):
    """The mail server did not take a mail. The text names the reason, never the mail."""

    title, code = "Mail cannot be sent", "mail_failed"


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """Where and how mail is handed over."""

    host: str
    port: int
    tls: bool  # from the first byte
    sender: str
    username: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def from_url(cls, url: str) -> SmtpServer:
        """Read `PLAZA_SMTP_URL`. An invalid one stops the start; the message never contains its password."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = 0
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or port == 0:
            raise SettingError("PLAZA_SMTP_URL must be smtp://[user:password@]host[:port][?from=address] or smtps://….")
        sender = parse_qs(parts.query).get("from", [f"plaza@{parts.hostname}"])[0]
        return cls(
            parts.hostname,
            port or _DEFAULT_PORTS[parts.scheme],
            parts.scheme == "smtps",
            sender,
            unquote(parts.username or ""),
            unquote(parts.password or ""),
        )


def connect_smtp(server: SmtpServer) -> aiosmtplib.SMTP:
    """A connection to use in `async with`, which connects and signs in."""
    return aiosmtplib.SMTP(
        hostname=server.host,
        port=server.port,
        username=server.username or None,
        password=server.password or None,
        use_tls=server.tls,
        # A password never travels unencrypted.
        start_tls=True if server.password and not server.tls else None,
        timeout=TIMEOUT_SECONDS,
    )


class SmtpMailer:
    """Hands each mail to an SMTP server, on a connection of its own."""

    def __init__(self, server: SmtpServer) -> None:
        self._server = server

    async def send(self, mail: Mail) -> None:
        server = self._server
        try:
            async with connect_smtp(server) as connection:
                await connection.send_message(_message(mail, server.sender))
        except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
            raise MailFailed(f"{server.host}:{server.port} refused a mail: {type(error).__name__}.") from error


class FileMailer:
    """Writes each mail as an `.eml` file that only the operator can read: for trying Plaza without a mail server."""

    def __init__(self, folder: Path, sender: str = "plaza@localhost") -> None:
        self._folder = folder
        self._sender = sender

    async def send(self, mail: Mail) -> None:
        await asyncio.to_thread(self._write, mail)

    def _write(self, mail: Mail) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            message = _message(mail, self._sender)
            unfinished = self._folder / f".{secrets.token_hex(8)}"
            unfinished.touch(mode=0o600)
            unfinished.write_bytes(bytes(message))
            unfinished.rename(self._folder / f"{secrets.token_hex(8)}.eml")
        except OSError as error:
            raise MailFailed(f"{self._folder} cannot be written: {error.strerror}.") from error


def open_mailer(smtp_url: str, data_dir: Path) -> Mailer:
    """Return the mailer of the settings."""
    return SmtpMailer(SmtpServer.from_url(smtp_url)) if smtp_url else FileMailer(data_dir / "mail")


def _message(mail: Mail, sender: str) -> EmailMessage:
    message = EmailMessage()
    message["From"] = sender
    message["To"] = mail.to  # EmailMessage refuses line breaks, so an address cannot add headers
    message["Subject"] = mail.subject
    message["Date"] = formatdate(localtime=False)
    message["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2])
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(mail.text)
    return message
