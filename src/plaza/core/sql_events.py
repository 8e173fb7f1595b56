"""Events of source data in SQL: a row in the same transaction, then the stream.

    async with sql.begin() as tx:
        await tx.execute(insert(MEMBER).values(…))
        await add_events(tx, "challenges", [ChallengeJoined(id, name)], now_ms)

The table `event_outbox` is the transaction's part of the stream. Right after the commit the process reads the table in
the order of ids and appends the events to their streams (`SqlEventRelay`). If the process dies, any other process does.
A row has the id of its event, so an event that is relayed twice keeps its id.

Order. Two transactions that change the same row run one after the other, so the second has the higher id, and a read
that finds its row finds the first one's too. Relays read all rows, in order, and a stream drops what it was given
within the last minute. So several processes can relay at once. A relay that stalls between reading and appending is
refused after five seconds, by Valkey's clock. Transactions that do not touch the same rows have no order to keep.

A relayed row is deleted about a second later, together with others: that saves a transaction for each event.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from time import monotonic
from typing import Any

import msgspec
import structlog
from sqlalchemy import BigInteger, Column, Integer, Row, String, Table, Text, delete, insert, select

from plaza.core import keys as core
from plaza.core.async_engine import AsyncConnection
from plaza.core.errors import Unavailable
from plaza.core.event_streams import EventStream, stream_of
from plaza.core.events import EventData
from plaza.core.functions import Functions
from plaza.core.outbox import UpdateTooLate
from plaza.core.sequences import chunks
from plaza.core.sql import Sql, metadata, note_events

METADATA = metadata()
EVENT_OUTBOX = Table(
    "event_outbox",
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("event_id", String(80), nullable=False),
    Column("stream", String(40), nullable=False),
    Column("type", String(80), nullable=False),
    Column("subject", String(200), nullable=False),
    Column("time_ms", BigInteger, nullable=False),
    Column("data", Text, nullable=False),
    Column("origin", String(20), nullable=False),
    sqlite_autoincrement=True,  # an id is never used again: a late DELETE hits no other row
)

# Rows read at once, and relayed in one call for each stream.
BATCH = 500
# Relayed rows wait this long for their deletion, so that many are deleted in one transaction.
DELETE_SECONDS = 1.0
# How often a process looks for rows of processes that died.
SWEEP_SECONDS = 5.0
# Between tries while Valkey or SQL is unavailable.
RETRY_SECONDS = 1.0

_OLDEST = select(EVENT_OUTBOX).order_by(EVENT_OUTBOX.c.id).limit(BATCH)

log = structlog.get_logger("plaza.events")


async def add_events(
    tx: AsyncConnection, stream: str, events: Sequence[EventData], time_ms: int, origin: str = ""
) -> None:
    """Add events to a transaction, after the rows that they are about. One statement.

    Their stream has them shortly after the commit, and never without it.
    """
    if not events:
        return
    rows = [
        {
            "event_id": f"{stream}-{secrets.token_hex(12)}",
            "stream": stream,
            "type": event.type,
            "subject": str(getattr(event, event.subject)),
            "time_ms": time_ms,
            "data": msgspec.json.encode(event).decode(),
            "origin": origin,
        }
        for event in events
    ]
    await tx.execute(insert(EVENT_OUTBOX), rows)
    note_events(tx)


class SqlEventRelay:
    """Appends the events of committed transactions to their streams. Every process has one."""

    def __init__(self, functions: Functions, sql: Sql) -> None:
        self._functions = functions
        self._sql = sql
        self._committed = asyncio.Event()
        self._relayed: set[int] = set()  # ids of rows to delete
        self._delete_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._stop_listening = sql.on_events(self._committed.set)

    def start(self) -> None:
        """Relay from now on, in the background."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Relay what is committed, if Valkey and SQL are available, and stop."""
        self._stop_listening()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        with contextlib.suppress(Unavailable):
            await self.relay_all()
            await self._delete_relayed()

    async def relay_all(self) -> int:
        """Relay all rows; return how many were new. One round trip to Valkey, one query, one call for each stream."""
        count = 0
        while True:
            new = await self._relay_batch()
            count += new
            if len(self._relayed) < BATCH:
                return count
            await self._delete_relayed()  # the next batch is behind these rows

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds_to_wait()):
                    await self._committed.wait()
            self._committed.clear()
            try:
                await self.relay_all()
                if self._relayed and monotonic() >= self._delete_at:
                    await self._delete_relayed()
            except (Unavailable, UpdateTooLate) as error:
                log.warning("events_not_relayed", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                self._committed.set()
            except Exception as error:
                log.error("events_not_relayed", exc_info=error)
                await asyncio.sleep(SWEEP_SECONDS)

    def _seconds_to_wait(self) -> float:
        return max(self._delete_at - monotonic(), 0.0) if self._relayed else SWEEP_SECONDS

    async def _relay_batch(self) -> int:
        # The deadline comes from before the rows are read: a relay that stalls has read rows that others may have
        # relayed, and the stream may have forgotten.
        deadline = await self._functions.query("events_deadline", [core.LIBRARIES()])
        rows = [row for row in await self._sql.fetch_all(_OLDEST) if row.id not in self._relayed]
        by_stream: dict[EventStream, list[Row[Any]]] = {}
        for row in rows:
            by_stream.setdefault(stream_of(row.stream, row.subject), []).append(row)
        for stream, some in by_stream.items():
            await self._append(stream, deadline, some)
        if rows and not self._relayed:
            self._delete_at = monotonic() + DELETE_SECONDS
        self._relayed |= {row.id for row in rows}
        return len(rows)

    async def _append(self, stream: EventStream, deadline: str, rows: list[Row[Any]]) -> None:
        words = [
            word for row in rows for word in (row.event_id, row.type, row.subject, row.time_ms, row.data, row.origin)
        ]
        await self._functions.run("events_append", [stream.key, stream.relayed_key], deadline, *words)

    async def _delete_relayed(self) -> None:
        """Delete relayed rows. A process that dies before leaves them to others, who relay them again."""
        relayed = sorted(self._relayed)
        async with self._sql.begin() as tx:
            for ids in chunks(relayed, BATCH):
                await tx.execute(delete(EVENT_OUTBOX).where(EVENT_OUTBOX.c.id.in_(ids)))
        self._relayed.difference_update(relayed)
