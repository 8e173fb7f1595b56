"""People: profiles, following, muting and blocking."""

from __future__ import annotations

from typing import Any, Literal

from plaza.core.http.request import Call
from plaza.core.http.responses import Answer
from plaza.core.paging import Page, Paged
from plaza.social.accounts import Accounts
from plaza.social.feeds import Feeds
from plaza.social.model import NoProfile, Ties, User, Username
from plaza.social.users import People
from plaza.web import forms, posts
from plaza.web.routes_own import own_tabs
from plaza.web.routing import PageRoutes
from plaza.web.site import Site
from plaza.web.text import older, user_path
from plaza.web.visitors import Visitor

page = PageRoutes()


async def _head(who: Visitor, username: str, people: People, accounts: Accounts) -> dict[str, Any]:
    """What stands above everything about a person."""
    user = await people.get(who.actor, username)
    other = who.actor is not None and who.name != username
    ties = await people.ties(who.person(), username) if other else Ties()
    suspended = who.is_admin and await accounts.actor(username) is None
    return {"user": user, "other": other, "follows": ties.follows, "mutes": ties.mutes, "suspended": suspended}


@page.get("/people/{username}")
async def profile(
    call: Call,
    site: Site,
    username: Username,
    people: People,
    accounts: Accounts,
    feeds: Feeds,
    cursor: str | None = None,
) -> Answer[str]:
    """A person and their posts."""
    who = await site.visitors.of(call)
    try:
        head = await _head(who, username, people, accounts)
    except NoProfile:
        if who.actor is None or not (await people.ties(who.actor, username)).blocks:
            raise
        return site.page(call, who, "blocked-person.html", username=username)
    found = await feeds.of_user(who.actor, username, Page(cursor=cursor), users=False)
    cards = posts.cards(found.items, site.clock.now_ms())
    more = older(user_path(username), found.pagination)
    return site.page(call, who, "profile.html", **head, rows=cards, more=more)


@page.get("/people/{username}/{side}")
async def circle(
    call: Call,
    site: Site,
    username: Username,
    side: Literal["followers", "following"],
    people: People,
    accounts: Accounts,
    cursor: str | None = None,
) -> Answer[str]:
    """Who follows a person, or whom they follow, latest first."""
    who = await site.visitors.of(call)
    head = await _head(who, username, people, accounts)
    ask = people.followers if side == "followers" else people.following
    found = await ask(who.actor, username, Page(cursor=cursor))
    more = older(f"{user_path(username)}/{side}", found.pagination, "More people")
    return site.page(call, who, "people.html", **head, side=side, people=found.items, more=more)


@page.post("/people/{username}/follow")
async def follow(
    call: Call, body: bytes, site: Site, username: Username, people: People, accounts: Accounts
) -> Answer[str]:
    """Follow someone, or no longer."""
    who = await site.visitors.of(call)
    on = forms.is_on(body)
    await (people.follow if on else people.unfollow)(who.person(), username)
    head = await _head(who, username, people, accounts)
    said = f"You follow {username}." if on else f"You no longer follow {username}."
    return site.done(call, who, body, user_path(username), "follow.html", said=said, **head)


@page.post("/people/{username}/suspend")
async def suspend(call: Call, body: bytes, site: Site, username: Username, people: People) -> Answer[str]:
    """Suspend an account, or lift that: for admins."""
    who = await site.visitors.of(call)
    on = forms.is_on(body)
    user = await people.suspend(who.admin(), username, on=on)
    said = f"{username} is suspended." if on else f"{username} may sign in again."
    piece = {"user": user, "suspended": on}
    return site.done(call, who, body, user_path(username), "suspension.html", said=said, **piece)


@page.post("/people/{username}/mute")
async def mute(call: Call, body: bytes, site: Site, username: Username, people: People) -> Answer[str]:
    """Keep someone's posts out of one's feeds, or no longer."""
    who = await site.visitors.of(call)
    on = forms.is_on(body)
    await (people.mute if on else people.unmute)(who.person(), username)
    said = f"You mute {username}." if on else f"You no longer mute {username}."
    row = {"person": await people.get(None, username), "verb": "mute", "on": on}
    return site.done(call, who, body, user_path(username), "muted.html", said=said, **row)


@page.post("/people/{username}/block")
async def block(call: Call, body: bytes, site: Site, username: Username, people: People) -> Answer[str]:
    """Block someone, whose page is gone then, or no longer."""
    who = await site.visitors.of(call)
    if forms.is_on(body):
        await people.block(who.person(), username)
        return site.done(call, who, b"", "/app/blocked")
    await people.unblock(who.person(), username)
    row = {"person": await people.get(None, username), "verb": "block", "on": False}
    said = f"You no longer block {username}."
    return site.done(call, who, body, user_path(username), "kept-away-row.html", said=said, **row)


@page.get("/blocked")
async def blocked(call: Call, site: Site, people: People, cursor: str | None = None) -> Answer[str]:
    """Whom one blocks, latest first."""
    who = await site.visitors.of(call)
    return _kept_away(call, site, who, await people.blocked(who.person(), Page(cursor=cursor)), "block", "Blocked")


@page.get("/muted")
async def muted(call: Call, site: Site, people: People, cursor: str | None = None) -> Answer[str]:
    """Whom one mutes, latest first."""
    who = await site.visitors.of(call)
    return _kept_away(call, site, who, await people.muted(who.person(), Page(cursor=cursor)), "mute", "Muted")


def _kept_away(call: Call, site: Site, who: Visitor, found: Paged[User], verb: str, title: str) -> Answer[str]:
    said: dict[str, Any] = {"tabs": own_tabs(title), "title": title, "verb": verb, "on": True}
    more = older(f"/app/{title.lower()}", found.pagination, "More people")
    return site.page(call, who, "kept-away.html", people=found.items, more=more, **said)
