"""Copies scheduled rows from the database to Valkey when they are due."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from plaza.caching.row_ids import RowIds
from plaza.caching.row_store import DueRows, LoadRows, RowData, RowStore
from plaza.core import metrics
from plaza.core.errors import Unavailable

log = structlog.get_logger("plaza.caching")

# After the database failed, its rows are due again this soon.
RETRY_SECONDS: Final = 1.0
# Ids that cannot be those of rows are due again this late.
INVALID_SECONDS: Final = 3600.0
# The longest pause of an idle worker: new rows are seen within this time.
MAX_PAUSE_SECONDS: Final = 0.2

_copied, _failed = map(metrics.CACHE_ROWS.labels, ("done", "failed"))


class RowWorker:
    """Copies due rows. Any number of processes may run one; each due row goes to one of them."""

    def __init__(self, store: RowStore, load: LoadRows, ids: RowIds) -> None:
        self._store = store
        self._load = load  # by the texts of ids
        self._ids = ids

    async def run(self) -> None:
        """Copy rows when they are due, until cancelled."""
        while True:
            try:
                pause = await self.copy_due()
            except Unavailable as error:
                log.warning("row_worker_valkey_unavailable", error=str(error))
                pause = RETRY_SECONDS
            await asyncio.sleep(pause)

    async def copy_due(self) -> float:
        """Copy the due rows, at most one batch. Return the seconds until the next call is useful."""
        due = await self._store.claim_due()
        if due.ids:
            await self._copy(due)
            return 0.0
        wait = MAX_PAUSE_SECONDS if due.next_due is None else due.next_due - due.now
        return min(max(wait, 0.0), MAX_PAUSE_SECONDS)

    async def _copy(self, due: DueRows) -> None:
        """Load the claimed rows with one query, store them, and set when they are due again."""
        ids = await self._valid_ids(due)
        delays = await self._store.read_delays(ids) if ids else {}
        removed = [id for id in ids if id not in delays]
        try:
            rows = await self._load(list(delays)) if delays else {}
        except Exception as error:  # any failure of the loader: the previous rows stay, and the worker tries again
            log.warning("row_copy_failed", rows=len(delays), error=str(error))
            _failed.inc(len(delays))
            await self._store.set_next_due(due.claim, dict.fromkeys(delays, due.now + RETRY_SECONDS))
        else:
            missing = [id for id in delays if id not in rows]
            foreign = await self._store.find_foreign(missing)
            removed += [id for id in missing if id not in foreign]
            await self._fill(due, rows, delays)
            # Rows of another database: the service that scheduled them copies them.
            await self._store.set_next_due(due.claim, {id: due.now + delays[id] for id in foreign})
            _copied.inc(len(rows))
        await asyncio.gather(*(self._store.schedule(id, 0) for id in removed))

    async def _fill(self, due: DueRows, rows: Mapping[str, RowData], delays: Mapping[str, float]) -> None:
        since_ms = str(round(due.now * 1000))
        await asyncio.gather(
            *(self._store.fill(id, data, delay=repr(delays[id]), since_ms=since_ms) for id, data in rows.items())
        )
        # Counted from the claim, so that the time a copy takes does not add to the delay.
        await self._store.set_next_due(due.claim, {id: due.now + delays[id] for id in rows})

    async def _valid_ids(self, due: DueRows) -> list[str]:
        """Other services may write `schedule:` too. An invalid id there stays, and must not stop the other rows."""
        invalid = [id for id in due.ids if not self._ids.is_text(id)]
        if invalid:
            log.warning("row_schedule_invalid_ids", ids=invalid[:10])
            await self._store.set_next_due(due.claim, dict.fromkeys(invalid, due.now + INVALID_SECONDS))
        return [id for id in due.ids if self._ids.is_text(id)]
