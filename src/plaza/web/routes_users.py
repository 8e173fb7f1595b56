"""Users: profiles, following, muting, blocking and suspension."""

from __future__ import annotations

from typing import Any, Literal

from plaza.core.http.access import ADMIN, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.router import encode_segment
from plaza.core.paging import Page, PageResult
from plaza.social.credentials import Credentials
from plaza.social.feeds import Feeds
from plaza.social.model import NoProfile, RelationFlags, User, Username
from plaza.social.relations import Relations
from plaza.social.users import Users
from plaza.web import forms, post_html
from plaza.web.operator_navigation import ask_for_suspension
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.routes_own import own_tabs
from plaza.web.routes_settings import settings_tabs
from plaza.web.text_html import next_page_link, user_path
from plaza.web.visitors import Visitor

page = PageRoutes()


async def _header_context(
    visitor: Visitor, username: str, users: Users, relations: Relations, credentials: Credentials
) -> dict[str, Any]:
    """The values for the header of a user's pages."""
    user = await users.get(visitor.actor, username)
    is_other = visitor.actor is not None and visitor.name != username
    flags = await relations.flags(visitor.require_user(), username) if is_other else RelationFlags()
    suspended = visitor.is_admin and await credentials.actor(username) is None
    return {
        "user": user,
        "is_other": is_other,
        "follows": flags.follows,
        "mutes": flags.mutes,
        "suspended": suspended,
    }


@page.get("/people/{username}", access=PUBLIC)
async def profile(
    request: Request,
    site: PageResponses,
    username: Username,
    users: Users,
    relations: Relations,
    credentials: Credentials,
    feeds: Feeds,
    cursor: str | None = None,
) -> Response[str]:
    """Show a user and their posts."""
    visitor = await site.visitors.from_request(request)
    try:
        header = await _header_context(visitor, username, users, relations, credentials)
    except NoProfile:
        current = (await users.current_names([username])).get(username, username)
        if current != username:  # renamed: links and mentions of the old name lead here
            return Response(status=308, headers=[*visitor.cookie, ("location", user_path(current))])
        if visitor.actor is None or not (await relations.flags(visitor.actor, username)).blocks:
            raise
        picture = (await site.visitors.avatars.addresses([username]))[username]
        return site.page(request, visitor, "blocked-user.html", username=username, picture=picture)
    feed = await feeds.user_posts(visitor.actor, username, Page(cursor=cursor), users=False)
    cards = post_html.post_cards(feed.items, site.clock.now_ms())
    more = next_page_link(user_path(username), feed.pagination)
    atom = f"/users/{encode_segment(username)}.atom"
    context = {**header, "tabs": own_tabs(username, "Posts") if visitor.name == username else ""}
    response = site.page(request, visitor, "profile.html", **context, rows=cards, more=more, atom=atom)
    return await site.mentions.complete(response)


@page.get("/people/{username}/{side}", access=PUBLIC)
async def follow_list(
    request: Request,
    site: PageResponses,
    username: Username,
    side: Literal["followers", "following"],
    users: Users,
    relations: Relations,
    credentials: Credentials,
    cursor: str | None = None,
) -> Response[str]:
    """List the followers of a user, or the users they follow, latest first."""
    visitor = await site.visitors.from_request(request)
    header = await _header_context(visitor, username, users, relations, credentials)
    list_users = relations.followers if side == "followers" else relations.following
    found = await list_users(visitor.actor, username, Page(cursor=cursor))
    more = next_page_link(f"{user_path(username)}/{side}", found.pagination, "More users")
    return site.page(request, visitor, "follow-list.html", **header, side=side, users=found.items, more=more)


@page.post("/people/{username}/follow", access=USER)
async def follow(
    request: Request,
    body: bytes,
    site: PageResponses,
    username: Username,
    users: Users,
    relations: Relations,
    credentials: Credentials,
) -> Response[str]:
    """Follow or unfollow a user."""
    visitor = await site.visitors.from_request(request)
    on = forms.is_on(body)
    await (relations.follow if on else relations.unfollow)(visitor.require_user(), username)
    context = await _header_context(visitor, username, users, relations, credentials)
    context["message"] = f"You follow {username}." if on else f"You no longer follow {username}."
    context["undo_path"] = "" if on else f"{user_path(username)}/follow"
    return site.form_response(request, visitor, body, user_path(username), "follow-section.html", **context)


@page.get("/people/{username}/suspend", access=ADMIN)
async def confirm_suspension(request: Request, site: PageResponses, username: Username, users: Users) -> Response[str]:
    """Show what a suspension does, before it is done."""
    await users.get(None, username)
    path = user_path(username)
    return await ask_for_suspension(request, site, username, action=f"{path}/suspend", back=path)


@page.post("/people/{username}/suspend", access=ADMIN, logged_fields=("on",))
async def suspend(
    request: Request, body: bytes, site: PageResponses, username: Username, users: Users
) -> Response[str]:
    """Suspend an account or lift the suspension (admins)."""
    visitor = await site.visitors.from_request(request)
    on = forms.is_on(body)
    user = await users.suspend(visitor.require_user(), username, on=on)
    message = f"{username} is suspended." if on else f"{username} can sign in again."
    context: dict[str, Any] = {"message": message, "user": user, "suspended": on}
    return site.form_response(request, visitor, body, user_path(username), "suspend-button.html", **context)


@page.post("/people/{username}/mute", access=USER)
async def mute(
    request: Request, body: bytes, site: PageResponses, username: Username, users: Users, relations: Relations
) -> Response[str]:
    """Mute or unmute a user."""
    visitor = await site.visitors.from_request(request)
    on = forms.is_on(body)
    await (relations.mute if on else relations.unmute)(visitor.require_user(), username)
    message = f"You muted {username}." if on else f"You unmuted {username}."
    context: dict[str, Any] = {"user": await users.get(None, username), "action": "mute", "on": on}
    path = user_path(username)
    return site.form_response(request, visitor, body, path, "mute-changed.html", message=message, **context)


@page.post("/people/{username}/block", access=USER)
async def block(
    request: Request, body: bytes, site: PageResponses, username: Username, users: Users, relations: Relations
) -> Response[str]:
    """Block or unblock a user."""
    visitor = await site.visitors.from_request(request)
    if forms.is_on(body):
        await relations.block(visitor.require_user(), username)
        return site.form_response(request, visitor, b"", "/app/blocked")
    await relations.unblock(visitor.require_user(), username)
    context: dict[str, Any] = {"user": await users.get(None, username), "action": "block", "on": False}
    context["message"] = f"You unblocked {username}."
    return site.form_response(request, visitor, body, user_path(username), "restricted-user-row.html", **context)


@page.get("/blocked", access=USER)
async def blocked(
    request: Request, site: PageResponses, relations: Relations, cursor: str | None = None
) -> Response[str]:
    """List blocked users, latest first."""
    visitor = await site.visitors.from_request(request)
    found = await relations.blocked(visitor.require_user(), Page(cursor=cursor))
    return _restricted_users_page(request, site, visitor, found, "block", "Blocked")


@page.get("/muted", access=USER)
async def muted(
    request: Request, site: PageResponses, relations: Relations, cursor: str | None = None
) -> Response[str]:
    """List muted users, latest first."""
    visitor = await site.visitors.from_request(request)
    found = await relations.muted(visitor.require_user(), Page(cursor=cursor))
    return _restricted_users_page(request, site, visitor, found, "mute", "Muted")


def _restricted_users_page(
    request: Request, site: PageResponses, visitor: Visitor, found: PageResult[User], action: str, title: str
) -> Response[str]:
    context: dict[str, Any] = {
        "tabs": settings_tabs(title),
        "title": title,
        "action": action,
        "on": True,
        "users": found.items,
        "empty": f"No {title.lower()} users.",
        "more": next_page_link(f"/app/{title.lower()}", found.pagination, "More users"),
    }
    return site.page(request, visitor, "restricted-users.html", **context)
