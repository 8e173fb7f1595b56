"""Sends messages about topics to the open pages and streams of this process.

Events are read once per process (`event_hub.py`), whatever the number of listeners. What they change is collected, and
at most once a second the sources write one message per topic, which is encoded once for all listeners that may see it.
A listener that does not read is cut off. One that connects again gets the current state, so nothing is missed.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import structlog

from plaza.core import metrics
from plaza.core.auth import Actor, Auth
from plaza.core.clock import Clock
from plaza.core.errors import Invalid, PlazaError, TooFast
from plaza.core.event_hub import EventHub, EventSubscription, TooManyListeners
from plaza.core.events import Event, TypeFilter
from plaza.core.http.request import Request
from plaza.core.rate_limits import address_subject
from plaza.core.sequences import chunks
from plaza.core.topics import NO_AUTHORS, HiddenAuthors, TopicMessage, TopicSource

MAX_LISTENERS = 10_000
# Tabs of all browsers behind one address.
MAX_PER_ADDRESS = 500
MAX_TOPICS = 100
# Messages that wait for one listener. A client that reads has none after a moment.
MAX_WAITING = 200
# Changes that wait for the next messages. In such a flood, later ones are left out.
MAX_CHANGES = 20_000
# Listeners that are sent to before other work of the event loop goes on: about a millisecond.
SENT_AT_ONCE = 50
# A listener has to connect again after this time, with credentials that are still valid.
MAX_LISTENING_SECONDS = 1_800
# A change waits so long for others that belong to it.
COLLECT_SECONDS = 0.05
INTERVAL_SECONDS = 1.0
RETRY_SECONDS = 1.0
RETRY_AFTER = 60.0

_TOPIC = re.compile("[a-z]+(:[A-Za-z0-9-]{1,64})?")

log = structlog.get_logger("plaza.topics")


class TopicListener(AsyncIterator[bytes]):
    """One open page or stream: yields encoded server-sent events. Close it, also if it was never read."""

    def __init__(self, viewer: Actor | None, address: str, leave: Callable[[TopicListener], None]) -> None:
        self.viewer = viewer
        self.name = "" if viewer is None else viewer.name
        self.address = address
        self.topics: list[str] = []
        self._leave = leave
        self._waiting: list[bytes] = []
        self._has_ended = False
        self._wake: asyncio.Future[None] | None = None
        # Not all at once, if many have connected at the same time.
        seconds = MAX_LISTENING_SECONDS * random.uniform(0.5, 1)
        self._timer = asyncio.get_running_loop().call_later(seconds, self.end)

    def offer(self, chunks: list[bytes]) -> None:
        """Give it messages. If too many wait, it ends."""
        if len(self._waiting) + len(chunks) > MAX_WAITING:
            metrics.TOPIC_LISTENERS_CUT_OFF.inc()
            self.end()
            return
        self._waiting += chunks
        self._set_awake()

    def end(self) -> None:
        self._has_ended = True
        self._timer.cancel()
        self._set_awake()

    def _set_awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def __anext__(self) -> bytes:
        """Return what waits, as one piece."""
        while not self._waiting or self._has_ended:
            if self._has_ended:
                raise StopAsyncIteration
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        found = b"".join(self._waiting)
        self._waiting.clear()
        return found

    async def aclose(self) -> None:
        self.end()
        self._leave(self)


class ListenerIndex:
    """The listeners of this process, by topic and by address."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self._listeners: set[TopicListener] = set()
        self._by_address: Counter[str] = Counter()
        self._by_topic: dict[str, dict[str, set[TopicListener]]] = {kind: {} for kind in kinds}

    def __len__(self) -> int:
        return len(self._listeners)

    def of_address(self, address: str) -> int:
        return self._by_address[address]

    def listeners(self, topic: str) -> int:
        return len(self.find(topic))

    def of_kind(self, kind: str) -> Collection[str]:
        return self._by_topic[kind].keys()

    def find(self, topic: str) -> Collection[TopicListener]:
        return self._by_topic[_kind(topic)].get(topic, ())

    def add(self, listener: TopicListener) -> None:
        self._listeners.add(listener)
        self._by_address[listener.address] += 1
        metrics.TOPIC_LISTENERS.set(len(self))

    def watch(self, listener: TopicListener, topics: Iterable[str]) -> None:
        for topic in topics if listener in self._listeners else ():
            self._by_topic[_kind(topic)].setdefault(topic, set()).add(listener)
            listener.topics.append(topic)

    def remove(self, listener: TopicListener) -> None:
        if listener not in self._listeners:
            return
        self._listeners.discard(listener)
        metrics.TOPIC_LISTENERS.set(len(self))
        self._by_address[listener.address] -= 1
        if not self._by_address[listener.address]:
            del self._by_address[listener.address]
        for topic in listener.topics:
            watched = self._by_topic[_kind(topic)]
            watched[topic].discard(listener)
            if not watched[topic]:
                del watched[topic]

    def end_all(self) -> None:
        for listener in list(self._listeners):
            listener.end()
            self.remove(listener)


class TopicHub:
    """Tells the listeners of this process what changes."""

    def __init__(
        self,
        events: EventHub,
        sources: Sequence[TopicSource],
        hidden: HiddenAuthors | None,
        auth: Auth,
        clock: Clock,
        *,
        limits: bool = True,
    ) -> None:
        self._events = events
        self._sources = {_kind(kind): source for source in sources for kind in source.kinds}
        self._by_type = {type: source for source in sources for type in source.event_types}
        self._hidden = hidden
        self._auth = auth
        self._clock = clock
        self._limits = limits
        self._index = ListenerIndex(self._sources)
        self._changes: dict[TopicSource, dict[str, None]] = {source: {} for source in sources}
        self._has_changes = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._starting = asyncio.Lock()
        for source in sources:
            source.listen(partial(self._note, source))

    async def subscribe(
        self, viewer: Actor | None, address: str, names: Sequence[str], since_ms: int | None = None
    ) -> TopicListener:
        """Listen to topics that the viewer may see; others are ignored. Up to four round trips per source.

        With `since_ms` the first messages are what the viewer may have missed since then. Raises `TooManyListeners`,
        `TooFast` for too many of one address, and `Invalid` for what is no topic.
        """
        by_source = _group_by_source(self._sources, names)
        listener = self._enter(viewer, address_subject(address))
        try:
            await self._start()
            for source, wanted in by_source.items():
                self._index.watch(listener, await source.resolve(viewer, wanted))
            if since_ms is not None:
                await self._catch_up(listener, by_source, since_ms)
        except BaseException:
            await listener.aclose()
            raise
        return listener

    def _enter(self, viewer: Actor | None, address: str) -> TopicListener:
        if self._limits and len(self._index) >= MAX_LISTENERS:
            raise TooManyListeners("Too many pages and streams are open here. Try again later.")
        if self._limits and self._index.of_address(address) >= MAX_PER_ADDRESS:
            raise TooFast("This address has too many pages and streams open. Close some.", retry_after=RETRY_AFTER)
        listener = TopicListener(viewer, address, self._leave)
        self._index.add(listener)
        return listener

    def _leave(self, listener: TopicListener) -> None:
        self._index.remove(listener)
        if not len(self._index):
            self._stop()

    async def _catch_up(self, listener: TopicListener, sources: Iterable[TopicSource], since_ms: int) -> None:
        at_ms = self._clock.now_ms()
        for source in sources:
            topics = [topic for topic in listener.topics if self._sources[_kind(topic)] is source]
            messages = await source.current(listener.viewer, topics, since_ms) if topics else ()
            listener.offer([chunk for message in messages if (chunk := message.encoded(NO_AUTHORS, at_ms))])

    async def _start(self) -> None:
        """Follow events, unless that is happening already. Raises `Unavailable` if Valkey is."""
        async with self._starting:
            if not self._tasks:
                subscription = await self._events.subscribe(TypeFilter(self._by_type), None, None)
                self._tasks = [asyncio.create_task(self._follow(subscription)), asyncio.create_task(self._tell())]

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        for changes in self._changes.values():
            changes.clear()

    async def _follow(self, subscription: EventSubscription) -> None:
        """Collect what events change. After being cut off, go on with the next events."""
        while True:
            try:
                try:
                    async for entry in subscription:
                        self._collect(entry.event)
                finally:
                    await subscription.aclose()
                subscription = await self._events.subscribe(TypeFilter(self._by_type), None, None)
            except PlazaError as error:
                log.warning("topics_not_followed", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)

    def _collect(self, event: Event) -> None:
        source = self._by_type[event.type]
        with suppress(ValueError, TypeError, LookupError):  # other programs may write to streams too
            for change in source.changes(event, self._index):
                self._note(source, change)

    def _note(self, source: TopicSource, change: str) -> None:
        waiting = self._changes[source]
        if len(waiting) < MAX_CHANGES and len(self._index):
            waiting[change] = None
            self._has_changes.set()

    async def _tell(self) -> None:
        """Tell listeners about changes, at most once a second."""
        loop = asyncio.get_running_loop()
        while True:
            await self._has_changes.wait()
            started = loop.time()
            await asyncio.sleep(COLLECT_SECONDS)
            self._has_changes.clear()
            try:
                await self._send(await self._messages())
            except PlazaError as error:
                log.warning("topics_not_sent", error=str(error))
            except Exception as error:
                log.error("topics_not_sent", exc_info=error)
            await asyncio.sleep(started + INTERVAL_SECONDS - loop.time())

    async def _messages(self) -> list[TopicMessage]:
        """Return the messages about all that has changed."""
        messages: list[TopicMessage] = []
        for source, waiting in self._changes.items():
            changes = list(waiting)
            waiting.clear()
            messages += await source.messages(changes, self._index) if changes else ()
        return messages

    async def _send(self, messages: Sequence[TopicMessage]) -> None:
        """Send each listener its messages, as one piece."""
        at_ms, outgoing = self._clock.now_ms(), dict[TopicListener, list[bytes]]()
        hidden = await self._hidden_authors(messages)
        for message in messages:
            shared = message.encoded(NO_AUTHORS, at_ms)
            for listener in self._index.find(message.topic):
                chunk = message.encoded(hidden[listener.name], at_ms) if listener.name in hidden else shared
                if chunk:
                    outgoing.setdefault(listener, []).append(chunk)
        for some in chunks(outgoing.items(), SENT_AT_ONCE):
            for listener, waiting in some:
                if listener.viewer is not None and self._auth.has_ended(listener.viewer):
                    listener.end()
                else:
                    listener.offer(waiting)
            await asyncio.sleep(0)

    async def _hidden_authors(self, messages: Sequence[TopicMessage]) -> Mapping[str, frozenset[str]]:
        """Return the authors that viewers of messages must not see, by the viewer's name."""
        authors = sorted(frozenset().union(*(message.authors for message in messages)))
        viewers = {
            listener.name: listener.viewer
            for topic in {message.topic for message in messages}
            for listener in self._index.find(topic)
            if listener.viewer is not None
        }
        if self._hidden is None or not viewers or not authors:
            return {}
        return await self._hidden.hidden_from(viewers.values(), authors)

    def close(self) -> None:
        """End all listeners."""
        self._stop()
        self._index.end_all()


def _group_by_source(sources: Mapping[str, TopicSource], names: Sequence[str]) -> dict[TopicSource, list[str]]:
    if not 1 <= len(names) <= MAX_TOPICS:
        raise Invalid(f"Must be 1 to {MAX_TOPICS} topics.", field="watch")
    grouped: dict[TopicSource, list[str]] = {}
    for name in dict.fromkeys(names):
        kind, colon, _ = name.partition(":")
        source = sources.get(kind)
        if source is None or f"{kind}{colon}" not in source.kinds or not _TOPIC.fullmatch(name):
            raise Invalid(f"Unknown topic {name[:60]}.", field="watch")
        grouped.setdefault(source, []).append(name)
    return grouped


def last_event_ms(request: Request) -> int | None:
    """Return the time in `Last-Event-ID`; None without one. Raises `Invalid` if it is none."""
    text = request.headers.get("last-event-id")
    if not text:
        return None
    if not re.fullmatch("[0-9]{1,15}", text):
        raise Invalid("Invalid id. Connect again without it.", field="Last-Event-ID")
    return int(text)


def _kind(topic: str) -> str:
    return topic.partition(":")[0]
