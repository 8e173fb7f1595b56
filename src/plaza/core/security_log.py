"""The interface of the security log: actions with their actor, subject, time, address and result.

The HTTP layer records every admin action through it, and services record what matters for the safety of an account.
`plaza.accounts` stores it in SQL.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

# An action's result while its outcome is unknown. It stays if the process dies before the end.
STARTED = "started"


@dataclass(slots=True)
class LogEntry:
    """One action. `result` is set when it ends."""

    actor: str
    action: str
    subject: str = ""
    address: str = ""
    result: str = STARTED
    request_id: str = ""


class SecurityLog(Protocol):
    async def record(self, entry: LogEntry) -> None:
        """Store an action that has ended."""

    def recording(self, entry: LogEntry) -> AbstractAsyncContextManager[LogEntry]:
        """Store an action before it runs and its result after it. If it cannot be stored, it does not run."""
