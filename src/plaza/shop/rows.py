"""A cache of database rows: `inv:<id>`, copied by a worker when `schedule:` says so, as often as `delay:` says.

It needs nothing but a Valkey and a function that loads rows, so it works in any application:

    async with connect("valkey://localhost") as store:
        rows = RowCache(store, load)            # async load(ids) -> {id: {"name": …}, …}
        await rows.schedule("273", delay=10)    # copied every 10 s from now on …
        worker = asyncio.create_task(rows.work())   # … by this and any number of other processes
        row = await rows.get("273")             # one round trip; row.stale says if it is older than it should be

A read never waits for a database that has answered before: while it is slow or dead, the last row is served and says
so. Of many readers who miss the same row, in any number of processes, one loads it.
"""

from __future__ import annotations

import asyncio
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import msgspec
import structlog

from plaza.core import metrics
from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from plaza.core.tracking_cache import TrackingCache
from plaza.shop.keys import ITEM, SHOP_DELAYS, SHOP_SCHEDULE, of_row

log = structlog.get_logger("plaza.shop")

# How long one reader has the right to load a row alone. Then it is taken for dead.
LOAD_LEASE_MS: Final = 5_000
# A reader who could have the old row waits no longer than this for the new one.
PATIENCE_SECONDS: Final = 0.25
# Without an old row there is nothing else to give, so it waits as long as a client would.
LONG_PATIENCE_SECONDS: Final = 10.0
# How long a row that nobody scheduled is fresh; `rows.lua` has the same number.
BRIEF_SECONDS: Final = 5.0
# How often one process looks whether another has loaded the row.
LOOK_SECONDS: Final = 0.02

# How many rows a process has at hand: some 5 MB of them.
HOT_ROWS: Final = 5_000

# A worker that dies holds its rows back for this long.
DUE_LEASE_SECONDS: Final = 15.0
DUE_BATCH: Final = 500
# After the database failed, its rows are tried again this soon.
RETRY_SECONDS: Final = 1.0
# A worker that found nothing due looks again at least this often, so that new rows are seen.
LONGEST_NAP_SECONDS: Final = 0.2

# A row of the database, as JSON has it. One with a `version` never replaces one with a higher version.
Data = Mapping[str, Any]
Load = Callable[[Sequence[str]], Awaitable[Mapping[str, Data]]]

_ID = re.compile(ITEM)
_copied, _failed = map(metrics.CACHE_ROWS.labels, ("done", "failed"))
_encode = msgspec.json.Encoder().encode


class Row(msgspec.Struct, frozen=True):
    """A row and whether it may be out of date."""

    json: str
    stale: bool = False

    @property
    def data(self) -> dict[str, Any]:
        decoded: dict[str, Any] = msgspec.json.decode(self.json)
        return decoded


@dataclass(frozen=True, slots=True)
class _AtHand:
    """A row that this process has, until Valkey says that it changed."""

    row: Row
    until_ms: float
    read_ms: float  # by the store's clock …
    read_at: float  # … and by ours, in seconds since some moment

    def is_fresh(self, clock: Clock | None) -> bool:
        now = self.read_ms + (monotonic() - self.read_at) * 1000 if clock is None else clock.now_ms()
        return now <= self.until_ms


class RowCache:
    """Rows through Valkey."""

    def __init__(self, functions: Functions, load: Load, *, clock: Clock | None = None) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._clock = clock  # None: Valkey's, which all processes share
        self._load = load
        self._loading: dict[str, asyncio.Task[Row | None]] = {}
        self._wanted: dict[str, asyncio.Future[Data | None]] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self._who = secrets.token_hex(6)
        self._hot: TrackingCache[_AtHand] = TrackingCache(functions.valkey, HOT_ROWS)

    async def get(self, id: str) -> Row | None:
        """A row, or None if the database has none. One round trip if it is cached, none if it is at hand."""
        _check(id)
        keys = of_row(id)
        at_hand = self._at_hand(keys)
        if at_hand is not None:
            return at_hand

        def keep(reply: list[Any]) -> None:
            json, _, why, until, now = reply
            if why == "" and until:
                self._hot.put(keys[0], _AtHand(Row(json), float(until), float(now), monotonic()))

        return await self.given(id, await self._functions.query_tracked("shop_row", keys, self._now(), store=keep))

    async def get_many(self, ids: Sequence[str]) -> list[Row | None]:
        """Rows in the order of their ids. One round trip, and one query for all that are not cached."""
        for id in ids:
            _check(id)
        keys = {id: of_row(id) for id in ids}
        rows: dict[str, Row | None] = {id: row for id in keys if (row := self._at_hand(keys[id])) is not None}
        asked = [id for id in keys if id not in rows]
        replies = await self._functions.query_each("shop_row", [keys[id] for id in asked], self._now()) if asked else []
        found = dict(zip(asked, replies, strict=True))
        rows.update((id, _row(reply)) for id, reply in found.items() if reply[2] in _CACHED)
        # A task for each where there is something to wait for, and only there: they are dearer than all the rest.
        awaited = [id for id in asked if id not in rows]
        renewed = await asyncio.gather(*(self.given(id, found[id]) for id in awaited))
        rows.update(zip(awaited, renewed, strict=True))
        return [rows[id] for id in ids]

    def _at_hand(self, keys: Sequence[str]) -> Row | None:
        found = self._hot.get(keys[0])
        return found.row if found is not None and found.is_fresh(self._clock) else None

    async def given(self, id: str, reply: Sequence[Any]) -> Row | None:
        """The row, from what a function that read it by the way (`read_row` in Lua) has found."""
        if reply[2] in _CACHED:
            return _row(reply)
        old = Row(reply[0], stale=True) if reply[0] else None
        return await self._renewed(id, old)

    async def reload(self, id: str) -> Row | None:
        """A row from the database whatever is cached, which it replaces."""
        data = await self._loaded(id)
        await self._fill(id, data)
        return None if data is None else Row(_encode(data).decode())

    async def put(self, id: str, data: Data | None) -> None:
        """What the database has now, known because we just wrote it. None: it is gone. One round trip."""
        await self._fill(id, data)

    async def schedule(self, id: str, delay: float) -> None:
        """Copy a row every `delay` seconds, beginning now; 0 or less takes it out of the cache. One round trip."""
        _check(id)
        assert math.isfinite(delay), "a delay is a number of seconds"
        await self._functions.run("shop_schedule", of_row(id), id, repr(float(delay)), self._now())

    async def _renewed(self, id: str, old: Row | None) -> Row | None:
        """The row from the database, if this process may load it; else what another has loaded, or the old one."""
        loading = self._loading.get(id)
        if loading is None:
            loading = self._loading[id] = asyncio.create_task(self._load_or_wait(id, old))
            loading.add_done_callback(lambda task: self._done(id, task))
        if old is None:
            return await asyncio.shield(loading)
        done, _ = await asyncio.wait([loading], timeout=PATIENCE_SECONDS)
        # A database that fails or dawdles is no reason to give nothing.
        return loading.result() if done and loading.exception() is None else old

    def _done(self, id: str, task: asyncio.Task[Row | None]) -> None:
        del self._loading[id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a row could not be loaded", id=id, error=str(error))

    async def _load_or_wait(self, id: str, old: Row | None) -> Row | None:
        until = asyncio.get_running_loop().time() + LONG_PATIENCE_SECONDS
        while True:
            who, now = f"{self._who}-{secrets.token_hex(4)}", self._now()
            claimed = await self._functions.run("shop_claim_row", of_row(id), who, now, LOAD_LEASE_MS)
            if claimed == "yours":
                return await self._load_one(id, who)
            if claimed == "busy":
                if old is not None:
                    return old
                if asyncio.get_running_loop().time() > until:
                    raise Unavailable("The database is slow; try again shortly.")
                await asyncio.sleep(LOOK_SECONDS)
            json, stale, why, *_ = await self._functions.query("shop_row", of_row(id), self._now())
            if why not in ("expired", "missing"):
                return Row(json, stale == "1") if json else None

    async def _load_one(self, id: str, who: str) -> Row | None:
        try:
            data = await self._loaded(id)
        except BaseException:
            await self._functions.run("shop_release_row", of_row(id), who)
            raise
        await self._fill(id, data, who=who)
        return None if data is None else Row(_encode(data).decode())

    def _loaded(self, id: str) -> asyncio.Future[Data | None]:
        """One row, read together with all others that are wanted in this moment."""
        if not self._wanted:
            asyncio.get_running_loop().call_soon(self._read_wanted)
        if id not in self._wanted:
            self._wanted[id] = asyncio.get_running_loop().create_future()
        return self._wanted[id]

    def _read_wanted(self) -> None:
        wanted, self._wanted = self._wanted, {}

        async def read() -> None:
            try:
                rows = await self._load(list(wanted))
            except BaseException as error:
                for future in wanted.values():
                    if not future.done():
                        future.set_exception(error)
                return
            for id, future in wanted.items():
                if not future.done():
                    future.set_result(rows.get(id))

        task = asyncio.create_task(read())
        self._reading.add(task)  # or it might be collected
        task.add_done_callback(self._reading.discard)

    async def _fill(self, id: str, data: Data | None, *, who: str = "", delay: str = "", since: str = "") -> bool:
        json = b"" if data is None else _encode(data)
        version = "" if data is None else data.get("version", "")
        written = await self._functions.run("shop_fill_row", of_row(id), json, version, self._now(), delay, who, since)
        return bool(written)

    async def work(self) -> None:
        """Copy rows when they are due, for ever. Any number of processes may do so: each row is one's."""
        while True:
            try:
                nap = await self.turn()
            except Unavailable as error:
                log.warning("rows wait: Valkey is away", error=str(error))
                nap = RETRY_SECONDS
            await asyncio.sleep(nap)

    async def turn(self) -> float:
        """Copy what is due, at most one batch. Returns how long it is worth sleeping, in seconds."""
        now, claim, first, *ids = await self._functions.run(
            "shop_claim_due", [SHOP_SCHEDULE()], self._now(), DUE_LEASE_SECONDS, DUE_BATCH
        )
        if ids:
            await self._strike([id for id in ids if _ID.fullmatch(id) is None])
            await self._copy(claim, [id for id in ids if _ID.fullmatch(id) is not None], float(now))
            return 0.0
        wait = float(first) - float(now) if first else LONGEST_NAP_SECONDS
        return min(max(wait, 0.0), LONGEST_NAP_SECONDS)

    async def _strike(self, ids: list[str]) -> None:
        """Others may write `schedule:` too. What cannot be an id there must not hold up the rows beside it."""
        if ids:
            log.warning("what cannot be a row's id was taken off the schedule", ids=ids[:10])
            await self._valkey.batch([("ZREM", key, *ids) for key in (SHOP_DELAYS(), SHOP_SCHEDULE())])

    async def _copy(self, claim: str, ids: list[str], since: float) -> None:
        """Copy claimed rows and say when they are due again: one query, whatever their number."""
        if not ids:
            return
        delays = dict(zip(ids, await self._valkey.call("ZMSCORE", SHOP_DELAYS(), *ids), strict=True))
        wanted = [id for id, delay in delays.items() if delay is not None and float(delay) > 0]
        gone = [id for id in ids if id not in set(wanted)]
        try:
            rows = await self._load(wanted) if wanted else {}
        except Exception as error:  # whatever it is, the old rows stay, and it is tried again
            log.warning("rows could not be copied", rows=len(wanted), error=str(error))
            _failed.inc(len(wanted))
            await self._next(claim, dict.fromkeys(wanted, since + RETRY_SECONDS))
        else:
            gone += [id for id in wanted if id not in rows]
            await self._copied(claim, rows, delays, since)
            _copied.inc(len(rows))
        await asyncio.gather(*(self.schedule(id, 0) for id in gone))

    async def _copied(
        self, claim: str, rows: Mapping[str, Data], delays: Mapping[str, float | None], since: float
    ) -> None:
        said = {id: str(delays[id]) for id in rows}
        since_ms = str(round(since * 1000))
        await asyncio.gather(*(self._fill(id, data, delay=said[id], since=since_ms) for id, data in rows.items()))
        # From when it was claimed, not from when it is done: a row is copied every `delay` seconds, not more rarely.
        await self._next(claim, {id: since + float(delay) for id, delay in said.items()})

    async def _next(self, claim: str, due: Mapping[str, float]) -> None:
        if due:
            pairs = [part for id, at in due.items() for part in (id, repr(at))]
            await self._functions.run("shop_next_due", [SHOP_SCHEDULE()], claim, *pairs)

    def _now(self) -> int | str:
        return "" if self._clock is None else self._clock.now_ms()


# What `read_row` says of a row that need not be loaded: it is there, there but late, or known to be none.
_CACHED: Final = ("", "late", "none")


def _row(reply: Sequence[Any]) -> Row | None:
    json, stale, why = reply[:3]
    return None if why == "none" else Row(json, stale == "1")


def _check(id: str) -> None:
    if _ID.fullmatch(id) is None:
        raise ValueError("a row's id is 1 to 64 of A-Z, a-z, 0-9, `_`, `.` and `-`")
