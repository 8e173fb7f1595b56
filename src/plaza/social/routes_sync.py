"""HTTP in and out of sync: another system sends what it knows, with the API key."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from plaza.core.http.access import API_KEY
from plaza.core.http.routes import Routes
from plaza.social.sync import MAX_RECORDS, Sync, SyncResults

route = Routes("sync", prefix="/sync", about="Taking over what another system knows.")

# Anything, since each record is answered for itself: one that is no object keeps no other out.
Records = Annotated[list[Any], Meta(max_length=MAX_RECORDS, description="What the other system knows.")]

# A thousand long posts.
BODY_LIMIT = 32 * 1024 * 1024


@route.post("/users", access=API_KEY, body_limit=BODY_LIMIT)
async def users(body: Records, sync: Sync) -> SyncResults:
    """Users: `{username}` and whatever else of the profile is known. A result per record."""
    return SyncResults(await sync.take("user", body))


@route.post("/follows", access=API_KEY, body_limit=BODY_LIMIT)
async def follows(body: Records, sync: Sync) -> SyncResults:
    """Follows: `{follower, following, created_at?}`. A result per record."""
    return SyncResults(await sync.take("follow", body))


@route.post("/posts", access=API_KEY, body_limit=BODY_LIMIT)
async def posts(body: Records, sync: Sync) -> SyncResults:
    """Posts: `{id, username, content, media_url?, hashtags?, created_at?}`. A result per record."""
    return SyncResults(await sync.take("post", body))


@route.post("/likes", access=API_KEY, body_limit=BODY_LIMIT)
async def likes(body: Records, sync: Sync) -> SyncResults:
    """Likes: `{username, post_id, created_at?}`. A result per record."""
    return SyncResults(await sync.take("like", body))


@route.post("/bookmarks", access=API_KEY, body_limit=BODY_LIMIT)
async def bookmarks(body: Records, sync: Sync) -> SyncResults:
    """Bookmarks: `{username, post_id, created_at?}`. A result per record."""
    return SyncResults(await sync.take("bookmark", body))


@route.post("/comments", access=API_KEY, body_limit=BODY_LIMIT)
async def comments(body: Records, sync: Sync) -> SyncResults:
    """Comments: `{id, post_id, username, content, created_at?}`. A result per record."""
    return SyncResults(await sync.take("comment", body))
