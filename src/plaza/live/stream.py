"""Live figures as a stream: computed once a second per event, however many watch.

A feed exists while somebody watches its event in this process. It keeps what it sent in the last two minutes, so that a
browser that lost its connection and says what it saw last (`Last-Event-ID`) gets what it missed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import structlog

from plaza.core.answers import Event
from plaza.core.errors import Unavailable
from plaza.live.figures import Figures
from plaza.live.model import LiveFigures

TICK_SECONDS = 1.0
KEPT = 120
RETRY_MS = 2_000
# A feed that everyone has left goes on this long, for those who only lost their connection.
LINGER_SECONDS = 10.0

log = structlog.get_logger("plaza.live")


class Feed:
    """The figures of one event, second by second."""

    def __init__(self, event: str, figures: Figures, tick_seconds: float) -> None:
        self._event = event
        self._figures = figures
        self._tick_seconds = tick_seconds
        self._changed = asyncio.Event()
        self.watchers = 0
        self.ended = False
        self.sent: deque[tuple[int, LiveFigures]] = deque(maxlen=KEPT)

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
            figures = await self._figures.live(self._event)
        except Unavailable as error:
            log.warning("live figures are late", audience=self._event, reason=str(error))
            return
        last = self.sent[-1][0] if self.sent else 0
        # Ids only rise, also when the clock is set back.
        self.sent.append((max(figures.timestamp, last + 1), figures))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def follow(self, after: int | None) -> AsyncIterator[Event[LiveFigures]]:
        """Everything after an id, or from the latest on."""
        if after is None and self.sent:
            after = self.sent[-1][0] - 1
        after = after or 0
        while not self.ended:
            changed = self._changed
            for id_, figures in list(self.sent):
                if id_ > after:
                    after = id_
                    yield Event(figures, event="figures", id=str(id_), retry_ms=RETRY_MS)
            await changed.wait()


class Stream:
    """The feeds of this process."""

    def __init__(
        self, figures: Figures, *, tick_seconds: float = TICK_SECONDS, linger_seconds: float = LINGER_SECONDS
    ) -> None:
        self._figures = figures
        self._tick_seconds = tick_seconds
        self._linger_seconds = linger_seconds
        self._feeds: dict[str, tuple[Feed, asyncio.Task[None]]] = {}

    async def watch(self, event: str, last_id: str | None) -> AsyncIterator[Event[LiveFigures]]:
        """Figures for one watcher, until it goes away."""
        feed = self._feed(event)
        feed.watchers += 1
        follower = feed.follow(int(last_id) if last_id and last_id.isascii() and last_id.isdigit() else None)
        try:
            async for item in follower:
                yield item
        finally:
            feed.watchers -= 1
            if feed.watchers == 0:
                asyncio.get_running_loop().call_later(self._linger_seconds, self._end_if_idle, event)

    def _feed(self, event: str) -> Feed:
        if event not in self._feeds or self._feeds[event][0].ended:
            feed = Feed(event, self._figures, self._tick_seconds)
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
