"""Notifications: the list, and which types a user gets. The bell in the header leads here."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec

from plaza.core.http.access import USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.notification_source import NOTIFICATION_TYPES
from plaza.notifications.model import NoNotification, NotificationsQuery, PreferencesChange, ReadRequest
from plaza.notifications.service import Notifications
from plaza.web import forms
from plaza.web.notification_html import LABELS, sentence
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.rendering import tabs
from plaza.web.text_html import next_page_link

page = PageRoutes()

PATH: Final = "/app/notifications"
SECTION: Final = "Notifications"
ROWS: Final = 20
_VIEWS: Final = (("All", PATH), ("Unread", f"{PATH}?filter=unread"), ("Settings", f"{PATH}/settings"))


class NotificationForm(msgspec.Struct):
    """The button that was pressed: one notification, or all until a time."""

    id: str = ""
    before: str = ""


@page.get("/notifications", access=USER)
async def notifications_page(
    request: Request, site: PageResponses, notifications: Notifications, filter: str = "all", cursor: str = ""
) -> Response[str]:
    """List your notifications, latest first."""
    visitor = await site.visitors.from_request(request)
    shown = filter if filter == "unread" else "all"
    query = forms.convert_fields({"filter": shown, "limit": ROWS, "cursor": cursor or None}, NotificationsQuery)
    found = await notifications.page(visitor.require_user(), query)
    pictured = {name for each in found.notifications for name in each.actors[:1]}
    context: dict[str, Any] = {
        "tabs": tabs("Notifications", _VIEWS, shown.capitalize()),
        "entries": [(each, sentence(each)) for each in found.notifications],
        "pictures": await site.visitors.avatars.addresses(pictured),
        "unread": found.unread,
        "filter": shown,
        "is_first": not cursor,
        "newest": max((each.updated_at for each in found.notifications), default=0),
        "more": next_page_link(f"{PATH}?filter={shown}", found.pagination),
    }
    return site.page(request, visitor, "notifications.html", section=SECTION, **context)


@page.post("/notifications/read", access=USER)
async def mark_notifications_read(
    request: Request, body: bytes, site: PageResponses, notifications: Notifications
) -> Response[str]:
    """Mark one notification as read, or all until a time."""
    visitor = await site.visitors.from_request(request)
    form = forms.read_form(body, NotificationForm)
    wanted = {"ids": [form.id]} if form.id else {"before": form.before}
    await notifications.mark_read(visitor.require_user(), forms.convert_fields(wanted, ReadRequest))
    return site.form_response(request, visitor, body, PATH)


@page.post("/notifications/dismiss", access=USER)
async def dismiss_notification(
    request: Request, body: bytes, site: PageResponses, notifications: Notifications
) -> Response[str]:
    """Dismiss a notification. One that is gone already is dismissed."""
    visitor = await site.visitors.from_request(request)
    with suppress(NoNotification):
        await notifications.dismiss(visitor.require_user(), forms.read_form(body, NotificationForm).id)
    return site.form_response(request, visitor, body, PATH)


@page.get("/notifications/settings", access=USER)
async def notification_settings(
    request: Request, site: PageResponses, notifications: Notifications, saved: str = ""
) -> Response[str]:
    """Show which types of notifications you get."""
    visitor = await site.visitors.from_request(request)
    chosen = msgspec.structs.asdict(await notifications.preferences(visitor.require_user()))
    context: dict[str, Any] = {
        "tabs": tabs("Notifications", _VIEWS, "Settings"),
        "types": [(type, LABELS[type], chosen[type]) for type in NOTIFICATION_TYPES],
        "saved": saved == "1",
    }
    return site.page(request, visitor, "notification-settings.html", section=SECTION, **context)


@page.post("/notifications/settings", access=USER)
async def change_notification_settings(
    request: Request, body: bytes, site: PageResponses, notifications: Notifications
) -> Response[str]:
    """Set which types of notifications you get: those whose boxes are ticked."""
    visitor = await site.visitors.from_request(request)
    ticked = forms.parse_form(body)
    change = PreferencesChange(**{type: type in ticked for type in NOTIFICATION_TYPES})
    await notifications.set_preferences(visitor.require_user(), change)
    return site.form_response(request, visitor, b"", f"{PATH}/settings?saved=1")
