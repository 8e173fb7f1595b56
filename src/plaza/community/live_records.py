"""Live events as records: what admins declared, and the audiences that are in SQL.

The worker writes audiences to SQL within a minute. An imported event has its figures as one of its earlier lives.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from sqlalchemy import Table

from plaza.app import Plaza
from plaza.community.records import CommunityPart, Record, RowRecords, TablePart
from plaza.community.social_records import apply_one
from plaza.core.valkey import scan_pages
from plaza.live import keys as k
from plaza.live.heartbeats import LiveService
from plaza.live.model import EventDeclaration, Id
from plaza.live.tables import RECORDS, REPORTS, TOTALS, VIEWINGS
from plaza.social.inbound_sync import Status, SyncResult
from plaza.social.model import Millis

_EVENT: Final = "live_event"
_ROWS: Final[dict[str, Table]] = {
    "viewing": VIEWINGS,
    "live_record": RECORDS,
    "live_total": TOTALS,
    "player_report": REPORTS,
}
LIVE_ROW_KINDS: Final = tuple(_ROWS)
Count = Annotated[int, Meta(ge=0)]
SessionName = Annotated[str, Meta(max_length=128)]  # empty for the event


class _EventRecord(EventDeclaration, forbid_unknown_fields=True, kw_only=True):
    id: Id


class _ViewingRecord(msgspec.Struct, forbid_unknown_fields=True):
    event: Id
    session: SessionName
    location: Id
    viewer: Annotated[str, Meta(min_length=1, max_length=128)]
    started_at: Millis
    ended_at: Millis


class _AudienceRecord(msgspec.Struct, forbid_unknown_fields=True):
    event: Id
    session: SessionName
    at: Millis
    record: str


class _TotalRecord(msgspec.Struct, forbid_unknown_fields=True):
    event: Id
    session: SessionName
    born_at: Millis
    peak: Count
    peak_at: Millis
    logins: Count
    attended: Count


class _PlayerReportRecord(msgspec.Struct, forbid_unknown_fields=True):
    event: Id
    born_at: Millis
    metric: Annotated[str, Meta(max_length=16)]
    name: Annotated[str, Meta(max_length=128)]
    bucket: int
    count: Count


class LivePart(CommunityPart):
    """The records of live events."""

    kinds: Sequence[str] = (_EVENT, *_ROWS)

    def __init__(self, plaza: Plaza) -> None:
        core = plaza.core
        self._valkey = core.valkey
        self._live = LiveService(core.functions, core.settings, core.clock, origin="import")
        structs: tuple[type[msgspec.Struct], ...] = (_ViewingRecord, _AudienceRecord, _TotalRecord, _PlayerReportRecord)
        tables = zip(_ROWS.items(), structs, strict=True)
        self._tables = TablePart(core.sql, {kind: RowRecords(table, struct) for (kind, table), struct in tables})

    async def apply(self, kind: str, records: Sequence[Any]) -> list[SyncResult]:
        """Declare events, or insert rows."""
        if kind != _EVENT:
            return await self._tables.apply(kind, records)
        return [await apply_one(index, record, _EventRecord, self._declare) for index, record in enumerate(records)]

    async def _declare(self, record: _EventRecord) -> Status:
        known = await self._read(record.id)
        if known == msgspec.to_builtins(record):
            return "unchanged"
        given = {name: getattr(record, name) for name in EventDeclaration.__struct_fields__}
        await self._live.declare(record.id, EventDeclaration(**given))
        return "created" if known is None else "updated"

    def snapshot(self) -> AbstractAsyncContextManager[None]:
        return self._tables.snapshot()

    def export(self, kind: str) -> AsyncIterator[Record]:
        """Yield declared events by id, or rows by primary key."""
        return self._events() if kind == _EVENT else self._tables.export(kind)

    async def _events(self) -> AsyncIterator[Record]:
        found: set[str] = set()
        for node in self._valkey.primaries():
            async for page in scan_pages(node, "SCAN", match=k.EVENT_INFO("*"), type="hash"):
                matches = [k.CATALOGUE.match(key) for key in page]
                found |= {match.parts[0] for match in matches if match is not None and match.key is k.EVENT_INFO}
        for id in sorted(found):
            record = await self._read(id)
            if record is not None:
                yield record

    async def _read(self, id: str) -> Record | None:
        """Return a declared event with its declared sessions; None if it is not declared. Three round trips."""
        event = await self._live.get_event(id)
        if not event.declared:
            return None
        flags = await self._valkey.batch([("HGET", k.SESSION_INFO(name), "declared") for name in event.sessions])
        sessions = [name for name, declared in zip(event.sessions, flags, strict=True) if declared]
        groups = sorted(await self._valkey.call("HKEYS", k.EVENT_GROUP_NAMES(id)))
        record = _EventRecord(
            id=id,
            title=event.title,
            sessions=sessions,
            groups=groups,
            starts_at=event.starts_at,
            description=event.description,
        )
        return dict(msgspec.to_builtins(record))
