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


EVENTS = (EventDeclared, ViewingStarted, ViewingEnded)
