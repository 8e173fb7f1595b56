"""HTTP routes of feeds as streams. The composition root adds them: the topic hub knows all domains."""

from __future__ import annotations

from plaza.core.auth import Actor
from plaza.core.errors import TooFast
from plaza.core.event_hub import TooManyListeners
from plaza.core.http.access import PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import EVENTS, Response, ServerSentEvent
from plaza.core.http.routes import Routes
from plaza.core.topic_hub import TopicHub, last_event_ms
from plaza.social.model import NewPosts

route = Routes("feeds", about="Feeds, hashtags and rankings.")


@route.get("/feed/explore/stream", access=PUBLIC, media_type=EVENTS, raises=(TooManyListeners, TooFast))
async def stream_explore_feed(
    request: Request, actor: Actor | None, hub: TopicHub
) -> Response[ServerSentEvent[NewPosts]]:
    """Stream the ids of new posts as server-sent events, at most one a second. `Last-Event-ID` resumes.

    Posts that are hidden from the caller are left out. A post can come again after resuming."""
    return Response(await hub.subscribe(actor, request.address, ["explore"], last_event_ms(request)))


@route.get("/feed/following/stream", access=USER, media_type=EVENTS, raises=(TooManyListeners, TooFast))
async def stream_following_feed(request: Request, actor: Actor, hub: TopicHub) -> Response[ServerSentEvent[NewPosts]]:
    """Stream the ids of new posts of the users that the caller follows, as server-sent events. `Last-Event-ID` resumes.

    It sends at most one message a second. A post can come again after resuming."""
    return Response(await hub.subscribe(actor, request.address, ["following"], last_event_ms(request)))
