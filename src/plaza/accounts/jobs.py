"""The jobs of accounts: old entries of the security log are deleted daily, and mails are sent as users request them."""

from __future__ import annotations

from plaza.accounts.email_links import MailJob
from plaza.accounts.security_log import SqlSecurityLog
from plaza.accounts.security_notices import MAIL_STREAM
from plaza.core.events import Consumer
from plaza.core.leases import Lease
from plaza.core.timers import Timer

DAY_SECONDS = 86_400


def timers(log: SqlSecurityLog) -> list[Timer]:
    async def delete_old(_: Lease) -> str:
        return f"{await log.delete_old()} log entries deleted"

    return [Timer("accounts.log", DAY_SECONDS, delete_old)]


def consumers(mail: MailJob) -> list[Consumer]:
    return [Consumer(MAIL_STREAM, "mailer", mail.handle)]
