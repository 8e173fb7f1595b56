"""What is known of single viewers: when they were last there, and where."""

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

PAGE = 500
# Answers are whole up to this many; beyond it, `cursor` goes on.
MOST = 10_000


class ReportRequest(Struct, forbid_unknown_fields=True):
    """Whom to report on: these, or everyone who is alive."""

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
    """Reports on viewers of an event."""

    def __init__(self, functions: Functions, history: AudienceHistory, settings: Settings, clock: Clock) -> None:
        self._functions = functions
        self._history = history
        self._clock = clock
        self._window_ms = settings.live_alive_seconds * 1000

    async def on(self, event: str, question: ReportRequest) -> HeartbeatReport:
        """On named viewers in one round trip, and from SQL those whose keys are gone; on all alive in steps of 500."""
        names = [
            keys.EVENT_HEARTBEAT(event),
            keys.EVENT_LEFT(event),
            keys.EVENT_VIEWERS(event),
            keys.EVENT_INFO(event),
        ]
        now = self._clock.now_ms()
        if question.user_ids is None:
            return await self._alive(names, now, question.cursor)
        rows = await self._functions.query("live_report", names, now, self._window_ms, *question.user_ids)
        viewers = [_viewer(*row) for row in rows]
        return HeartbeatReport(await self._with_past(event, viewers), None)

    async def _with_past(self, event: str, viewers: list[ViewerStatus]) -> list[ViewerStatus]:
        """Of whom Valkey knows nothing any more, the latest viewing session tells when and where they were."""
        unknown = [viewer.user_id for viewer in viewers if viewer.last_beat is None]
        past = await self._history.last(event, unknown) if unknown else {}
        return [_past(past[viewer.user_id]) if viewer.user_id in past else viewer for viewer in viewers]

    async def _alive(self, names: list[str], now: int, cursor: str | None) -> HeartbeatReport:
        found: dict[str, ViewerStatus] = {}
        position = ""
        if cursor is not None:
            start = decode_cursor(cursor, names[0], Position)
            position = f"{start.score:.0f} {start.id}"
        while True:
            position, *rows = await self._functions.query(
                "live_alive_page", names, now, self._window_ms, position, PAGE
            )
            # Who beats while we read moves to the end and is met again; the later word counts.
            found.update((row[0], _viewer(*row)) for row in rows)
            if not position or len(found) >= MOST:
                return HeartbeatReport(list(found.values()), _cursor(names[0], position) if position else None)


def _cursor(name: str, position: str) -> str:
    score, _, viewer = position.partition(" ")
    return encode_cursor(Position(list_checksum(name), float(score), viewer))


def _viewer(name: str, last: str | None, room: str | None, alive: int) -> ViewerStatus:
    session, location = keys.of_place(room) if room else ("", None)
    seen = None if last is None else int(float(last))
    return ViewerStatus(name, seen, bool(alive), location, session or None)


def _past(viewing: ViewingSession) -> ViewerStatus:
    return ViewerStatus(viewing.viewer, viewing.ended_at, False, viewing.location, viewing.session or None)
