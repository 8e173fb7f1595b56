"""A real SMTP server for tests, which keeps what it receives."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword


@dataclass
class Mailbox:
    """The mails that arrived, and how the server answers the next one."""

    refuse: bool = False
    refused: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    port: int = 0

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:  # noqa: N802
        if self.refuse:
            self.refused += 1
            return "451 Try again later"
        message = message_from_bytes(cast(bytes, envelope.content), policy=default)
        self.mails.append(message)
        return "250 OK"


@contextlib.contextmanager
def smtp_server(tls: ssl.SSLContext | None = None, password: str = "") -> Iterator[Mailbox]:
    """Run a server on a free loopback port; with a password, only after STARTTLS and login."""
    mailbox = Mailbox()

    def authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        right = isinstance(data, LoginPassword) and data.password == password.encode()
        return AuthResult(success=right, handled=False)

    options: dict[str, Any] = {"auth_required": bool(password), "authenticator": authenticate}
    if tls is not None:
        options |= {"tls_context": tls, "require_starttls": True}
    controller = Controller(mailbox, hostname="127.0.0.1", port=0, **options)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        controller.port = mailbox.port = int(probe.getsockname()[1])
    controller.start()
    try:
        yield mailbox
    finally:
        controller.stop()
