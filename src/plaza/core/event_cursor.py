"""Positions in several streams, and the order of their entries.

On one server all streams have one clock, so entries of all streams have one total order: by the milliseconds and the
number of their id, then by the stream's name. One id is then an exact position in all of them. On a cluster every shard
has its own clock; a position is a time there, and a reader that continues from it starts a little earlier.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from plaza.core.event_streams import EventStream
from plaza.core.events import Event
from plaza.core.sequences import pairs_to_dict

# The clocks of a cluster's nodes differ by less than this, and an event reaches its shard within it.
CLUSTER_OVERLAP_MS = 10_000

_POSITION = re.compile(r"([a-z_]{1,40})-([0-9]{1,15})-([0-9]{1,18})")
MAX_NUMBER = 2**64 - 1

EntryId = tuple[int, int]
# The last entry that was read of each stream, by the stream's key.
Cursor = dict[str, EntryId]


def parse_entry_id(text: str) -> EntryId:
    ms, _, number = text.partition("-")
    return int(ms), int(number or 0)


def entry_id_text(entry: EntryId) -> str:
    return f"{entry[0]}-{entry[1]}"


class StreamEntry(Struct):
    """An event and where it is."""

    key: str
    entry: EntryId
    event: Event
    _encoded: bytes | None = None

    @property
    def position(self) -> str:
        """The id for `Last-Event-ID`."""
        return f"{self.event.stream}-{self.event.entry_id}"

    def encoded(self, encode: Callable[[Event], bytes]) -> bytes:
        """Return the event in the format that listeners get, encoded once for all of them."""
        if self._encoded is None:
            self._encoded = encode(self.event)
        return self._encoded

    @property
    def order(self) -> tuple[EntryId, str]:
        return self.entry, self.event.stream


def cursor_from_position(position: str, streams: Iterable[EventStream]) -> Cursor | None:
    """Return where to continue after a position; None if it is not one."""
    match = _POSITION.fullmatch(position)
    if match is None:
        return None
    name, entry = match[1], (int(match[2]), int(match[3]))
    return {stream.key: _last_read(stream, name, entry) for stream in streams}


def _last_read(stream: EventStream, name: str, entry: EntryId) -> EntryId:
    if stream.shard is not None:
        return max(entry[0] - CLUSTER_OVERLAP_MS, 0), 0
    return entry if stream.name <= name else _before(entry)


def _before(entry: EntryId) -> EntryId:
    ms, number = entry
    if number:
        return ms, number - 1
    return (ms - 1, MAX_NUMBER) if ms else (0, 0)


def merge_entries(names: Mapping[str, str], replies: Iterable[tuple[str, list[Any]]], limit: int) -> list[StreamEntry]:
    """Return entries of several streams in their total order, from XRANGE replies by key.

    A reply with `limit` entries may have more behind it. What comes after its last entry must wait for those.
    """
    found: list[StreamEntry] = []
    complete_until: tuple[EntryId, str] | None = None
    for key, reply in replies:
        name = names[key]
        entries = [StreamEntry(key, parse_entry_id(id), Event(name, id, pairs_to_dict(words))) for id, words in reply]
        found += entries
        if len(entries) >= limit and (complete_until is None or entries[-1].order < complete_until):
            complete_until = entries[-1].order
    found.sort(key=lambda each: each.order)
    return [each for each in found if complete_until is None or each.order <= complete_until]
