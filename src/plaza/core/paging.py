"""Pages of lists: no item is repeated or skipped, and a page is full unless the list ends.

A list ordered by time is read by *position*: the cursor has the score and id of the last item read, and the next page
starts after that position, whether or not the item still exists. A list ordered by a changing score cannot be read
like this, because items overtake each other between two pages. Its second page stores a *snapshot* of the ids that the
first page did not show, and later pages read that.

Some items are hidden from a viewer (banned, blocked, deleted meanwhile). They are skipped, and the page is filled with
the items after them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Final, Generic, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from plaza.core.clock import Clock
from plaza.core.errors import Gone, Invalid
from plaza.core.functions import Functions, Library
from plaza.core.keys import CATALOGUE, SNAPSHOT
from plaza.core.sequences import pairs
from plaza.core.validation_messages import described_pattern
from plaza.core.valkey import Valkey

T = TypeVar("T")
C = TypeVar("C", "Position", "SnapshotPosition")
P = TypeVar("P")

LIBRARY: Final = Library.read("paging", CATALOGUE, "plaza.core", "paging")

# Ids read for one page at most, however many of them are hidden.
MAX_IDS_READ: Final = 1_000
SNAPSHOT_SIZE: Final = 1_000
SNAPSHOT_MS: Final = 600_000

# Ids of a first page that its cursor can hold, 5 bytes each. With more, the snapshot is stored with the first page.
MAX_SEEN_IDS: Final = 120
SEEN_ID_BYTES: Final = 5

# Readers of an unchanged list share one snapshot. To outlive their cursors, it lives a minute longer than they do, and
# is written again after a minute.
REWRITE_MS: Final = 60_000

# How many snapshots this process remembers as written.
MAX_REMEMBERED_SNAPSHOTS: Final = 4_096

# The smallest step after the first one: hidden items come in groups.
FILL_STEP: Final = 50

# Step for items skipped by an offset, so that no step takes long.
SKIP_STEP: Final = 250


# What `encode_cursor` writes.
_CURSOR: Final = described_pattern("Invalid cursor. Request the first page again", r"^[A-Za-z0-9_-]*$(?!\n)")
CursorText = Annotated[str, Meta(max_length=1_024, pattern=_CURSOR, description="`next_cursor` of the previous page.")]


class Page(msgspec.Struct, frozen=True):
    """The query parameters of a list. A handler takes it as `page: Page`."""

    limit: Annotated[int, Meta(ge=1, le=100, description="The maximum number of items.")] = 20
    cursor: CursorText | None = None
    offset: Annotated[int, Meta(ge=0, le=1000, description="The number of items to skip, instead of a cursor.")] = 0


class Pagination(msgspec.Struct, frozen=True):
    """The end of a page. `next_cursor` is null at the end of the list."""

    limit: int
    count: int
    next_cursor: str | None


class EncodedItems(list[T]):
    """The items of a page, none of them missing, with their JSON. Readers may share them: do not change them."""

    __slots__ = ("json",)

    def __init__(self, items: Iterable[T], json: bytes | None = None) -> None:
        super().__init__(items)
        self.json = msgspec.Raw(encode_to_store(self[:]) if json is None else json)


def encode_to_store(value: object) -> bytes:
    """Return JSON that is stored. `msgspec.json.encode` gives it up to two and a half times the memory."""
    _encode_json_into(value, _BUFFER)
    return bytes(_BUFFER)


def encodable(items: list[T]) -> list[T]:
    """Return what stands for the items in a response: their JSON if it is known, else themselves."""
    return cast(list[T], items.json) if isinstance(items, EncodedItems) else items


class PageResult(Struct, Generic[T], frozen=True):
    """The items of a page, and its pagination."""

    items: list[T]
    pagination: Pagination


class Position(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """A position in a list by time: after the item with this score and id."""

    list: int
    score: float
    id: str


class SnapshotPosition(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """A position in a snapshot: after the id at this index. `made_ms` is when the first page was read."""

    list: int
    snapshot: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    index: Annotated[int, Meta(ge=0, lt=SNAPSHOT_SIZE)]
    made_ms: int


class FirstPagePosition(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """The end of a first page by a changing score. `seen` has its ids as hashes; the second page omits them."""

    list: int
    made_ms: int
    seen: Annotated[bytes, Meta(max_length=MAX_SEEN_IDS * SEEN_ID_BYTES)]


Cursor = Position | SnapshotPosition | FirstPagePosition

# Returns at most so many ids after a position, each with its own position. None is the start of the list.
FetchIds = Callable[[P | None, int], Awaitable[Sequence[tuple[str, P]]]]

# Returns the first ids of a list now, at most so many.
FirstIds = Callable[[int], Awaitable[Sequence[str]]]

# Returns the items of ids, in the same order; None for a missing or hidden item.
LoadItems = Callable[[Sequence[str]], Awaitable[Sequence[T | None]]]

# Returns which ids are visible. Items skipped by an offset are not loaded, only counted.
CheckVisible = Callable[[Sequence[str]], Awaitable[Sequence[bool]]]

# Returns at most so many ids after so many visible items, or None if these must be counted. Costs less than counting.
FetchAtOffset = Callable[[int, int], Awaitable[Sequence[tuple[str, P]] | None]]

# Returns the rank after so many visible items, or None if these must be counted.
RankAtOffset = Callable[[int], Awaitable[int | None]]

_decode: Callable[[bytes], Cursor] = msgspec.msgpack.Decoder(Cursor).decode
_encode = msgspec.msgpack.Encoder().encode
_encode_json_into = msgspec.json.Encoder().encode_into
_BUFFER: Final = bytearray()


def encode_cursor(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(_encode(cursor)).rstrip(b"=").decode()


def decode_cursor(text: str, name: str, kind: type[C]) -> C:
    """Return the cursor of a list. Raises `Invalid` if it is not a cursor, or belongs to another list."""
    cursor = _decode_cursor(text, name)
    if not isinstance(cursor, kind):
        raise _of_another_list()
    return cursor


def _decode_cursor(text: str, name: str) -> Cursor:
    try:
        cursor = _decode(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise Invalid("Invalid cursor. Request the first page again.", field="cursor") from error
    if cursor.list != list_checksum(name):
        raise _of_another_list()
    if isinstance(cursor, Position) and math.isnan(cursor.score):
        raise Invalid("Invalid cursor. Request the first page again.", field="cursor")
    return cursor


def list_checksum(name: str) -> int:
    """Return a number that marks the cursors of a list."""
    # This catches mistakes, not forgery: a forged cursor shows nothing that a valid one would not.
    return zlib.crc32(name.encode())


async def page_by_position(
    name: str,
    page: Page,
    after: FetchIds[Position],
    load: LoadItems[T],
    visible: CheckVisible | None = None,
    at_offset: FetchAtOffset[Position] | None = None,
) -> PageResult[T]:
    """Return a page of a list by position. `name` distinguishes its cursors from those of other lists."""
    start = decode_cursor(page.cursor, name, Position) if page.cursor else None
    return _paged(page, *await fill_page(page, after, start, load, visible, at_offset))


def ids_in_sorted_set(functions: Functions, key: str, *, newest_first: bool = True) -> FetchIds[Position]:
    """Read ids from a sorted set, for `page_by_position(key, …)`. One round trip, independent of the set's size."""
    name = list_checksum(key)

    async def after(start: Position | None, count: int) -> list[tuple[str, Position]]:
        if start is None:
            order = ["REV"] if newest_first else []
            rows = await functions.valkey.call("ZRANGE", key, 0, count - 1, *order, "WITHSCORES", shared=True)
        else:
            order = ["newest" if newest_first else "oldest"]
            flat = await functions.query("paging_after", [key], repr(start.score), start.id, count, *order)
            rows = pairs(flat)
        return [(id, Position(name, float(score), id)) for id, score in rows]

    return after


def ids_in_memory(name: str, rows: Iterable[tuple[str, float]]) -> FetchIds[Position]:
    """Page a short list that is already read, given as ids with scores, highest score first. No I/O."""
    list_id = list_checksum(name)
    positions = [(id, Position(list_id, score, id)) for id, score in sorted(rows, key=lambda row: (-row[1], row[0]))]

    async def after(start: Position | None, count: int) -> list[tuple[str, Position]]:
        rest = positions
        if start is not None:
            rest = [row for row in positions if (-row[1].score, row[0]) > (-start.score, start.id)]
        return rest[:count]

    return after


async def fill_page(
    page: Page,
    after: FetchIds[P],
    start: P | None,
    load: LoadItems[T],
    visible: CheckVisible | None = None,
    at_offset: FetchAtOffset[P] | None = None,
) -> tuple[list[T], P | None]:
    """Return the items of a page, and the position where it stopped if there may be more."""
    if start is not None and page.offset:
        raise _cursor_and_offset()
    found: list[T] = []
    position, ids_read = start, 0
    first = await at_offset(page.offset, page.limit + 1) if page.offset and at_offset else None
    if page.offset and first is None:
        position, skipped, more = await _skip(page.offset, after, visible or _visible_by_loading(load))
        if not skipped:
            return found, position if more else None
    while True:
        need = page.limit - len(found)
        step = min(need if ids_read == 0 else max(need, FILL_STEP), MAX_IDS_READ - ids_read)
        # One more, to know whether there are more.
        rows = await after(position, step + 1) if first is None else first
        first = None
        rows, more = rows[:step], len(rows) > step
        items = await load([id for id, _ in rows]) if rows else []
        is_whole = len(items) == page.limit or (len(items) < page.limit and not more)
        if is_whole and not found and isinstance(items, EncodedItems):
            return items, rows[-1][1] if more else None
        for index, item in enumerate(items):
            position = rows[index][1]
            if item is None:
                continue
            found.append(item)
            if len(found) == page.limit:
                return found, position if more or index + 1 < len(rows) else None
        ids_read += len(rows)
        if not more or ids_read >= MAX_IDS_READ:
            return found, position if more else None


async def _skip(count: int, after: FetchIds[P], visible: CheckVisible) -> tuple[P | None, bool, bool]:
    """Skip visible items. Returns the position, whether there were so many items, and whether there may be more."""
    position, left = None, MAX_IDS_READ + count
    while left > 0:
        step = min(SKIP_STEP, left, count if position is None else max(count, FILL_STEP))
        rows = await after(position, step)
        shown = await visible([id for id, _ in rows]) if rows else ()
        for (_, here), is_shown in zip(rows, shown, strict=True):
            position, count = here, count - is_shown
            if count == 0:
                return position, True, True
        if len(rows) < step:
            return position, False, False
        left -= len(rows)
    return position, False, True


def _visible_by_loading(load: LoadItems[T]) -> CheckVisible:
    async def visible(ids: Sequence[str]) -> list[bool]:
        return [item is not None for item in await load(ids)]

    return visible


def _paged(page: Page, items: list[T], stopped: Cursor | None) -> PageResult[T]:
    cursor = None if stopped is None else encode_cursor(stopped)
    return PageResult(items, Pagination(page.limit, len(items), cursor))


class Snapshots:
    """Pages of lists that are ordered by a changing score."""

    def __init__(self, valkey: Valkey, clock: Clock) -> None:
        self._valkey = valkey
        self._clock = clock
        self._written: OrderedDict[str, int] = OrderedDict()

    async def page(
        self,
        name: str,
        page: Page,
        ids: FirstIds,
        load: LoadItems[T],
        visible: CheckVisible | None = None,
        rank: RankAtOffset | None = None,
    ) -> PageResult[T]:
        """Return a page. `ids(n)` returns the first n ids now; it is called for the first and the second page.

        Most readers read only the first page, so it stores nothing: its cursor has the hashes of the ids it showed. The
        second page stores a snapshot of the other ids, and later pages read that. So no id is shown twice, and none is
        skipped that is in the list throughout.

        If the list depends on the viewer, `name` must contain the viewer.
        """
        if not page.cursor:
            return await self._first_page(name, page, ids, load, visible, rank)
        position = _decode_cursor(page.cursor, name)
        if isinstance(position, Position):
            raise _of_another_list()
        if self._clock.now_ms() - position.made_ms > SNAPSHOT_MS:
            raise _gone()
        if isinstance(position, FirstPagePosition):
            if page.offset:
                raise _cursor_and_offset()
            return await self._second_page(name, page, position, ids, load)
        if not position.snapshot.startswith(_id_prefix(name)):
            raise _of_another_list()
        return _paged(page, *await fill_page(page, self._stored_ids(position), position, load))

    async def _first_page(
        self,
        name: str,
        page: Page,
        ids: FirstIds,
        load: LoadItems[T],
        visible: CheckVisible | None,
        rank: RankAtOffset | None,
    ) -> PageResult[T]:
        now = self._clock.now_ms()
        spare = min(page.limit, FILL_STEP)
        window = await _Window.read(ids, SNAPSHOT_SIZE if page.offset else page.limit + spare + 1)

        async def at_offset(offset: int, count: int) -> list[tuple[str, int]] | None:
            first = await rank(offset) if rank else None
            return None if first is None else await window.after(first - 1, count)

        items, stopped = await fill_page(page, window.after, None, load, visible, at_offset)
        if stopped is None:
            return _paged(page, items, None)
        if stopped < MAX_SEEN_IDS:
            seen = b"".join(map(_short_hash, window.ids[: stopped + 1]))
            return _paged(page, items, FirstPagePosition(list_checksum(name), now, seen))
        await window.read_all()
        snapshot = await self._store(name, window.ids, now)
        return _paged(page, items, SnapshotPosition(list_checksum(name), snapshot, stopped, now))

    async def _second_page(
        self, name: str, page: Page, position: FirstPagePosition, ids: FirstIds, load: LoadItems[T]
    ) -> PageResult[T]:
        size, flat = SEEN_ID_BYTES, position.seen
        seen = {flat[start : start + size] for start in range(0, len(flat), size)}
        unseen = [id for id in await ids(SNAPSHOT_SIZE) if _short_hash(id) not in seen][: SNAPSHOT_SIZE - len(seen)]
        items, stopped = await fill_page(page, _Window(ids, unseen, complete=True).after, None, load)
        if stopped is None:
            return _paged(page, items, None)
        snapshot = await self._store(name, unseen, self._clock.now_ms())
        return _paged(page, items, SnapshotPosition(position.list, snapshot, stopped, position.made_ms))

    def _stored_ids(self, position: SnapshotPosition) -> FetchIds[SnapshotPosition]:
        async def after(start: SnapshotPosition | None, count: int) -> list[tuple[str, SnapshotPosition]]:
            assert start is not None
            first = start.index + 1
            found = await self._valkey.call("LRANGE", SNAPSHOT(position.snapshot), first, first + count - 1)
            if not found:  # a cursor exists only if more ids follow, so the snapshot has expired
                raise _gone()
            return [(id, _move(start, first + i)) for i, id in enumerate(found)]

        return after

    async def _store(self, name: str, ids: Sequence[str], now: int) -> str:
        """Store a snapshot unless this process has just done so. Returns its id."""
        snapshot = _snapshot_id(name, ids)
        if now - self._written.get(snapshot, -REWRITE_MS) < REWRITE_MS:
            return snapshot
        key = SNAPSHOT(snapshot)
        lifetime = SNAPSHOT_MS + REWRITE_MS
        await self._valkey.multi([("DEL", key), ("RPUSH", key, *ids), ("PEXPIRE", key, lifetime)])
        self._written[snapshot] = now
        self._written.move_to_end(snapshot)
        if len(self._written) > MAX_REMEMBERED_SNAPSHOTS:
            self._written.popitem(last=False)
        return snapshot


class _Window:
    """The first ids of a list, as far as a page needs them. Positions are indexes."""

    def __init__(self, fetch: FirstIds, ids: Sequence[str], *, complete: bool) -> None:
        self._fetch = fetch
        self.ids = list(ids)
        self._complete = complete
        self._used = 0

    @classmethod
    async def read(cls, fetch: FirstIds, count: int) -> _Window:
        count = min(count, SNAPSHOT_SIZE)
        ids = (await fetch(count))[:count]
        return cls(fetch, ids, complete=len(ids) < count or count == SNAPSHOT_SIZE)

    async def after(self, start: int | None, count: int) -> list[tuple[str, int]]:
        first = 0 if start is None else start + 1
        if first + count > len(self.ids):
            await self.read_all()
        found = self.ids[first : first + count]
        self._used = first + len(found)
        return [(id, first + i) for i, id in enumerate(found)]

    async def read_all(self) -> None:
        """Read the rest of the list. The order may have changed; ids that were used already keep their place."""
        if not self._complete:
            used = self.ids[: self._used]
            known = set(used)
            rest = [id for id in await self._fetch(SNAPSHOT_SIZE) if id not in known]
            self.ids = [*used, *rest][:SNAPSHOT_SIZE]
            self._complete = True


def _move(position: SnapshotPosition, index: int) -> SnapshotPosition:
    return SnapshotPosition(position.list, position.snapshot, index, position.made_ms)


def _snapshot_id(name: str, ids: Sequence[str]) -> str:
    """Return a hash of the content, so that the same list is stored once. Ids contain no NUL."""
    return _id_prefix(name) + hashlib.sha256("\0".join((name, *ids)).encode()).hexdigest()[:24]


def _id_prefix(name: str) -> str:
    """Return a prefix per list, so that a forged cursor cannot read another list's ids, which are of another type."""
    return f"{list_checksum(name):08x}"


@lru_cache(8_192)  # first pages show the same ids to many readers
def _short_hash(id: str) -> bytes:
    return hashlib.blake2b(id.encode(), digest_size=SEEN_ID_BYTES).digest()


def _of_another_list() -> Invalid:
    return Invalid("This cursor belongs to another list. Request the first page again.", field="cursor")


def _cursor_and_offset() -> Invalid:
    return Invalid("Send a cursor or an offset, not both.", field="offset")


def _gone() -> Gone:
    return Gone("This cursor has expired after ten minutes. Request the first page again.")
