"""All viewing sessions of an event, wherever they are now: under way, over but not yet in SQL, in SQL.

A viewing session only ever moves forward through these three. They are read in the same order, so one that moves while
it is being read is met twice at worst, and is recognised by its viewer, place and start; none is missed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.history import AudienceHistory, ViewingSession

# Members that one call reads: well under a millisecond of Valkey's time.
PAGE = 500


class ViewingSessions:
    """Reads viewing sessions, in bounded steps."""

    def __init__(self, functions: Functions, history: AudienceHistory, settings: Settings, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._history = history
        self._clock = clock
        self._window_ms = settings.live_alive_seconds * 1000

    async def of(self, event: str, session: str | None = None) -> AsyncIterator[ViewingSession]:
        """Each viewing session of an event, or of one of its sessions, once."""
        met: set[tuple[str, str, str, int]] = set()
        async for viewing in self._in_valkey(event, session):
            key = (viewing.session, viewing.location, viewing.viewer, viewing.started_at)
            if session in (None, viewing.session) and key not in met:
                met.add(key)
                yield viewing
        async for viewing in self._history.viewings(event, session):
            if (viewing.session, viewing.location, viewing.viewer, viewing.started_at) not in met:
                yield viewing

    async def _in_valkey(self, event: str, session: str | None) -> AsyncIterator[ViewingSession]:
        rooms = await self._valkey.call("HKEYS", keys.EVENT_ROOMS(event))
        for room in (room for room in rooms if session in (None, keys.of_place(room)[0])):
            async for viewing in self._under_way(event, room):
                yield viewing
        first = 0
        while True:
            # The worker takes them away from the front, so some may come twice here, but none is skipped.
            found = await self.finished(event, first, PAGE)
            for viewing in found:
                yield viewing
            if len(found) < PAGE:
                return
            first += PAGE // 2

    async def _under_way(self, event: str, room: str) -> AsyncIterator[ViewingSession]:
        session, location = keys.of_place(room)
        names = keys.event_keys(event) + keys.viewing_keys(event, session, location)
        position = ""
        while True:
            now = self._clock.now_ms()
            position, *found = await self._functions.query(
                "live_open_page", names, room, position, PAGE, now, self._window_ms
            )
            # One whose window is over has ended, whether the worker has noticed or not.
            for viewer, start, end, goes_on in zip(found[::4], found[1::4], found[2::4], found[3::4], strict=True):
                yield ViewingSession(session, location, viewer, int(start), int(end), bool(goes_on))
            if not position:
                return

    async def finished(self, event: str, first: int, count: int) -> list[ViewingSession]:
        """Viewing sessions that are over and wait for the worker."""
        members = await self._valkey.call(
            "ZRANGE", keys.EVENT_FINISHED(event), first, first + count - 1, "WITHSCORES", raw=True
        )
        pairs = zip(members[::2], members[1::2], strict=True)
        return [_finished(member.decode(), int(float(score))) for member, score in pairs]


def _finished(member: str, end: int) -> ViewingSession:
    viewer, start, room = member.split("#", 2)
    session, location = keys.of_place(room)
    return ViewingSession(session, location, viewer, int(start), end)


def finished_member(viewing: ViewingSession) -> str:
    """A viewing session as `EVENT_FINISHED` writes it."""
    return f"{viewing.viewer}#{viewing.started_at}#{keys.place(viewing.session, viewing.location)}"
