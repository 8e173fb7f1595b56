"""The events of live. `emit()` in Lua emits them; on a cluster all of one live event are in one shard, in order."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from plaza.core.events import EventData

Millis = Annotated[int, Meta(description="Unix milliseconds.")]


class LiveEventData(EventData):
    subject: ClassVar[str] = "event"
    event: Annotated[str, Meta(description="Id of the live event.")]


class EventDeclared(LiveEventData):
    """An admin declared a live event, or changed what is declared about it."""

    type: ClassVar[str] = "event.declared"


class EventPeaked(LiveEventData):
    """A live event has a new peak that has stood for a minute and is at least a tenth higher than the last one told."""

    type: ClassVar[str] = "event.peaked"
    viewers: Annotated[int, Meta(description="The most viewers at once so far.")]
    reached_at: Millis


class EventEnded(LiveEventData):
    """A live event has had no viewers for about four minutes, and everything is recorded. It may begin again."""

    type: ClassVar[str] = "event.ended"
    ended_at: Annotated[int, Meta(description="The last heartbeat, or when the last viewer left, Unix milliseconds.")]
    max_concurrent: Annotated[int, Meta(description="The most viewers at once.")]
    attended: Annotated[int, Meta(description="Distinct viewers.")]


class ViewingData(LiveEventData):
    viewer: Annotated[str, Meta(description="Username, or the id of an anonymous viewer.")]
    location: Annotated[str, Meta(description="Where the viewer watches, as the client says.")]
    started_at: Millis


class ViewingStarted(ViewingData):
    """A viewer began to watch: the first heartbeat of a viewing session."""

    type: ClassVar[str] = "viewing.started"
    session: Annotated[str, Meta(description="Id of the session, if the viewer is in one.")] | None = None


class ViewingEnded(ViewingData):
    """A viewing session ended: the viewer left, or the worker found that no more heartbeats came."""

    type: ClassVar[str] = "viewing.ended"
    ended_at: Annotated[int, Meta(description="The last heartbeat, or when the viewer left, Unix milliseconds.")]
    session: Annotated[str, Meta(description="Id of the session, if the viewer was in one.")] | None = None


EVENTS = (EventDeclared, EventPeaked, EventEnded, ViewingStarted, ViewingEnded)
