"""Sends mail by SMTP (`smtp.py`); without a mail server, writes each mail as a file that the operator can read."""

from __future__ import annotations

import asyncio
import secrets
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from plaza.core.errors import Unavailable


class Mail(Struct, frozen=True):
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
            message = to_message(mail, self._sender)
            unfinished = self._folder / f".{secrets.token_hex(8)}"
            unfinished.touch(mode=0o600)
            unfinished.write_bytes(bytes(message))
            unfinished.rename(self._folder / f"{secrets.token_hex(8)}.eml")
        except OSError as error:
            raise MailFailed(f"{self._folder} cannot be written: {error.strerror}.") from error


def open_mailer(smtp_url: str, data_dir: Path) -> Mailer:
    """Return the mailer of the settings."""
    if not smtp_url:
        return FileMailer(data_dir / "mail")
    from plaza.core.smtp import SmtpMailer, SmtpServer  # and the library that speaks SMTP

    return SmtpMailer(SmtpServer.from_url(smtp_url))


def to_message(mail: Mail, sender: str) -> EmailMessage:
    """Return a mail with the headers that it is sent with."""
    message = EmailMessage()
    message["From"] = sender
    message["To"] = mail.to  # EmailMessage refuses line breaks, so an address cannot add headers
    message["Subject"] = mail.subject
    message["Date"] = formatdate(localtime=False)
    message["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2])
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(mail.text)
    return message
