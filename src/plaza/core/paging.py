"""Lists in pages: nothing repeats, nothing is skipped, and a page is full unless the list ends.

A list ordered by time is read by *position*: the cursor holds the score and id of the last item looked at, and the next
page begins behind that place, whether or not the item is still there. A list ordered by a moving score cannot be read
so, for items overtake each other between two pages: its first page fixes a *snapshot* of the ids, and later pages
read that.

Some items are not for every reader (banned, blocked, deleted meanwhile). They are looked at and left out, and the page
is filled from further on.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Generic, TypeVar

import msgspec
from msgspec import Meta

from plaza.core.clock import Clock
from plaza.core.errors import Gone, Invalid
from plaza.core.functions import Functions, Library
from plaza.core.keys import CATALOGUE, SNAPSHOT
from plaza.core.valkey import Valkey

T = TypeVar("T")
C = TypeVar("C", "Position", "SnapshotPosition")
P = TypeVar("P")

LIBRARY: Final = Library.read("paging", CATALOGUE, "plaza.core", "paging")

# However much of a list is hidden from a reader, one page costs no more than this.
MOST_LOOKED_AT: Final = 1_000
SNAPSHOT_SIZE: Final = 1_000
SNAPSHOT_MS: Final = 600_000

# A list that has not changed has the same snapshot, and its readers share it. To be sure it outlives the cursors given
# out meanwhile, it lives a minute longer than they do and is written again when a minute has passed.
REWRITE_MS: Final = 60_000

# Snapshots that this process need not write again, by id.
REMEMBERED_SNAPSHOTS: Final = 4_096

# Once a page needs filling, steps of this many: hidden items come in clusters.
FILL_STEP: Final = 50

# What an offset passes over is looked at in steps of this many, so that no step is long.
PASS_STEP: Final = 250


class Page(msgspec.Struct, frozen=True):
    """The query of a list. A handler takes it as `page: Page`."""

    limit: Annotated[int, Meta(ge=1, le=100, description="How many at most.")] = 20
    cursor: Annotated[str, Meta(max_length=512, description="`next_cursor` of the page before.")] | None = None
    offset: Annotated[int, Meta(ge=0, le=1000, description="How many to pass over, in place of a cursor.")] = 0


class Pagination(msgspec.Struct, frozen=True):
    """Where a page ends. `next_cursor` is null at the end of the list."""

    limit: int
    count: int
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class PageResult(Generic[T]):
    """A page: its items, and how to go on."""

    items: list[T]
    pagination: Pagination


class Position(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """A place in a list by time: behind the item of this score and id."""

    list: int
    score: float
    id: str


class SnapshotPosition(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """A place in a snapshot: behind the id at this index. `made_ms` is when the first page was read."""

    list: int
    snapshot: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    index: Annotated[int, Meta(ge=0, lt=SNAPSHOT_SIZE)]
    made_ms: int


Cursor = Position | SnapshotPosition

# What comes behind a place, at most so many: ids, each with its own place. None is the beginning.
FetchIds = Callable[[P | None, int], Awaitable[Sequence[tuple[str, P]]]]

# Items by their ids, in the same order; None for one that is not there, or not for this reader.
LoadItems = Callable[[Sequence[str]], Awaitable[Sequence[T | None]]]

# Which of some ids the reader would see: what an offset passes over need not be loaded, only counted.
CheckVisible = Callable[[Sequence[str]], Awaitable[Sequence[bool]]]

_decode: Callable[[bytes], Cursor] = msgspec.msgpack.Decoder(Cursor).decode
_encode = msgspec.msgpack.Encoder().encode


def encode_cursor(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(_encode(cursor)).rstrip(b"=").decode()


def decode_cursor(text: str, name: str, kind: type[C]) -> C:
    """A cursor of the list of that name; one of another list, or none of ours, is refused."""
    try:
        cursor = _decode(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise Invalid("This is no cursor of ours.", field="cursor") from error
    if not isinstance(cursor, kind) or cursor.list != list_checksum(name):
        raise Invalid("This cursor belongs to another list.", field="cursor")
    if isinstance(cursor, Position) and math.isnan(cursor.score):
        raise Invalid("This is no cursor of ours.", field="cursor")
    return cursor


def list_checksum(name: str) -> int:
    """What marks a list's cursors as its own."""
    # Against mistakes, not against forgery: a forged cursor shows nothing that an honest one would not.
    return zlib.crc32(name.encode())


async def page_by_position(
    name: str, page: Page, after: FetchIds[Position], load: LoadItems[T], sees: CheckVisible | None = None
) -> PageResult[T]:
    """A page of a list whose items keep their place. `name` tells its cursors from other lists'."""
    start = decode_cursor(page.cursor, name, Position) if page.cursor else None
    return _paged(page, *await fill_page(page, after, start, load, sees))


def ids_in_sorted_set(functions: Functions, key: str, *, newest_first: bool = True) -> FetchIds[Position]:
    """Places in a sorted set, for `page_by_position(key, …)`. One round trip, whatever the size of the set."""
    name = list_checksum(key)

    async def after(start: Position | None, count: int) -> list[tuple[str, Position]]:
        if start is None:
            order = ["REV"] if newest_first else []
            rows = await functions.valkey.call("ZRANGE", key, 0, count - 1, *order, "WITHSCORES")
        else:
            order = ["newest" if newest_first else "oldest"]
            flat = await functions.query("paging_after", [key], repr(start.score), start.id, count, *order)
            rows = zip(flat[::2], flat[1::2], strict=True)
        return [(id, Position(name, float(score), id)) for id, score in rows]

    return after


async def fill_page(
    page: Page, after: FetchIds[P], start: P | None, load: LoadItems[T], sees: CheckVisible | None = None
) -> tuple[list[T], P | None]:
    """The items of a page, and the place where it stopped, if anything comes behind it."""
    if start is not None and page.offset:
        raise Invalid("Give a cursor or an offset, not both.", field="offset")
    kept: list[T] = []
    place, looked_at = start, 0
    if page.offset:
        place, passed, more = await _pass_over(page.offset, after, sees or _by_loading(load))
        if not passed:
            return kept, place if more else None
    while True:
        need = page.limit - len(kept)
        step = min(need if looked_at == 0 else max(need, FILL_STEP), MOST_LOOKED_AT - looked_at)
        rows = await after(place, step + 1)  # one more, only to see whether it is there
        rows, more = rows[:step], len(rows) > step
        items = await load([id for id, _ in rows]) if rows else []
        for index, item in enumerate(items):
            place = rows[index][1]
            if item is None:
                continue
            kept.append(item)
            if len(kept) == page.limit:
                return kept, place if more or index + 1 < len(rows) else None
        looked_at += len(rows)
        if not more or looked_at >= MOST_LOOKED_AT:
            return kept, place if more else None


async def _pass_over(count: int, after: FetchIds[P], sees: CheckVisible) -> tuple[P | None, bool, bool]:
    """The place behind so many items that the reader sees, whether there were so many, and whether more may come."""
    place, left = None, MOST_LOOKED_AT + count
    while left > 0:
        step = min(PASS_STEP, left, count if place is None else max(count, FILL_STEP))
        rows = await after(place, step)
        for (_, here), seen in zip(rows, await sees([id for id, _ in rows]) if rows else (), strict=True):
            place, count = here, count - seen
            if count == 0:
                return place, True, True
        if len(rows) < step:
            return place, False, False
        left -= len(rows)
    return place, False, True


def _by_loading(load: LoadItems[T]) -> CheckVisible:
    async def sees(ids: Sequence[str]) -> list[bool]:
        return [item is not None for item in await load(ids)]

    return sees


def _paged(page: Page, items: list[T], stopped: Cursor | None) -> PageResult[T]:
    cursor = None if stopped is None else encode_cursor(stopped)
    return PageResult(items, Pagination(page.limit, len(items), cursor))


class Snapshots:
    """Pages of lists that are ordered by a moving score."""

    def __init__(self, valkey: Valkey, clock: Clock) -> None:
        self._valkey = valkey
        self._clock = clock
        self._written: OrderedDict[str, int] = OrderedDict()

    async def page(
        self,
        name: str,
        page: Page,
        ids: Callable[[int], Awaitable[Sequence[str]]],
        load: LoadItems[T],
        sees: CheckVisible | None = None,
    ) -> PageResult[T]:
        """A page. `ids(n)` gives the first n as they stand now; it is asked only for the first page.

        What one reader sees must be in `name`, if the list is theirs alone.
        """
        if page.cursor:
            mark = decode_cursor(page.cursor, name, SnapshotPosition)
            if not mark.snapshot.startswith(_first_of_id(name)):
                raise Invalid("This cursor belongs to another list.", field="cursor")
            if self._clock.now_ms() - mark.made_ms > SNAPSHOT_MS:
                raise _gone()
            return _paged(page, *await fill_page(page, self._kept(mark), mark, load))
        now = self._clock.now_ms()
        standing = (await ids(SNAPSHOT_SIZE))[:SNAPSHOT_SIZE]
        snapshot = _snapshot_id(name, standing)
        items, stopped = await fill_page(page, _in_memory(name, snapshot, now, standing), None, load, sees)
        if stopped is not None:
            await self._keep(snapshot, standing, now)
        return _paged(page, items, stopped)

    def _kept(self, mark: SnapshotPosition) -> FetchIds[SnapshotPosition]:
        async def after(start: SnapshotPosition | None, count: int) -> list[tuple[str, SnapshotPosition]]:
            assert start is not None
            first = start.index + 1
            found = await self._valkey.call("LRANGE", SNAPSHOT(mark.snapshot), first, first + count - 1)
            if not found:  # a cursor is only given where something follows, so the snapshot itself is gone
                raise _gone()
            return [(id, _move(start, first + i)) for i, id in enumerate(found)]

        return after

    async def _keep(self, snapshot: str, ids: Sequence[str], now: int) -> None:
        if now - self._written.get(snapshot, -REWRITE_MS) < REWRITE_MS:
            return
        key = SNAPSHOT(snapshot)
        lifetime = SNAPSHOT_MS + REWRITE_MS
        await self._valkey.multi([("DEL", key), ("RPUSH", key, *ids), ("PEXPIRE", key, lifetime)])
        self._written[snapshot] = now
        self._written.move_to_end(snapshot)
        if len(self._written) > REMEMBERED_SNAPSHOTS:
            self._written.popitem(last=False)


def _in_memory(name: str, snapshot: str, now: int, ids: Sequence[str]) -> FetchIds[SnapshotPosition]:
    beginning = SnapshotPosition(list_checksum(name), snapshot, 0, now)

    async def after(start: SnapshotPosition | None, count: int) -> list[tuple[str, SnapshotPosition]]:
        first = 0 if start is None else start.index + 1
        return [(id, _move(beginning, first + i)) for i, id in enumerate(ids[first : first + count])]

    return after


def _move(mark: SnapshotPosition, index: int) -> SnapshotPosition:
    return SnapshotPosition(mark.list, mark.snapshot, index, mark.made_ms)


def _snapshot_id(name: str, ids: Sequence[str]) -> str:
    """What it holds is what it is called, so that the same list is kept once. Ids hold no NUL."""
    return _first_of_id(name) + hashlib.sha256("\0".join((name, *ids)).encode()).hexdigest()[:24]


def _first_of_id(name: str) -> str:
    """Whose it is, so that no forged cursor gives one list the ids of another, which are of another kind."""
    return f"{list_checksum(name):08x}"


def _gone() -> Gone:
    return Gone("This list was fixed ten minutes ago or more; read it again from the first page.")
