"""Notifications as sentences: "Ana, Ben and 12 others liked your post"."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup, escape

from plaza.notifications.model import Notification
from plaza.web.text_html import compact_number, user_path

# What actors did, after their names.
_DEEDS: Final = {
    "like": "liked your post",
    "comment": "commented on your post",
    "reply": "replied to your comment",
    "mention": "mentioned you",
    "follow": "followed you",
    "article_comment": "commented on your article",
    "challenge_reaction": "reacted to your challenge post",
    "challenge_invitation": "invited you to a challenge",
}
# What happened, where no user is named, by type and action.
_NOTICES: Final = {
    ("challenge", "edited"): "A challenge that you joined was changed",
    ("challenge", "deleted"): "A challenge that you joined was deleted. The days that you tracked still count",
    ("challenge_reminder", "untracked"): "Reminder: you have not tracked this day",
    ("challenge_reminder", "streak"): "Reminder: your streak ends with this day unless you track it",
    ("order", "placed"): "Your order was placed",
    ("order", "paid"): "Your order is paid",
    ("order", "shipped"): "Your order was shipped",
    ("order", "done"): "Your order is complete",
    ("order", "cancelled"): "Your order was cancelled",
    ("moderation", "banned"): "An admin banned your post",
    ("moderation", "unbanned"): "Your post is shown again",
    ("moderation", "suspended"): "An admin suspended your account",
    ("moderation", "unsuspended"): "The suspension of your account has ended",
    ("moderation", "resolved"): "An admin acted on your report",
    ("moderation", "dismissed"): "An admin closed your report: no rule forbids it",
}
# The preferences page.
LABELS: Final = {
    "like": "Likes of your posts",
    "comment": "Comments on your posts",
    "reply": "Replies to your comments",
    "mention": "Mentions of your name",
    "follow": "New followers",
    "article_comment": "Comments on your articles",
    "challenge_reaction": "Reactions to your challenge posts",
    "challenge": "Changes of challenges that you joined",
    "challenge_invitation": "Invitations to challenges",
    "challenge_reminder": "Reminders that you set in challenges",
    "order": "Your orders",
    "moderation": "Decisions of admins",
}


def sentence(notification: Notification) -> Markup:
    """Return what happened, with a link to each named user."""
    notice = _NOTICES.get((notification.type, notification.action or ""))
    if notice is not None:
        return escape(notice)
    return Markup("{} {}").format(_names(notification), _DEEDS.get(notification.type, notification.type))


def _names(notification: Notification) -> Markup:
    """Return all names if there are at most three, else two and the number of the others."""
    actors, count = notification.actors, notification.count
    shown = actors if count <= len(actors) else actors[:2]
    links = [Markup('<a href="{}"><b><bdi>{}</bdi></b></a>').format(user_path(name), name) for name in shown]
    others = count - len(shown)
    if others > 0:
        links.append(Markup("{} {}").format(compact_number(others), "other" if others == 1 else "others"))
    if len(links) < 2:
        return links[0] if links else escape("A user")
    return Markup(" and ").join((Markup(", ").join(links[:-1]), links[-1]))
