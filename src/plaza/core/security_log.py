"""The interface of the security log: actions with their actor, subject, time, address and result.

The HTTP layer and the command line record every admin action through it, and services record what matters for the
safety of an account. `plaza.accounts` stores it in SQL.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, Literal, Protocol

from msgspec import Struct

from plaza.core.errors import Unavailable

# An action's result while its outcome is unknown. It stays if the process dies before the end.
STARTED: Final = "started"
DONE: Final = "done"

LogKind = Literal["admin", "account"]


class LogEntry(Struct):
    """One action. `result` is set when it ends. `detail` never holds a secret."""

    actor: str
    action: str
    subject: str = ""
    address: str = ""
    result: str = STARTED
    request_id: str = ""
    detail: str = ""
    kind: LogKind = "account"


class SecurityLog(Protocol):
    async def record(self, *entries: LogEntry) -> None:
        """Store actions that have ended."""

    def recording(self, entry: LogEntry) -> AbstractAsyncContextManager[LogEntry]:
        """Store an action before it runs and its result after it. If it cannot be stored, it does not run."""


class SecurityNotices(Protocol):
    async def notify(self, username: str, action: str, address: str | None) -> None:
        """Tell a user what happened to their account, if it is important and they have a verified address."""


class AccountLog:
    """Records what happens to accounts (sign-ins, changed passwords, ended sessions) and tells users what matters.

    Users can sign in while the database is unavailable, so an entry that cannot be stored is lost; a metric counts the
    failed statements. Without a log nothing is recorded.
    """

    def __init__(self, log: SecurityLog | None, notices: SecurityNotices | None = None) -> None:
        self._log = log
        self._notices = notices

    async def record(
        self,
        username: str,
        action: str,
        address: str | None = None,
        *,
        result: str = DONE,
        detail: str = "",
        known_device: bool = False,
    ) -> None:
        """Record what a user did to the own account. One transaction, and a round trip or two for a notice.

        A sign-in on a device where the user has signed in before is no news to them.
        """
        if result == DONE and not known_device:
            await self.notify(username, action, address)
        if self._log is not None:
            with suppress(Unavailable):
                await self._log.record(LogEntry(username, action, username, address or "", result, detail=detail))

    async def notify(self, username: str, action: str, address: str | None = None) -> None:
        """Tell a user of a change that is recorded elsewhere, such as an operator's."""
        if self._notices is not None:
            with suppress(Unavailable):
                await self._notices.notify(username, action, address)
