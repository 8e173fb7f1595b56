"""The HTTP routes of notifications."""

from __future__ import annotations

from plaza.core.auth import Actor
from plaza.core.event_hub import TooManyListeners
from plaza.core.http.access import USER
from plaza.core.http.responses import EVENTS, Response, ServerSentEvent
from plaza.core.http.routes import Routes
from plaza.notifications.model import (
    NoNotification,
    NotificationId,
    NotificationsPage,
    NotificationsQuery,
    Preferences,
    PreferencesChange,
    ReadRequest,
    ReadResult,
    UnreadCount,
)
from plaza.notifications.service import Notifications
from plaza.notifications.unread_counts import UnreadCounts

route = Routes(
    "notifications", about="What others did that concerns you, grouped by type and subject until you read it."
)


@route.get("/notifications", access=USER)
async def list_notifications(
    actor: Actor, query: NotificationsQuery, notifications: Notifications
) -> NotificationsPage:
    """List your notifications, latest first."""
    return await notifications.page(actor, query)


@route.get("/notifications/unread-count", access=USER)
async def count_unread_notifications(actor: Actor, notifications: Notifications) -> UnreadCount:
    """Count your unread notifications."""
    return await notifications.unread(actor)


@route.get("/notifications/stream", access=USER, media_type=EVENTS, raises=[TooManyListeners])
async def stream_unread_notifications(actor: Actor, counts: UnreadCounts) -> Response[ServerSentEvent[UnreadCount]]:
    """Stream the number of your unread notifications as server-sent events: now, and whenever it changes."""
    changes = counts.changes(actor.name)
    return Response(ServerSentEvent(UnreadCount(count)) async for count in changes)


@route.post("/notifications/read", access=USER, example={"before": 1_790_000_000_000})
async def read_notifications(actor: Actor, body: ReadRequest, notifications: Notifications) -> ReadResult:
    """Mark notifications as read: some by their ids, or all until a time."""
    return await notifications.mark_read(actor, body)


@route.delete("/notifications/{id}", access=USER, status=204, raises=[NoNotification])
async def dismiss_notification(actor: Actor, id: NotificationId, notifications: Notifications) -> None:
    """Dismiss a notification. What it told you is not told again."""
    await notifications.dismiss(actor, id)


@route.get("/notifications/preferences", access=USER)
async def get_notification_preferences(actor: Actor, notifications: Notifications) -> Preferences:
    """Get which types of notifications you receive."""
    return await notifications.preferences(actor)


@route.put("/notifications/preferences", access=USER, example={"like": False})
async def set_notification_preferences(
    actor: Actor, body: PreferencesChange, notifications: Notifications
) -> Preferences:
    """Turn types of notifications on or off. Types that you do not name stay as they are."""
    return await notifications.set_preferences(actor, body)
