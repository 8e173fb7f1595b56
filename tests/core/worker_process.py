"""A worker process that tests pause and kill: `python -m tests.core.worker_process ROLE URL FOLDER`.

It prints each step to stdout.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable
from pathlib import Path

from sqlalchemy import text

from plaza.core.errors import PlazaError
from plaza.core.functions import Functions, Library
from plaza.core.keyspace import Catalogue, Key, use_layout
from plaza.core.leases import LeaseLost
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.worker import LIBRARIES, Consumer, Event, Lease, Timer, Worker
from tests.timeouts import connect_for_test

# One owner, so that on a cluster too both are in one slot.
LEDGER = Key("ledger:<book>", "list", "The writes of the runs: token and number.", owner="book")
LEDGER_FENCE = Key("ledger:<book>:fence", "string", "The highest token that has written.", owner="book")
CATALOGUE = Catalogue.from_module("shop", globals(), {"book": "[a-z]+"})

LIBRARY = Library(
    "testjobs",
    CATALOGUE,
    """
-- testjobs_write: KEYS ledger, its fence   ARGV token, number
command('write', function(keys, args)
  fence(keys[2], args[1])
  return redis.call('RPUSH', keys[1], args[1] .. ' ' .. args[2])
end)
""",
)

# Three times the delay that a busy machine may cause for a renewal.
LEASE_SECONDS = 2.4
STALE_SECONDS = 1.2


def report(*words: object) -> None:
    print(*words, flush=True)


class WorkerJobs:
    """The jobs and the consumer."""

    def __init__(self, functions: Functions, sql: Sql) -> None:
        self.functions = functions
        self.sql = sql

    async def write(self, token: int, number: int) -> None:
        await self.functions.run("testjobs_write", [LEDGER("a"), LEDGER_FENCE("a")], token, number)

    async def write_sql(self, lease: Lease, number: int) -> None:
        async with self.sql.begin() as tx:
            await lease.fence_transaction(tx)
            await tx.execute(
                text("INSERT INTO written (token, number) VALUES (:t, :n)"), {"t": lease.token, "n": number}
            )

    async def long_job(self, lease: Lease) -> str:
        """Write forty numbers, and once more after cancellation, as a careless job would."""
        report("run", lease.token)
        try:
            for number in range(1, 41):
                await self.write(lease.token, number)
                await self.write_sql(lease, number)
                if number == 20 and await self.functions.valkey.call("LLEN", LEDGER("a")) == number:
                    # The first run. The test pauses this process here, where no SQL transaction holds a lock.
                    report("half of", lease.token)
                    await asyncio.sleep(60)
        except asyncio.CancelledError:
            report("valkey", await self._outcome(self.write(lease.token, -1)))
            report("sql", await self._outcome(self.write_sql(lease, -1)))
            raise
        report("done", lease.token)
        return "forty"

    async def _outcome(self, write: Awaitable[None]) -> str:
        try:
            await asyncio.shield(write)
        except PlazaError as error:
            return "refused" if isinstance(error, LeaseLost) else repr(error)
        return "written"

    async def handle(self, event: Event) -> None:
        await asyncio.sleep(0.004)
        await self.functions.valkey.call("RPUSH", LEDGER("events"), event.fields["n"])


async def main(role: str, url: str, folder: str) -> None:
    valkey = await connect_for_test(url)
    use_layout(valkey.layout)
    functions = Functions(valkey, [*LIBRARIES, LIBRARY])
    await functions.load()
    sql = await Sql.open(Settings(data_dir=Path(folder)))
    jobs = WorkerJobs(functions, sql)
    timers = [Timer("long", 3600, jobs.long_job)] if role == "timers" else []
    consumers = [Consumer("work", "bench", jobs.handle, batch_size=16, stale_seconds=STALE_SECONDS)]
    worker = Worker(functions, timers, consumers if role == "events" else [], lease_seconds=LEASE_SECONDS)
    report("started", os.getpid())
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
