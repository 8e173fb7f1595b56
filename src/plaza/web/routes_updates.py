"""The one event stream of an open page: new posts, counts that change, new comments."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from plaza.core.errors import TooFast
from plaza.core.event_hub import TooManyListeners
from plaza.core.http.access import PUBLIC
from plaza.core.http.request import Request
from plaza.core.http.responses import EVENTS, Response, ServerSentEvent
from plaza.core.topic_hub import TopicHub, last_event_ms
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes

page = PageRoutes()

Watched = Annotated[str, Meta(max_length=8_000, description="Topics such as `explore,post:<id>`.")]
SinceMs = Annotated[int, Meta(ge=0, le=10**15, description="When the page was made, Unix milliseconds.")]


@page.get("/stream", access=PUBLIC, media_type=EVENTS, raises=(TooManyListeners, TooFast))
async def stream(
    request: Request, site: PageResponses, hub: TopicHub, watch: Watched, since: SinceMs
) -> Response[ServerSentEvent[dict[str, Any]]]:
    """Stream what changes on a page: first what it missed since it was made."""
    visitor = await site.visitors.from_request(request)
    # A browser that reconnects by itself sends the id of the last message.
    since_ms = last_event_ms(request) or since
    return Response(await hub.subscribe(visitor.actor, request.address, watch.split(","), since_ms))
