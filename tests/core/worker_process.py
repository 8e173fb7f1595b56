"""A worker process that tests pause and kill: `python -m tests.core.worker_process ROLE URL FOLDER`.

It says on stdout, line by line, what it does.
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
LEDGER = Key("ledger:<book>", "list", "What runs wrote: token and number.", owner="book")
LEDGER_FENCE = Key("ledger:<book>:fence", "string", "The highest token that wrote.", owner="book")
CATALOGUE = Catalogue.from_module("shop", globals(), {"book": "[a-z]+"})

LIBRARY = Library(
    "workshop",
    CATALOGUE,
    """
-- workshop_write: KEYS ledger, its fence   ARGV token, number
command('write', function(keys, args)
  fence(keys[2], args[1])
  return redis.call('RPUSH', keys[1], args[1] .. ' ' .. args[2])
end)
""",
)

# Three times what a worker on a busy machine may be late to renew it by.
LEASE_SECONDS = 2.4
STALE_SECONDS = 1.2


def say(*words: object) -> None:
    print(*words, flush=True)


class Bench:
    """What the jobs work on."""

    def __init__(self, functions: Functions, sql: Sql) -> None:
        self.functions = functions
        self.sql = sql

    async def write(self, token: int, number: int) -> None:
        await self.functions.run("workshop_write", [LEDGER("a"), LEDGER_FENCE("a")], token, number)

    async def write_sql(self, fence: Lease, number: int) -> None:
        async with self.sql.begin() as tx:
            await fence.fence_transaction(tx)
            await tx.execute(
                text("INSERT INTO written (token, number) VALUES (:t, :n)"), {"t": fence.token, "n": number}
            )

    async def long_job(self, fence: Lease) -> str:
        """Writes forty numbers, and once more when it is broken off, as a careless job would."""
        say("run", fence.token)
        try:
            for number in range(1, 41):
                await self.write(fence.token, number)
                await self.write_sql(fence, number)
                if number == 20 and fence.token == 1:
                    # The moment to pause us: with no SQL transaction open, whose lock would then stay held.
                    say("half of", fence.token)
                    await asyncio.sleep(60)
        except asyncio.CancelledError:
            say("valkey", await self._refused(self.write(fence.token, -1)))
            say("sql", await self._refused(self.write_sql(fence, -1)))
            raise
        say("done", fence.token)
        return "forty"

    async def _refused(self, writing: Awaitable[None]) -> str:
        try:
            await asyncio.shield(writing)
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
    bench = Bench(functions, sql)
    timers = [Timer("long", 3600, bench.long_job)] if role == "timers" else []
    consumers = [Consumer("work", "bench", bench.handle, batch_size=16, stale_seconds=STALE_SECONDS)]
    worker = Worker(functions, timers, consumers if role == "events" else [], lease_seconds=LEASE_SECONDS)
    say("started", os.getpid())
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
