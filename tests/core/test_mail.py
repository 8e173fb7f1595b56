"""Mail through a real SMTP server, and as files."""

from __future__ import annotations

import stat
from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest

from plaza.core.errors import SettingError
from plaza.core.mail import FileMailer, Mail, MailFailed, open_mailer
from plaza.core.smtp import SmtpMailer, SmtpServer
from tests.smtp import smtp_server

WELCOME = Mail("ana@example.org", "Welcome to Plaza", "Hello Ana,\nüber all.\n")


async def test_a_mail_arrives_as_it_was_written() -> None:
    with smtp_server() as mailbox:
        await SmtpMailer(SmtpServer.from_url(f"smtp://127.0.0.1:{mailbox.port}?from=plaza@example.org")).send(WELCOME)
    (mail,) = mailbox.mails
    assert (mail["to"], mail["from"], mail["subject"]) == ("ana@example.org", "plaza@example.org", "Welcome to Plaza")
    assert mail.get_content().splitlines() == WELCOME.text.splitlines()
    assert mail["auto-submitted"] == "auto-generated"


async def test_a_refused_mail_can_be_sent_again() -> None:
    with smtp_server() as mailbox:
        mailer = SmtpMailer(SmtpServer.from_url(f"smtp://127.0.0.1:{mailbox.port}"))
        mailbox.refuse = True
        with pytest.raises(MailFailed):
            await mailer.send(WELCOME)
        mailbox.refuse = False
        await mailer.send(WELCOME)
    assert len(mailbox.mails) == 1


async def test_no_server_is_an_error_that_names_no_secret() -> None:
    mailer = SmtpMailer(SmtpServer.from_url("smtp://user:geheim@127.0.0.1:1"))
    with pytest.raises(MailFailed) as failed:
        await mailer.send(WELCOME)
    assert "geheim" not in str(failed.value)
    assert "geheim" not in repr(SmtpServer.from_url("smtp://user:geheim@mail.example"))


async def test_a_password_is_never_sent_without_encryption() -> None:
    with smtp_server() as mailbox:  # offers no STARTTLS
        mailer = SmtpMailer(SmtpServer.from_url(f"smtp://user:geheim@127.0.0.1:{mailbox.port}"))
        with pytest.raises(MailFailed):
            await mailer.send(WELCOME)
    assert mailbox.mails == []


async def test_an_address_cannot_add_headers() -> None:
    with smtp_server() as mailbox:
        mailer = SmtpMailer(SmtpServer.from_url(f"smtp://127.0.0.1:{mailbox.port}"))
        with pytest.raises(ValueError, match="linefeed"):
            await mailer.send(Mail("ana@example.org\nBcc: eve@example.org", "Hello", "Hello"))
    assert mailbox.mails == []


@pytest.mark.parametrize("url", ["http://mail.example", "smtp://", "smtp://mail.example:none", "mail.example"])
def test_an_invalid_server_stops_the_start(url: str) -> None:
    with pytest.raises(SettingError, match="PLAZA_SMTP_URL"):
        SmtpServer.from_url(url)


async def test_without_a_server_mails_are_files_that_only_their_owner_reads(tmp_path: Path) -> None:
    mailer = open_mailer("", tmp_path)
    assert isinstance(mailer, FileMailer)
    await mailer.send(WELCOME)
    (file,) = (tmp_path / "mail").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    mail = message_from_bytes(file.read_bytes(), policy=default)
    assert mail["to"] == "ana@example.org"
    assert mail.get_content() == WELCOME.text
