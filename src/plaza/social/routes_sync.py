"""HTTP in and out of sync: another system sends what it knows, with the API key."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from plaza.core.auth import ADMIN, Actor
from plaza.core.errors import Forbidden
from plaza.core.http.routes import Routes
from plaza.social.sync import MOST_RECORDS, Kind, Results, Sync

route = Routes("sync", prefix="/sync", about="Taking over what another system knows.")

# Anything, since each record is answered for itself: one that is no object keeps no other out.
Records = Annotated[list[Any], Meta(max_length=MOST_RECORDS, description="What the other system knows.")]

# A thousand long posts.
BODY_LIMIT = 32 * 1024 * 1024


async def _take(actor: Actor, kind: Kind, records: list[Any], sync: Sync) -> Results:
    actor.require(ADMIN)
    if not actor.via_key:
        raise Forbidden("Sync is for servers: use the API key.")
    return Results(await sync.take(kind, records))


@route.post("/users", body_limit=BODY_LIMIT)
async def users(actor: Actor, body: Records, sync: Sync) -> Results:
    """Users: `{username}` and whatever else of the profile is known. A result per record."""
    return await _take(actor, "user", body, sync)


@route.post("/follows", body_limit=BODY_LIMIT)
async def follows(actor: Actor, body: Records, sync: Sync) -> Results:
    """Follows: `{follower, following, created_at?}`. A result per record."""
    return await _take(actor, "follow", body, sync)


@route.post("/posts", body_limit=BODY_LIMIT)
async def posts(actor: Actor, body: Records, sync: Sync) -> Results:
    """Posts: `{id, username, content, media_url?, hashtags?, created_at?}`. A result per record."""
    return await _take(actor, "post", body, sync)


@route.post("/likes", body_limit=BODY_LIMIT)
async def likes(actor: Actor, body: Records, sync: Sync) -> Results:
    """Likes: `{username, post_id, created_at?}`. A result per record."""
    return await _take(actor, "like", body, sync)


@route.post("/bookmarks", body_limit=BODY_LIMIT)
async def bookmarks(actor: Actor, body: Records, sync: Sync) -> Results:
    """Bookmarks: `{username, post_id, created_at?}`. A result per record."""
    return await _take(actor, "bookmark", body, sync)


@route.post("/comments", body_limit=BODY_LIMIT)
async def comments(actor: Actor, body: Records, sync: Sync) -> Results:
    """Comments: `{id, post_id, username, content, created_at?}`. A result per record."""
    return await _take(actor, "comment", body, sync)
