"""Users: profiles, following, muting and blocking."""

from __future__ import annotations

from typing import Any, Literal

from plaza.core.http.access import ADMIN, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page, PageResult
from plaza.social.credentials import Credentials
from plaza.social.feeds import Feeds
from plaza.social.model import NoProfile, RelationFlags, User, Username
from plaza.social.relations import Relations
from plaza.social.users import Users
from plaza.web import forms, post_html
from plaza.web.routes_settings import own_tabs
from plaza.web.routing import PageRoutes
from plaza.web.site import Site
from plaza.web.text_html import older, user_path
from plaza.web.visitors import Visitor

page = PageRoutes()


async def _head(
    who: Visitor, username: str, people: Users, relations: Relations, credentials: Credentials
) -> dict[str, Any]:
    """What stands above everything about a person."""
    user = await people.get(who.actor, username)
    other = who.actor is not None and who.name != username
    ties = await relations.flags(who.person(), username) if other else RelationFlags()
    suspended = who.is_admin and await credentials.actor(username) is None
    return {"user": user, "other": other, "follows": ties.follows, "mutes": ties.mutes, "suspended": suspended}


@page.get("/people/{username}", access=PUBLIC)
async def profile(
    request: Request,
    site: Site,
    username: Username,
    people: Users,
    relations: Relations,
    credentials: Credentials,
    feeds: Feeds,
    cursor: str | None = None,
) -> Response[str]:
    """A person and their posts."""
    who = await site.visitors.of(request)
    try:
        head = await _head(who, username, people, relations, credentials)
    except NoProfile:
        if who.actor is None or not (await relations.flags(who.actor, username)).blocks:
            raise
        return site.page(request, who, "blocked-person.html", username=username)
    found = await feeds.of_user(who.actor, username, Page(cursor=cursor), users=False)
    cards = post_html.cards(found.items, site.clock.now_ms())
    more = older(user_path(username), found.pagination)
    return site.page(request, who, "profile.html", **head, rows=cards, more=more)


@page.get("/people/{username}/{side}", access=PUBLIC)
async def circle(
    request: Request,
    site: Site,
    username: Username,
    side: Literal["followers", "following"],
    people: Users,
    relations: Relations,
    credentials: Credentials,
    cursor: str | None = None,
) -> Response[str]:
    """Who follows a person, or whom they follow, latest first."""
    who = await site.visitors.of(request)
    head = await _head(who, username, people, relations, credentials)
    ask = relations.followers if side == "followers" else relations.following
    found = await ask(who.actor, username, Page(cursor=cursor))
    more = older(f"{user_path(username)}/{side}", found.pagination, "More people")
    return site.page(request, who, "people.html", **head, side=side, people=found.items, more=more)


@page.post("/people/{username}/follow", access=USER)
async def follow(
    request: Request,
    body: bytes,
    site: Site,
    username: Username,
    people: Users,
    relations: Relations,
    credentials: Credentials,
) -> Response[str]:
    """Follow someone, or no longer."""
    who = await site.visitors.of(request)
    on = forms.is_on(body)
    await (relations.follow if on else relations.unfollow)(who.person(), username)
    head = await _head(who, username, people, relations, credentials)
    said = f"You follow {username}." if on else f"You no longer follow {username}."
    return site.done(request, who, body, user_path(username), "follow.html", said=said, **head)


@page.post("/people/{username}/suspend", access=ADMIN)
async def suspend(request: Request, body: bytes, site: Site, username: Username, people: Users) -> Response[str]:
    """Suspend an account, or lift that: for admins."""
    who = await site.visitors.of(request)
    on = forms.is_on(body)
    user = await people.suspend(who.person(), username, on=on)
    said = f"{username} is suspended." if on else f"{username} may sign in again."
    piece = {"user": user, "suspended": on}
    return site.done(request, who, body, user_path(username), "suspension.html", said=said, **piece)


@page.post("/people/{username}/mute", access=USER)
async def mute(
    request: Request, body: bytes, site: Site, username: Username, people: Users, relations: Relations
) -> Response[str]:
    """Keep someone's posts out of one's feeds, or no longer."""
    who = await site.visitors.of(request)
    on = forms.is_on(body)
    await (relations.mute if on else relations.unmute)(who.person(), username)
    said = f"You mute {username}." if on else f"You no longer mute {username}."
    row = {"person": await people.get(None, username), "verb": "mute", "on": on}
    return site.done(request, who, body, user_path(username), "muted.html", said=said, **row)


@page.post("/people/{username}/block", access=USER)
async def block(
    request: Request, body: bytes, site: Site, username: Username, people: Users, relations: Relations
) -> Response[str]:
    """Block someone, whose page is gone then, or no longer."""
    who = await site.visitors.of(request)
    if forms.is_on(body):
        await relations.block(who.person(), username)
        return site.done(request, who, b"", "/app/blocked")
    await relations.unblock(who.person(), username)
    row = {"person": await people.get(None, username), "verb": "block", "on": False}
    said = f"You no longer block {username}."
    return site.done(request, who, body, user_path(username), "kept-away-row.html", said=said, **row)


@page.get("/blocked", access=USER)
async def blocked(request: Request, site: Site, relations: Relations, cursor: str | None = None) -> Response[str]:
    """Whom one blocks, latest first."""
    who = await site.visitors.of(request)
    return _kept_away(
        request, site, who, await relations.blocked(who.person(), Page(cursor=cursor)), "block", "Blocked"
    )


@page.get("/muted", access=USER)
async def muted(request: Request, site: Site, relations: Relations, cursor: str | None = None) -> Response[str]:
    """Whom one mutes, latest first."""
    who = await site.visitors.of(request)
    return _kept_away(request, site, who, await relations.muted(who.person(), Page(cursor=cursor)), "mute", "Muted")


def _kept_away(
    request: Request, site: Site, who: Visitor, found: PageResult[User], verb: str, title: str
) -> Response[str]:
    said: dict[str, Any] = {"tabs": own_tabs(title), "title": title, "verb": verb, "on": True}
    more = older(f"/app/{title.lower()}", found.pagination, "More people")
    return site.page(request, who, "kept-away.html", people=found.items, more=more, **said)
