"""Leases: of any number of processes, one has the exclusive right to do something for a while.

A lease expires, so a process that dies blocks no other; while it lives, it renews. But a process can also *stall* (a
paused machine, a long garbage collection, SIGSTOP), continue after its lease has expired and gone to another, and go on
writing. A check before each write does not help, because the process can stall right after the check. So every lease
has a fencing token, a number that only grows, and each write under a lease names it: a store that has seen a higher
token rejects the write. In Lua that is `fence(key, token)`, in SQL `await lease.fence_transaction(tx)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from time import monotonic
from types import TracebackType
from typing import Self

from sqlalchemy import text

from plaza.core import keys as core
from plaza.core.async_engine import AsyncConnection
from plaza.core.errors import Conflict, Unavailable
from plaza.core.functions import Functions, Library

JOBS = Library.read("jobs", core.CATALOGUE, "plaza.core", "jobs")

# Long enough for a slow moment, short enough that the job of a dead worker starts again soon.
LEASE_SECONDS = 30.0

# How often a caller that waits for a lease asks again.
POLL_SECONDS = 0.2

# A lease that expires this soon after the end of the wait is still taken. PTTL rounds down to milliseconds, so a caller
# that waits exactly as long as the lease lasts would otherwise be refused at the last moment.
GRACE_SECONDS = 0.1


class LeaseLost(Conflict):
    title, code = "Another run has taken over", "fenced"


class LeaseHeld(Conflict):
    title, code = "This is being done already", "held"


class Lease:
    """A lease that this process has taken. Pass its token to every write."""

    __slots__ = ("_functions", "name", "token")

    def __init__(self, functions: Functions, name: str, token: int) -> None:
        self._functions = functions
        self.name = name
        self.token = token

    async def check(self) -> None:
        """Raise `LeaseLost` if another run has taken over. One round trip.

        This saves work whose result would be rejected. It does not guard the writes that follow; the token does.
        """
        latest = await self._functions.valkey.call("GET", core.FENCE(self.name))
        if latest is None or int(latest) != self.token:
            raise self.lost()

    async def fence_transaction(self, tx: AsyncConnection) -> None:
        """Raise `LeaseLost` if a later run has written to SQL. Call it first in a transaction: it locks a row."""
        values = {"lease": self.name, "token": self.token}
        for _ in range(2):  # again if another run inserted its row between the two statements
            updated = await tx.execute(
                text("UPDATE fences SET token = :token WHERE lease = :lease AND token <= :token"), values
            )
            if updated.rowcount:
                return
            inserted = await tx.execute(
                text("INSERT INTO fences (lease, token) VALUES (:lease, :token) ON CONFLICT DO NOTHING"), values
            )
            if inserted.rowcount:
                return
        raise self.lost()

    def lost(self) -> LeaseLost:
        return LeaseLost(f"{self.name}: run {self.token} has lost its lease.")


class Leases:
    """Takes leases."""

    def __init__(self, functions: Functions, seconds: float = LEASE_SECONDS) -> None:
        self._functions = functions
        self.seconds = seconds

    @contextlib.asynccontextmanager
    async def hold(self, name: str, wait: float = 0.0) -> AsyncIterator[Lease]:
        """Run the block under a lease. Raises `LeaseHeld` if another process still has it after `wait` seconds.

        If the lease is lost meanwhile, the block is cancelled and `LeaseLost` is raised.
        """
        lease = await self._take(name, monotonic() + wait)
        try:
            async with self.renew(lease):
                yield lease
        finally:
            await release_lease(self._functions, "jobs_release", [core.LEASE(name)], lease)

    def renew(self, lease: Lease) -> LeaseRenewal:
        """Return a context manager that renews a lease while its block runs."""
        return LeaseRenewal(self._functions, lease, self.seconds)

    async def _take(self, name: str, until: float) -> Lease:
        keys = [core.LEASE(name), core.FENCE(name)]
        while True:
            token, *left_ms = await self._functions.run("jobs_lease", keys, _ms(self.seconds))
            if token:
                return Lease(self._functions, name, int(token))
            left = int(left_ms[0]) / 1000 if int(left_ms[0]) >= 0 else math.inf  # PTTL is -1 without an expiry
            wait = until - monotonic()
            if wait <= 0 and left > GRACE_SECONDS:
                raise LeaseHeld(f"{name} is being done already. Try again later.")
            await asyncio.sleep(min(max(wait, GRACE_SECONDS), left + 0.001, POLL_SECONDS))


class LeaseRenewal:
    """Renews a lease while its block runs. As `asyncio.timeout` does, it cancels the block: when the lease is lost."""

    def __init__(self, functions: Functions, lease: Lease, seconds: float) -> None:
        self._functions = functions
        self._lease = lease
        self._seconds = seconds
        self._lost = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._renewal = asyncio.create_task(self._renew())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._renewal.cancel()
        await asyncio.wait([self._renewal])
        if self._lost and self._task.uncancel() <= self._cancelling and kind in (None, asyncio.CancelledError):
            raise self._lease.lost() from error

    async def _renew(self) -> None:
        keys = [core.LEASE(self._lease.name), core.FENCE(self._lease.name)]
        valid_until = monotonic() + self._seconds
        pause = self._seconds / 3
        while True:
            await asyncio.sleep(pause)
            sent_at = monotonic()
            try:
                renewed = await self._functions.run("jobs_renew", keys, self._lease.token, _ms(self._seconds))
            except Unavailable:
                renewed, pause = monotonic() < valid_until, self._seconds / 20
            else:
                valid_until, pause = sent_at + self._seconds, self._seconds / 3
            if not renewed:
                self._lost = True
                self._task.cancel()
                return


async def release_lease(functions: Functions, command: str, keys: list[str], lease: Lease) -> None:
    """Give a lease back, also during cancellation. If Valkey is unavailable, the lease expires."""
    with contextlib.suppress(Unavailable):
        await asyncio.shield(functions.run(command, keys, lease.token))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
