"""Reads and writes cached rows in Valkey: each method is one call of the Lua library."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from plaza.caching.keys import CacheKeys
from plaza.core.clock import Clock
from plaza.core.functions import Functions

# The time that one reader has to load a row alone. After that another reader may load it.
LOAD_LEASE_MS: Final = 5_000
# A worker that dies delays its rows by this long.
DUE_LEASE_SECONDS: Final = 15.0
DUE_BATCH: Final = 500

# A database row, as JSON. A row with a `version` never replaces one with a higher version.
RowData = Mapping[str, Any]
# Loads rows by their ids.
LoadRows = Callable[[Sequence[Any]], Awaitable[Mapping[Any, RowData]]]
Claim = Literal["yours", "busy", "there"]

_encode = msgspec.json.Encoder().encode


class CachedRow(msgspec.Struct, frozen=True):
    """A row, and whether it may be outdated."""

    json: str
    stale: bool = False

    @classmethod
    def from_data(cls, data: RowData | None) -> CachedRow | None:
        return None if data is None else cls(_encode(data).decode())

    @property
    def data(self) -> dict[str, Any]:
        decoded: dict[str, Any] = msgspec.json.decode(self.json)
        return decoded


class RowReply(Struct, frozen=True):
    """What Valkey has of a row. `row` may be an expired one, to be served if loading takes long."""

    row: CachedRow | None
    state: Literal["", "late", "expired", "missing", "none"]
    fresh_until_ms: float | None
    now_ms: float

    @classmethod
    def from_lua(cls, reply: Sequence[Any]) -> RowReply:
        json, stale, state, until, now = reply
        return cls(CachedRow(json, stale == "1") if json else None, state, float(until) if until else None, float(now))

    @property
    def needs_load(self) -> bool:
        """Whether a reader should load the row. A late row is copied by a worker, and "none" is known not to exist."""
        return self.state in ("expired", "missing")


class DueRows(Struct, frozen=True):
    """Rows that one worker has claimed, and when the next one is due. Times are Unix seconds."""

    ids: list[str]
    claim: str
    now: float
    next_due: float | None


class RowStore:
    """Cached rows in Valkey. Without a clock, Valkey's own is used, which all processes share."""

    def __init__(self, functions: Functions, clock: Clock | None = None) -> None:
        self.functions = functions
        self.keys = CacheKeys(functions.catalogues["caching"])
        self.clock = clock

    def now(self) -> int | str:
        return "" if self.clock is None else self.clock.now_ms()

    async def read(self, id: str) -> RowReply:
        return RowReply.from_lua(await self.functions.query("caching_row", self.keys.row(id), self.now()))

    async def read_tracked(self, id: str, keep: Callable[[RowReply], None]) -> RowReply:
        """Read a row that Valkey tracks from now on: `keep` runs before the news of any later change."""

        def parse_and_keep(reply: list[Any]) -> None:
            keep(RowReply.from_lua(reply))

        return RowReply.from_lua(
            await self.functions.query_tracked("caching_row", self.keys.row(id), self.now(), store=parse_and_keep)
        )

    async def read_many(self, ids: Sequence[str]) -> dict[str, RowReply]:
        """Read rows by their ids. One round trip."""
        if not ids:
            return {}
        replies = await self.functions.query_each("caching_row", [self.keys.row(id) for id in ids], self.now())
        return {id: RowReply.from_lua(reply) for id, reply in zip(ids, replies, strict=True)}

    async def claim(self, id: str, reader: str) -> Claim:
        """Ask for the right to load a row."""
        claimed: Claim = await self.functions.run(
            "caching_claim_row", self.keys.row(id), reader, self.now(), LOAD_LEASE_MS
        )
        return claimed

    async def release(self, id: str, reader: str) -> None:
        await self.functions.run("caching_release_row", self.keys.row(id), reader)

    async def fill(
        self, id: str, data: RowData | None, *, reader: str = "", delay: str | None = None, since_ms: str = ""
    ) -> None:
        """Store what the database has; None: no such row. One round trip; two on a cluster without a delay."""
        json = b"" if data is None else _encode(data)
        version = "" if data is None else data.get("version", "")
        if delay is None:
            delay = await self._read_delay(id) if self.functions.valkey.clustered else "?"
        args = (id, json, version, self.now(), delay, reader, since_ms)
        await self.functions.run("caching_fill_row", self.keys.row(id), *args)

    async def _read_delay(self, id: str) -> str:
        """Return the seconds between two copies, or an empty string if the row is not scheduled."""
        delay, due = await self.functions.valkey.batch(
            [("ZSCORE", self.keys.delays(), id), ("ZSCORE", self.keys.schedule(), id)]
        )
        return "" if delay is None or due is None or float(delay) <= 0 else repr(float(delay))

    async def schedule(self, id: str, delay: float) -> None:
        """Copy a row every `delay` seconds, beginning now; 0 or less removes it from the cache."""
        assert math.isfinite(delay), "a delay is a number of seconds"
        await self.functions.run("caching_schedule", self.keys.row(id), id, repr(float(delay)), self.now())

    async def claim_due(self) -> DueRows:
        """Claim the rows that are due, at most one batch."""
        now, claim, first, *ids = await self.functions.run(
            "caching_claim_due", [self.keys.schedule()], self.now(), DUE_LEASE_SECONDS, DUE_BATCH
        )
        return DueRows(ids, claim, float(now), float(first) if first else None)

    async def set_next_due(self, claim: str, due: Mapping[str, float]) -> None:
        """Set when claimed rows are due again, in Unix seconds."""
        if due:
            pairs = [part for id, at in due.items() for part in (id, repr(at))]
            await self.functions.run("caching_next_due", [self.keys.schedule()], claim, *pairs)

    async def read_delays(self, ids: Sequence[str]) -> dict[str, float]:
        """Return the seconds between two copies of each row; a row that is not to be copied is left out."""
        delays = await self.functions.valkey.call("ZMSCORE", self.keys.delays(), *ids)
        return {id: float(delay) for id, delay in zip(ids, delays, strict=True) if delay and float(delay) > 0}

    async def find_foreign(self, ids: Sequence[str]) -> set[str]:
        """Return the rows that only another service has scheduled and cached: they have no state. One round trip."""
        known = await self.functions.valkey.batch([("EXISTS", self.keys.row_state(id)) for id in ids]) if ids else []
        return {id for id, exists in zip(ids, known, strict=True) if not exists}
