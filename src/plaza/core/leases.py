"""The right to do something alone, for a while: of any number of processes one has it.

A lease runs out by itself, so a process that dies holds nobody up; while it lives, it renews. But a process can also
*stall* (a paused machine, a long collection, SIGSTOP), wake after its lease has run out and been given to another, and
go on writing as if nothing had happened. No check before a write helps, since it may stall right after the check.
So every lease comes with a number that only grows, a fencing token, and whatever is written under a lease names it:
the store that has seen a higher one refuses. In Lua that is `fence(key, token)`, in SQL
`await lease.fence_transaction(tx)`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from time import monotonic
from types import TracebackType
from typing import Self

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from plaza.core import keys as core
from plaza.core.errors import Conflict, Unavailable
from plaza.core.functions import Functions, Library

JOBS = Library.read("jobs", core.CATALOGUE, "plaza.core", "jobs")

# Long enough for a slow moment, short enough that a dead worker's job is not missed.
LEASE_SECONDS = 30.0


class LeaseLost(Conflict):
    title, code = "Another run has taken over", "fenced"


class LeaseHeld(Conflict):
    title, code = "This is being done already", "held"


class Lease:
    """A run under a lease. Give its token to whatever it writes with."""

    __slots__ = ("_functions", "name", "token")

    def __init__(self, functions: Functions, name: str, token: int) -> None:
        self._functions = functions
        self.name = name
        self.token = token

    async def check(self) -> None:
        """Raise `LeaseLost` if another run has taken over. One round trip.

        It saves work that would be refused. It does not guard a write that comes after it: the token does.
        """
        last = await self._functions.valkey.call("GET", core.FENCE(self.name))
        if last is None or int(last) != self.token:
            raise LeaseLost(f"{self.name}: run {self.token} has lost its lease.")

    async def fence_transaction(self, tx: AsyncConnection) -> None:
        """Have this transaction refused if a later run has written. First thing in it, since it locks the row."""
        mine = {"lease": self.name, "token": self.token}
        for _ in range(2):  # a second time if another run's row appeared between the two statements
            done = await tx.execute(
                text("UPDATE fences SET token = :token WHERE lease = :lease AND token <= :token"), mine
            )
            if done.rowcount:
                return
            done = await tx.execute(
                text("INSERT INTO fences (lease, token) VALUES (:lease, :token) ON CONFLICT DO NOTHING"), mine
            )
            if done.rowcount:
                return
        raise LeaseLost(f"{self.name}: run {self.token} has lost its lease.")


class Leases:
    """Gives out leases."""

    def __init__(self, functions: Functions, seconds: float = LEASE_SECONDS) -> None:
        self._functions = functions
        self.seconds = seconds

    @contextlib.asynccontextmanager
    async def hold(self, name: str, wait: float = 0.0) -> AsyncIterator[Lease]:
        """Run the block alone. Raises `LeaseHeld` if another still has the lease after `wait` seconds.

        If it is lost on the way, the block is cancelled and `LeaseLost` comes out.
        """
        fence = await self._take(name, monotonic() + wait)
        try:
            async with self.renew(fence):
                yield fence
        finally:
            await release_lease(self._functions, "jobs_release", [core.LEASE(name)], fence)

    def renew(self, fence: Lease) -> LeaseRenewal:
        """Renews a lease that was taken, for as long as the block runs."""
        return LeaseRenewal(self._functions, fence, self.seconds)

    async def _take(self, name: str, until: float) -> Lease:
        keys = [core.LEASE(name), core.FENCE(name)]
        while True:
            token, *left = await self._functions.run("jobs_lease", keys, _ms(self.seconds))
            if token:
                return Lease(self._functions, name, int(token))
            wait = min(until - monotonic(), int(left[0]) / 1000, 0.2)
            if wait <= 0:
                raise LeaseHeld(f"{name} is being done already.")
            await asyncio.sleep(wait)


class LeaseRenewal:
    """A lease that is renewed meanwhile. Works as `asyncio.timeout` does: it cancels the block that it surrounds."""

    def __init__(self, functions: Functions, fence: Lease, seconds: float) -> None:
        self._functions = functions
        self._fence = fence
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
            raise LeaseLost(f"{self._fence.name}: run {self._fence.token} has lost its lease.") from error

    async def _renew(self) -> None:
        keys = [core.LEASE(self._fence.name), core.FENCE(self._fence.name)]
        good_until = monotonic() + self._seconds
        pause = self._seconds / 3
        while True:
            await asyncio.sleep(pause)
            asked = monotonic()
            try:
                ours = await self._functions.run("jobs_renew", keys, self._fence.token, _ms(self._seconds))
            except Unavailable:
                ours, pause = monotonic() < good_until, self._seconds / 20
            else:
                good_until, pause = asked + self._seconds, self._seconds / 3
            if not ours:
                self._lost = True
                self._task.cancel()
                return


async def release_lease(functions: Functions, verb: str, keys: list[str], fence: Lease) -> None:
    """Give a lease back, also while being cancelled. If Valkey is away it runs out by itself."""
    with contextlib.suppress(Unavailable):
        await asyncio.shield(functions.run(verb, keys, fence.token))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
