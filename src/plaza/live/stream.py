"""Live figures as a stream: computed once a second per event, however many watch, in however many processes.

Each process that has watchers of an event keeps a feed of it. Once a second the feeds try for the turn; the one that
gets it computes the figures and puts them into a stream in Valkey, from which all feeds read. What was sent in the last
two minutes stays there, so a browser that lost its connection and says what it saw last (`Last-Event-ID`) gets what it
missed, from whichever process it comes back to.
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
KEPT = 120
KEPT_SECONDS = 120
RETRY_MS = 2_000
# A little less than a tick, or a turn that ends a moment late would be a second without figures.
TURN = 0.9

log = structlog.get_logger("plaza.live")

# As Valkey numbers the entries of a stream.
Id = tuple[int, int]


def read_id(text: str | None) -> Id | None:
    """What a browser saw last, if it is an id of ours."""
    match = re.fullmatch(r"([0-9]{1,18})-([0-9]{1,18})", text or "")
    return (int(match[1]), int(match[2])) if match else None


class FigureFeed:
    """The figures of one event, second by second, as this process has read them."""

    def __init__(self, event: str, valkey: Valkey, figures: AudienceFigures, tick_seconds: float) -> None:
        self._event = event
        self._valkey = valkey
        self._figures = figures
        self._tick_seconds = tick_seconds
        self._changed = asyncio.Event()
        self.watchers = 0
        self.ended = False
        self.sent: deque[tuple[Id, ServerSentEvent[LiveFigures]]] = deque(maxlen=KEPT)

    async def run(self) -> None:
        try:
            while True:
                await self._tick()
                await asyncio.sleep(self._tick_seconds)
        finally:
            # However this ends, those who watch are told, and may come back for another feed.
            self.ended = True
            self._changed.set()

    async def _tick(self) -> None:
        try:
            await self._compute()
            await self._read()
        except Unavailable as error:
            log.warning("live figures are late", audience=self._event, reason=str(error))

    async def _compute(self) -> None:
        """Make the next figures, if it is our turn."""
        turn = keys.EVENT_FEED_TURN(self._event)
        if await self._valkey.call("SET", turn, "1", "NX", "PX", round(TURN * self._tick_seconds * 1000)) is None:
            return
        figures, name = await self._figures.live(self._event), keys.EVENT_FEED(self._event)
        await self._valkey.multi(
            [
                ("XADD", name, "MAXLEN", KEPT, "*", "figures", json.encode(figures)),
                ("EXPIRE", name, KEPT_SECONDS),
            ]
        )

    async def _read(self) -> None:
        """Take in what is new, whoever made it."""
        after = "({}-{}".format(*self.sent[-1][0]) if self.sent else "-"
        entries = await self._valkey.call("XRANGE", keys.EVENT_FEED(self._event), after, "+")
        self.sent.extend(map(_entry, entries))
        if entries:
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    async def follow(self, after: Id | None) -> AsyncIterator[ServerSentEvent[LiveFigures]]:
        """Everything after an id, or from the latest on."""
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


def _entry(entry: Any) -> tuple[Id, ServerSentEvent[LiveFigures]]:
    text, (_, figures) = entry
    id_ = read_id(text)
    assert id_ is not None, "Valkey made it"
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
        # A feed that everyone has left goes on for those who only lost their connection.
        self._linger_seconds = linger_seconds
        self._feeds: dict[str, tuple[FigureFeed, asyncio.Task[None]]] = {}

    async def watch(self, event: str, last_id: str | None) -> AsyncIterator[ServerSentEvent[LiveFigures]]:
        """Figures for one watcher, until it goes away."""
        feed = self._feed(event)
        feed.watchers += 1
        try:
            async for item in feed.follow(read_id(last_id)):
                yield item
        finally:
            feed.watchers -= 1
            if feed.watchers == 0:
                asyncio.get_running_loop().call_later(self._linger_seconds, self._end_if_idle, event)

    def _feed(self, event: str) -> FigureFeed:
        if event not in self._feeds or self._feeds[event][0].ended:
            feed = FigureFeed(event, self._valkey, self._figures, self._tick_seconds)
            self._feeds[event] = (feed, asyncio.create_task(feed.run()))
        return self._feeds[event][0]

    def _end_if_idle(self, event: str) -> None:
        feed, task = self._feeds.get(event, (None, None))
        if feed is not None and task is not None and feed.watchers == 0:
            del self._feeds[event]
            task.cancel()

    def close(self) -> None:
        """End all feeds, watched or not."""
        for _, task in self._feeds.values():
            task.cancel()
        self._feeds.clear()
