"""Sends heartbeats to Valkey: those of one place that arrive in one turn of the event loop, in one call.

A call has a fixed cost, and most commands of a heartbeat take any number of viewers. So the more viewers a process has,
the less each costs. A call for one heartbeat waits for nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from plaza.core.clock import Clock
from plaza.core.functions import Functions, error_of
from plaza.core.sequences import chunks
from plaza.core.settings import Settings
from plaza.core.valkey import REQUEST_USAGE, Arg, RequestUsage
from plaza.live import keys
from plaza.live.model import NEW_VIEWING, HeartbeatPace, HeartbeatResult, SessionOfAnotherEvent
from plaza.live.session_claims import SessionClaims

# Every heartbeat needs the names of its keys. The names of this many places are cached.
MAX_CACHED_PLACES: Final = 4096
# Heartbeats of one call: about a millisecond of Valkey's time.
MAX_BEATS_PER_CALL: Final = 64

Place = tuple[str, str, str]  # event, session (empty for none), location
Outcome = tuple[HeartbeatResult, int]  # and what the heartbeat has created


class HeartbeatBatches:
    """Collects heartbeats by place until the end of the turn, and sends them."""

    def __init__(
        self, functions: Functions, claims: SessionClaims, settings: Settings, clock: Clock, origin: str
    ) -> None:
        self._functions = functions
        self._clustered = functions.valkey.clustered
        self._claims = claims
        self._clock = clock
        self._origin = origin
        self._window_ms = settings.live_alive_seconds * 1000
        self.only_declared = not settings.live_open
        self.pace = HeartbeatPace(settings.live_beats_per_second)
        self._keys: dict[Place, list[str]] = {}
        self._known: set[Place] = set()
        self._waiting: dict[Place, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def is_known(self, event: str, session: str, location: str) -> bool:
        """Whether this process has seen that the place exists."""
        return (event, session, location) in self._known

    def send(self, event: str, session: str, location: str, sent: Sequence[Arg]) -> asyncio.Future[Outcome]:
        """Send a heartbeat (the arguments of one in `live_beat`) at the end of this turn of the event loop."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._flush)
        future: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.setdefault((event, session, location), []).append((sent, future, REQUEST_USAGE.get()))
        return future

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for place, beats in waiting.items():
            for batch in chunks(beats, MAX_BEATS_PER_CALL):
                task = asyncio.create_task(self._send(place, batch))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _send(self, place: Place, batch: Sequence[_Waiting]) -> None:
        """Send the heartbeats of one place. Each gets its own outcome, and all the round trips."""
        usages = [usage for _, _, usage in batch if usage is not None]
        spent = RequestUsage(trace=next((usage.trace for usage in usages if usage.trace is not None), None))
        REQUEST_USAGE.set(spent)
        outcomes: Sequence[Outcome | BaseException]
        try:
            outcomes = await self._write(place, [sent for sent, _, _ in batch])
        except SessionOfAnotherEvent as error:
            self._claims.forget(place[1])  # a declaration may have taken the session
            outcomes = [error] * len(batch)
        except Exception as error:
            outcomes = [error] * len(batch)
        for usage in usages:
            usage.trips += spent.trips
            usage.seconds += spent.seconds
        for (_, future, _), outcome in zip(batch, outcomes, strict=True):
            if future.done():  # the caller is gone
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    async def _write(self, place: Place, beats: Sequence[Sequence[Arg]]) -> list[Outcome | BaseException]:
        event, session, location = place
        now, interval = self._clock.now_ms(), self.pace.interval_ms
        only_declared = "1" if self.only_declared else "0"
        shared: list[Arg] = [event, session, location, now, interval, self._window_ms, only_declared, self._origin]
        args = shared + [arg for beat in beats for arg in beat]
        if session and self._clustered:
            alive, session_alive, created = await self._write_on_cluster(place, shared, beats, args)
        else:
            alive, session_alive, *created = await self._functions.run("live_beat", self.place_keys(*place), *args)
            if self._clustered:
                created = created[::2]  # without the groups
        if any(isinstance(each, int) and each & ~NEW_VIEWING == 0 for each in created):
            self._known.add(place)
        self.pace.update(event, alive, now)
        result = HeartbeatResult(alive, session_alive if session else None, interval)
        return [error_of(each) if isinstance(each, str) else (result, each) for each in created]

    async def _write_on_cluster(
        self, place: Place, shared: list[Arg], beats: Sequence[Sequence[Arg]], args: Sequence[Arg]
    ) -> tuple[int, int, list[Any]]:
        """Write heartbeats of a session on a cluster: the event's part, then the session's with its groups."""
        event, session, _ = place
        async with self._claims.claimed(event, [session]):
            alive, _, *flat = await self._functions.run("live_beat", self.place_keys(*place), *args)
            created, groups = flat[::2], flat[1::2]
            accepted = [
                (*beat[:3], counted, "1", "", "")
                for beat, each, counted in zip(beats, created, groups, strict=True)
                if not isinstance(each, str)
            ]
            if not accepted:
                raise error_of(created[0])  # which undoes the claim
        session_args = shared + [arg for beat in accepted for arg in beat]
        audience = keys.session_audience(session)
        return alive, await self._functions.run("live_session_beat", audience, *session_args), created

    def place_keys(self, event: str, session: str, location: str) -> list[str]:
        """Return the keys of `live_beat` and `live_leave`: the event's, on one server also the session's."""
        names = self._keys.get((event, session, location))
        if names is None:
            names = keys.event_keys(event) + keys.viewing_keys(event, session, location)
            if session and not self._clustered:
                names += keys.session_audience(session)
            if len(self._keys) >= MAX_CACHED_PLACES:
                self._keys.clear()
                self._known.clear()
            self._keys[event, session, location] = names
        return names


_Waiting = tuple[Sequence[Arg], "asyncio.Future[Outcome]", RequestUsage | None]
