"""Live figures as a stream, computed once a second per event for any number of clients and processes.

Each process with clients of an event has a feed of it. Once a second the feeds compete for the turn. The winner
computes the figures and adds them to a stream in Valkey, which all feeds read. The stream keeps two minutes, so a
browser that reconnects with `Last-Event-ID` gets what it missed, from any process.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import structlog
from msgspec import json

from plaza.core.errors import Unavailable
from plaza.core.http.responses import ServerSentEvent
from plaza.core.valkey import Valkey
from plaza.live import keys
from plaza.live.model import LiveFigures
from plaza.live.statistics import AudienceFigures

TICK_SECONDS = 1.0
MAX_KEPT_FIGURES = 120
KEPT_SECONDS = 120
RETRY_MS = 2_000
# The part of a tick that a turn lasts. A full tick could end late and leave a second without figures.
TURN_SHARE = 0.9

log = structlog.get_logger("plaza.live")

# The id of an entry in a Valkey stream.
StreamId = tuple[int, int]


def parse_stream_id(text: str | None) -> StreamId | None:
    """Return the id in `Last-Event-ID`; None if there is none or it is not valid."""
    match = re.fullmatch(r"([0-9]{1,18})-([0-9]{1,18})", text or "")
    return (int(match[1]), int(match[2])) if match else None


class FigureFeed:
    """The figures of one event that this process has read, one per second."""

    def __init__(self, event: str, valkey: Valkey, figures: AudienceFigures, tick_seconds: float) -> None:
        self._event = event
        self._valkey = valkey
        self._figures = figures
        self._tick_seconds = tick_seconds
        self._changed = asyncio.Event()
        self.clients = 0
        self.ended = False
        self.sent: deque[tuple[StreamId, ServerSentEvent[LiveFigures]]] = deque(maxlen=MAX_KEPT_FIGURES)

    async def run(self) -> None:
        try:
            while True:
                await self._tick()
                await asyncio.sleep(self._tick_seconds)
        finally:
            # Clients must not wait for a feed that has ended. They can reconnect and get a new one.
            self.ended = True
            self._changed.set()

    async def _tick(self) -> None:
        try:
            await self._compute()
            await self._read()
        except Unavailable as error:
            log.warning("live_figures_late", audience=self._event, reason=str(error))

    async def _compute(self) -> None:
        """Compute the next figures, if this process gets the turn."""
        turn = keys.EVENT_FEED_TURN(self._event)
        if await self._valkey.call("SET", turn, "1", "NX", "PX", round(TURN_SHARE * self._tick_seconds * 1000)) is None:
            return
        figures, name = await self._figures.live(self._event), keys.EVENT_FEED(self._event)
        await self._valkey.multi(
            [
                ("XADD", name, "MAXLEN", MAX_KEPT_FIGURES, "*", "figures", json.encode(figures)),
                ("EXPIRE", name, KEPT_SECONDS),
            ]
        )

    async def _read(self) -> None:
        """Read the figures that any process has added."""
        after = "({}-{}".format(*self.sent[-1][0]) if self.sent else "-"
        entries = await self._valkey.call("XRANGE", keys.EVENT_FEED(self._event), after, "+")
        self.sent.extend(map(_parse_entry, entries))
        if entries:
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    async def follow(self, after: StreamId | None) -> AsyncIterator[ServerSentEvent[LiveFigures]]:
        """Yield all figures after an id, or from the latest on."""
        while not self.ended:
            changed = self._changed
            if after is None and self.sent:
                after = self.sent[-1][0]
                yield self.sent[-1][1]
            for id_, event in list(self.sent):
                if after is not None and id_ > after:
                    after = id_
                    yield event
            await changed.wait()


def _parse_entry(entry: Any) -> tuple[StreamId, ServerSentEvent[LiveFigures]]:
    text, (_, figures) = entry
    id_ = parse_stream_id(text)
    assert id_ is not None, "Valkey generates valid ids"
    return id_, ServerSentEvent(json.decode(figures, type=LiveFigures), event="figures", id=text, retry_ms=RETRY_MS)


class FigureStreams:
    """The feeds of this process."""

    def __init__(
        self,
        valkey: Valkey,
        figures: AudienceFigures,
        *,
        tick_seconds: float = TICK_SECONDS,
        linger_seconds: float = KEPT_SECONDS,
    ) -> None:
        self._valkey = valkey
        self._figures = figures
        self._tick_seconds = tick_seconds
        # A feed without clients continues for a while, for clients that only lost their connection.
        self._linger_seconds = linger_seconds
        self._feeds: dict[str, tuple[FigureFeed, asyncio.Task[None]]] = {}

    async def subscribe(self, event: str, last_id: str | None) -> AsyncIterator[ServerSentEvent[LiveFigures]]:
        """Yield figures for one client until it disconnects."""
        feed = self._get_feed(event)
        feed.clients += 1
        try:
            async for item in feed.follow(parse_stream_id(last_id)):
                yield item
        finally:
            feed.clients -= 1
            if feed.clients == 0:
                asyncio.get_running_loop().call_later(self._linger_seconds, self._end_if_idle, event)

    def _get_feed(self, event: str) -> FigureFeed:
        if event not in self._feeds or self._feeds[event][0].ended:
            feed = FigureFeed(event, self._valkey, self._figures, self._tick_seconds)
            self._feeds[event] = (feed, asyncio.create_task(feed.run()))
        return self._feeds[event][0]

    def _end_if_idle(self, event: str) -> None:
        feed, task = self._feeds.get(event, (None, None))
        if feed is not None and task is not None and feed.clients == 0:
            del self._feeds[event]
            task.cancel()

    def close(self) -> None:
        """End all feeds."""
        for _, task in self._feeds.values():
            task.cancel()
        self._feeds.clear()
