"""Events over HTTP, as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Annotated, Any

from msgspec import Meta, Raw

from plaza.core.cloud_events import CloudEvent, to_cloud_event
from plaza.core.errors import Invalid
from plaza.core.event_hub import EventHub, EventsTrimmed, EventSubscription, TooManyListeners
from plaza.core.events import TypeFilter
from plaza.core.http.access import EVENTS
from plaza.core.http.request import Request
from plaza.core.http.responses import EVENTS as EVENT_STREAM
from plaza.core.http.responses import Response, ServerSentEvent
from plaza.core.http.routes import Routes

route = Routes("events", about="What happens, as it happens: see docs/events.md.")

MAX_TYPES = 50

Types = Annotated[
    str,
    Meta(max_length=1_000, description="Types such as `post.*,order.placed`. Without it, all.", examples=["post.*"]),
]
Subject = Annotated[str, Meta(max_length=200, description="Only events about this subject.")]


class EventTypeNames:
    """The names of all declared types, to check what clients ask for."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._patterns = {"*"} | {f"{name.partition('.')[0]}.*" for name in self._names}

    def parse(self, text: str) -> TypeFilter:
        """Return the filter of a list of types. Raises `Invalid` if one is unknown."""
        wanted = [name.strip() for name in text.split(",") if name.strip()]
        if len(wanted) > MAX_TYPES:
            raise Invalid(f"At most {MAX_TYPES} types.", field="types")
        for name in wanted:
            if name not in self._names and name not in self._patterns:
                raise Invalid(f"Unknown type {name[:60]}. See GET /asyncapi.json for all types.", field="types")
        return TypeFilter(wanted)


class ServerSentEvents(AsyncIterator[ServerSentEvent[Any]]):
    """A subscription as server-sent events. The id of each is its position, for `Last-Event-ID`."""

    def __init__(self, subscription: EventSubscription, source: str) -> None:
        self._subscription = subscription
        self._source = source

    async def __anext__(self) -> ServerSentEvent[Any]:
        entry = await anext(self._subscription)
        return ServerSentEvent(Raw(entry.encoded(self._encode)), id=entry.position)

    def _encode(self, event: Any) -> bytes:
        return to_cloud_event(event, self._source).encode()

    def position(self) -> str | None:
        """Return the id to continue after if no event follows; None if that is the id of the last event."""
        return self._subscription.position()

    async def aclose(self) -> None:
        await self._subscription.aclose()


class EventFeed:
    """Subscribes clients of HTTP to the hub. `source` names this Plaza in each event."""

    def __init__(self, hub: EventHub, types: EventTypeNames, source: str) -> None:
        self._hub = hub
        self._types = types
        self._source = source

    async def subscribe(self, types: str, subject: str | None, after: str | None) -> ServerSentEvents:
        """Subscribe a client. Raises `Invalid` if a type or the id to continue after is not one."""
        wants = self._types.parse(types)
        return ServerSentEvents(await self._hub.subscribe(wants, subject, after), self._source)


@route.get("/events", access=EVENTS, media_type=EVENT_STREAM, raises=(EventsTrimmed, TooManyListeners))
async def stream_events(
    request: Request, feed: EventFeed, types: Types = "", subject: Subject | None = None
) -> Response[ServerSentEvent[CloudEvent]]:
    """Stream events as they happen, as server-sent events. `Last-Event-ID` resumes.

    Each is a CloudEvent. A client that does not keep up is disconnected, and can resume. So is every client after five
    minutes, to check its access again."""
    after = request.headers.get("last-event-id") or None
    return Response(await feed.subscribe(types, subject, after))
