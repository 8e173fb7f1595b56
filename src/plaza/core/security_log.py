"""The interface of the security log: actions with their actor, subject, time, address and result.

The HTTP layer and the command line record every admin action through it, and services record what matters for the
safety of an account. `plaza.accounts` stores it in SQL.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, Literal, Protocol

import structlog
from msgspec import Struct

from plaza.core.errors import Unavailable

# An action's result while its outcome is unknown. It stays if the process dies before the end.
STARTED: Final = "started"
DONE: Final = "done"

# How long the action of a user waits for its entry.
STORE_SECONDS: Final = 2.0
# Entries that are stored after the response; further ones are lost.
MAX_WAITING: Final = 100

_log = structlog.get_logger("plaza.security_log")

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
    failed statements. While it is slow or locked, entries are stored after the response. Without a log nothing is
    recorded.
    """

    def __init__(self, log: SecurityLog | None, notices: SecurityNotices | None = None) -> None:
        self._log = log
        self._notices = notices
        self._storing: set[asyncio.Task[None]] = set()

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
            await self._store(self._log, LogEntry(username, action, username, address or "", result, detail=detail))

    async def notify(self, username: str, action: str, address: str | None = None) -> None:
        """Tell a user of a change that is recorded elsewhere, such as an operator's."""
        if self._notices is not None:
            with suppress(Unavailable):
                await self._notices.notify(username, action, address)

    def close(self) -> None:
        """Give up what is not stored yet, before the database is closed."""
        for task in self._storing:
            task.cancel()

    async def _store(self, log: SecurityLog, entry: LogEntry) -> None:
        """Store an entry, and wait for that a short time only."""

        async def store() -> None:
            with suppress(Unavailable):
                await log.record(entry)

        if len(self._storing) >= MAX_WAITING:
            _log.warning("security_log_entry_lost", action=entry.action, actor=entry.actor)
            return
        task = asyncio.create_task(store())
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)
        done, _ = await asyncio.wait({task}, timeout=STORE_SECONDS)
        for each in done:
            each.result()
