"""Sends mail by SMTP.

`PLAZA_SMTP_URL` names the server: `smtp://user:password@host:587?from=plaza@example.org` (STARTTLS when the server
offers it, required when there is a password) or `smtps://…` (TLS from the first byte).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

import aiosmtplib

from plaza.core.errors import SettingError
from plaza.core.mail import Mail, MailFailed, to_message

TIMEOUT_SECONDS: Final = 10.0

_DEFAULT_PORTS: Final = {"smtp": 587, "smtps": 465}


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
                await connection.send_message(to_message(mail, server.sender))
        except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
            raise MailFailed(f"{server.host}:{server.port} refused a mail: {type(error).__name__}.") from error
