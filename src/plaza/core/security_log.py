"""The interface of the security log: actions with their actor, subject, time, address and result.

The HTTP layer and the command line record every admin action through it, and services record what matters for the
safety of an account. `plaza.accounts` stores it in SQL.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from plaza.core.errors import Unavailable

# An action's result while its outcome is unknown. It stays if the process dies before the end.
STARTED: Final = "started"
DONE: Final = "done"

LogKind = Literal["admin", "account"]


@dataclass(slots=True)
class LogEntry:
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


class AccountLog:
    """Records what happens to accounts: sign-ins, changed passwords, ended sessions.

    Users can sign in while the database is unavailable, so an entry that cannot be stored is lost; a metric counts the
    failed statements. Without a log nothing is recorded.
    """

    def __init__(self, log: SecurityLog | None) -> None:
        self._log = log

    async def record(
        self, username: str, action: str, address: str | None = None, *, result: str = DONE, detail: str = ""
    ) -> None:
        """Record what a user did to the own account. One transaction."""
        if self._log is not None:
            with suppress(Unavailable):
                await self._log.record(LogEntry(username, action, username, address or "", result, detail=detail))
