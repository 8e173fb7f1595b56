"""The heartbeat report: when and where single viewers were last seen."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.paging import Position, decode_cursor, encode_cursor, list_checksum
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.history import AudienceHistory, ViewingSession
from plaza.live.model import Id
from plaza.live.other_services import to_ms

PAGE_SIZE = 500
# A report has at most this many viewers; `cursor` continues it.
MAX_VIEWERS = 10_000


class ReportRequest(Struct, forbid_unknown_fields=True):
    """The viewers to report: these, or all who are alive."""

    user_ids: Annotated[list[Id], Meta(max_length=1_000)] | None = None
    cursor: Annotated[str, Meta(max_length=512)] | None = None


class ViewerStatus(Struct):
    user_id: str
    last_beat: int | None
    alive: bool
    location: str | None
    session_id: str | None


class HeartbeatReport(Struct):
    viewers: list[ViewerStatus]
    next_cursor: str | None


class HeartbeatReports:
    """Reports the viewers of an event."""

    def __init__(self, functions: Functions, history: AudienceHistory, settings: Settings, clock: Clock) -> None:
        self._functions = functions
        self._history = history
        self._clock = clock
        self._window_ms = settings.live_alive_seconds * 1000

    async def report(self, event: str, request: ReportRequest) -> HeartbeatReport:
        """Report named viewers in one round trip, purged ones from SQL; or all who are alive, 500 per round trip."""
        names = [
            keys.EVENT_HEARTBEAT(event),
            keys.EVENT_LEFT(event),
            keys.EVENT_VIEWERS(event),
            keys.EVENT_INFO(event),
        ]
        now = self._clock.now_ms()
        if request.user_ids is None:
            return await self._report_alive(names, now, request.cursor)
        rows = await self._functions.query("live_report", names, now, self._window_ms, *request.user_ids)
        viewers = [_status(*row) for row in rows]
        return HeartbeatReport(await self._add_purged(event, viewers), None)

    async def _add_purged(self, event: str, viewers: list[ViewerStatus]) -> list[ViewerStatus]:
        """Report viewers whose keys were purged by their latest viewing session in SQL."""
        unknown = [viewer.user_id for viewer in viewers if viewer.last_beat is None]
        past = await self._history.viewings.find_latest(event, unknown) if unknown else {}
        return [_past_status(past[viewer.user_id]) if viewer.user_id in past else viewer for viewer in viewers]

    async def _report_alive(self, names: list[str], now: int, cursor: str | None) -> HeartbeatReport:
        found: dict[str, ViewerStatus] = {}
        position = ""
        if cursor is not None:
            start = decode_cursor(cursor, names[0], Position)
            position = f"{start.score:.0f} {start.id}"
        while True:
            position, *rows = await self._functions.query(
                "live_alive_page", names, now, self._window_ms, position, PAGE_SIZE
            )
            # A viewer who beats during the read moves to the end and is read again; the later status counts.
            found.update((row[0], _status(*row)) for row in rows)
            if not position or len(found) >= MAX_VIEWERS:
                return HeartbeatReport(list(found.values()), _cursor(names[0], position) if position else None)


def _cursor(name: str, position: str) -> str:
    score, _, viewer = position.partition(" ")
    return encode_cursor(Position(list_checksum(name), float(score), viewer))


def _status(name: str, last_seen: str | None, place: str | None, alive: int) -> ViewerStatus:
    session, location = keys.split_place(place) if place else ("", None)
    return ViewerStatus(name, to_ms(last_seen), bool(alive), location, session or None)


def _past_status(viewing: ViewingSession) -> ViewerStatus:
    return ViewerStatus(viewing.viewer, viewing.ended_at, False, viewing.location, viewing.session or None)
