"""All viewing sessions of an event, wherever they are: under way, ended but not yet in SQL, in SQL.

A viewing session only moves forward through these three. They are read in the same order, so one that moves during the
read is met twice at most, and is recognised by its viewer, place and start. None is missed. Other services write
viewing sessions too; those that Plaza has not recorded are read with the first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.sequences import pairs
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.history import AudienceHistory, ViewingSession
from plaza.live.other_services import count_unreadable, to_ms

# Members that one call reads: well under a millisecond of Valkey's time.
PAGE_SIZE = 500


class FinishedViewing(Struct, frozen=True):
    """A viewing session that has ended and waits for the worker: its member in `EVENT_FINISHED` and its content."""

    member: str
    viewing: ViewingSession | None  # None if it cannot be read


class ViewingSessions:
    """Reads viewing sessions in bounded steps."""

    def __init__(self, functions: Functions, history: AudienceHistory, settings: Settings, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._history = history
        self._clock = clock
        self._window_ms = settings.live_alive_seconds * 1000

    async def iterate(self, event: str, session: str | None = None) -> AsyncIterator[ViewingSession]:
        """Yield each viewing session of an event, or of one of its sessions, once."""
        seen: set[tuple[str, str, str, int]] = set()
        async for viewing in self._in_valkey(event, session):
            key = (viewing.session, viewing.location, viewing.viewer, viewing.started_at)
            if session in (None, viewing.session) and key not in seen:
                seen.add(key)
                yield viewing
        async for viewing in self._history.viewings.iterate(event, session):
            if (viewing.session, viewing.location, viewing.viewer, viewing.started_at) not in seen:
                yield viewing

    async def _in_valkey(self, event: str, session: str | None) -> AsyncIterator[ViewingSession]:
        places = await self._valkey.call("HKEYS", keys.EVENT_ROOMS(event))
        for place in (place for place in places if session in (None, keys.split_place(place)[0])):
            async for viewing, _ in self.iterate_place(event, place):
                yield viewing
        first = 0
        while True:
            # The worker removes them from the front, so some may come twice here, but none is skipped.
            found = await self.read_finished(event, first, PAGE_SIZE)
            for finished in found:
                if finished.viewing is not None:
                    yield finished.viewing
            if len(found) < PAGE_SIZE:
                return
            first += PAGE_SIZE // 2

    async def iterate_place(self, event: str, place: str) -> AsyncIterator[tuple[ViewingSession, bool]]:
        """Yield the viewing sessions at a place that are not recorded, and whether Plaza counts the viewer there.

        If Plaza does not, another service wrote the viewing session.
        """
        session, location = keys.split_place(place)
        names = keys.event_keys(event) + keys.viewing_keys(event, session, location)
        position = ""
        while True:
            now = self._clock.now_ms()
            position, unreadable, *flat = await self._functions.query(
                "live_viewings_page", names, place, position, PAGE_SIZE, now, self._window_ms, event
            )
            count_unreadable("viewing session", unreadable, audience=event, place=place)
            rows = list(zip(*(flat[i::5] for i in range(5)), strict=True))
            unknown = [row[0] for row in rows if not row[4]]
            recorded = (
                await self._history.viewings.find_recorded(event, session, location, unknown) if unknown else set()
            )
            for viewer, start, end, under_way, is_open in rows:
                if is_open or (viewer, int(start)) not in recorded:
                    viewing = ViewingSession(session, location, viewer, int(start), int(end), bool(under_way))
                    yield viewing, bool(is_open)
            if not position:
                return

    async def read_finished(self, event: str, first: int, count: int) -> list[FinishedViewing]:
        """Return viewing sessions that have ended and wait for the worker."""
        members = await self._valkey.call(
            "ZRANGE", keys.EVENT_FINISHED(event), first, first + count - 1, "WITHSCORES", raw=True
        )
        found = [FinishedViewing(member.decode(), _parse(member.decode(), score)) for member, score in pairs(members)]
        count_unreadable("finished viewing session", sum(each.viewing is None for each in found), audience=event)
        return found


def _parse(member: str, score: bytes) -> ViewingSession | None:
    viewer, _, rest = member.partition("#")
    start, _, place = rest.partition("#")
    started_at, ended_at = to_ms(start), to_ms(score)
    if started_at is None or ended_at is None or not place:
        return None
    session, location = keys.split_place(place)
    return ViewingSession(session, location, viewer, started_at, ended_at)


def finished_member(viewing: ViewingSession) -> str:
    """Return a viewing session as `EVENT_FINISHED` contains it."""
    return f"{viewing.viewer}#{viewing.started_at}#{keys.join_place(viewing.session, viewing.location)}"
