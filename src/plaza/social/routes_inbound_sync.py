"""HTTP routes of sync: another system sends its records, with the API key."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from plaza.core.http.access import API_KEY
from plaza.core.http.routes import Routes
from plaza.social.inbound_sync import (
    MAX_RECORDS,
    CommentRecord,
    FollowRecord,
    InboundSync,
    MarkRecord,
    PostRecord,
    SyncResults,
    UserRecord,
)

route = Routes("sync", prefix="/sync", about="Copying records from another system.")

# Each record is checked on its own: one that is not an object must not reject the others.
Records = Annotated[list[Any], Meta(max_length=MAX_RECORDS, description="Records of the other system.")]

# 1,000 long posts.
BODY_LIMIT = 32 * 1024 * 1024


@route.post(
    "/users",
    access=API_KEY,
    body_limit=BODY_LIMIT,
    body_schema=list[UserRecord],
    example=[{"username": "ana", "bio": "Gardener.", "created_at": 1760000000000}],
)
async def sync_users(body: Records, sync: InboundSync) -> SyncResults:
    """Sync users: `{username}` and any other profile fields. One result per record."""
    return SyncResults(await sync.apply("user", body))


@route.post(
    "/follows",
    access=API_KEY,
    body_limit=BODY_LIMIT,
    body_schema=list[FollowRecord],
    example=[{"follower": "ben", "following": "ana"}],
)
async def sync_follows(body: Records, sync: InboundSync) -> SyncResults:
    """Sync follows: `{follower, following, created_at?}`. One result per record."""
    return SyncResults(await sync.apply("follow", body))


@route.post(
    "/posts",
    access=API_KEY,
    body_limit=BODY_LIMIT,
    body_schema=list[PostRecord],
    example=[{"id": "0b6f8a52-1c9e-4d0a-9f2e-5a7c3b1d8e4f", "username": "ben", "content": "Sunset #travel"}],
)
async def sync_posts(body: Records, sync: InboundSync) -> SyncResults:
    """Sync posts: `{id, username, content, media_url?, hashtags?, created_at?}`. One result per record."""
    return SyncResults(await sync.apply("post", body))


@route.post(
    "/likes",
    access=API_KEY,
    body_limit=BODY_LIMIT,
    body_schema=list[MarkRecord],
    example=[{"username": "ben", "post_id": "0b6f8a52-1c9e-4d0a-9f2e-5a7c3b1d8e4f"}],
)
async def sync_likes(body: Records, sync: InboundSync) -> SyncResults:
    """Sync likes: `{username, post_id, created_at?}`. One result per record."""
    return SyncResults(await sync.apply("like", body))


@route.post(
    "/bookmarks",
    access=API_KEY,
    body_limit=BODY_LIMIT,
    body_schema=list[MarkRecord],
    example=[{"username": "ben", "post_id": "0b6f8a52-1c9e-4d0a-9f2e-5a7c3b1d8e4f"}],
)
async def sync_bookmarks(body: Records, sync: InboundSync) -> SyncResults:
    """Sync bookmarks: `{username, post_id, created_at?}`. One result per record."""
    return SyncResults(await sync.apply("bookmark", body))


@route.post(
    "/comments",
    access=API_KEY,
    body_limit=BODY_LIMIT,
    body_schema=list[CommentRecord],
    example=[
        {
            "id": "7d1e4c3b-2f5a-4b8e-8c6d-1a9f0e2b3c4d",
            "post_id": "0b6f8a52-1c9e-4d0a-9f2e-5a7c3b1d8e4f",
            "username": "ben",
            "content": "Nice!",
        }
    ],
)
async def sync_comments(body: Records, sync: InboundSync) -> SyncResults:
    """Sync comments: `{id, post_id, username, content, created_at?, reply_to?}`. One result per record."""
    return SyncResults(await sync.apply("comment", body))
