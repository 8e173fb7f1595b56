"""Feeds: explore, following, tags by time and by rank, bookmarks."""

from __future__ import annotations

from typing import Any

from plaza.core.http.access import PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page, PageResult
from plaza.social.feeds import Feeds
from plaza.social.hashtags import require_tag
from plaza.social.home_feed import HomeFeed
from plaza.social.model import FeedItem
from plaza.web import post_html
from plaza.web.rendering import tabs
from plaza.web.routing import PageRoutes
from plaza.web.security import HOME
from plaza.web.sidebar import Noticeboard
from plaza.web.site import Site
from plaza.web.text_html import older, tag_path
from plaza.web.visitors import Visitor

page = PageRoutes()


def feed(
    site: Site, request: Request, who: Visitor, found: PageResult[FeedItem], path: str, **said: Any
) -> Response[str]:
    """A page with a list of posts."""
    given = {"section": "", "lead": "", "composer": False, "tabs": "", "empty": "Nothing here yet."}
    more = older(path, found.pagination)
    cards = post_html.cards(found.items, site.clock.now_ms())
    return site.page(request, who, "feed.html", rows=cards, more=more, **{**given, **said})


@page.get("", access=PUBLIC)
async def explore(
    request: Request, site: Site, feeds: Feeds, notices: Noticeboard, cursor: str | None = None
) -> Response[str]:
    """All posts, newest first."""
    who = await site.visitors.of(request)
    found = await feeds.explore(who.actor, Page(cursor=cursor), users=False)
    said = {"composer": cursor is None, "empty": "Nobody has said anything yet. Be the first."}
    await notices.ready()
    return feed(site, request, who, found, "/app", section="Explore", title="Explore", **said)


@page.get("/", access=PUBLIC)
async def explore_too() -> Response[str]:
    """The same with a slash, as people type it."""
    return Response(status=308, headers=[("location", HOME)])


@page.get("/following", access=USER)
async def following(request: Request, site: Site, home: HomeFeed, cursor: str | None = None) -> Response[str]:
    """The posts of everyone one follows, newest first."""
    who = await site.visitors.of(request)
    found = await home.page(who.person(), Page(cursor=cursor), users=False)
    empty = "Follow people, and what they post is here."
    return feed(site, request, who, found, "/app/following", section="Following", title="Following", empty=empty)


@page.get("/bookmarks", access=USER)
async def bookmarks(request: Request, site: Site, feeds: Feeds, cursor: str | None = None) -> Response[str]:
    """What one has bookmarked, latest first. Nobody else sees it."""
    who = await site.visitors.of(request)
    found = await feeds.bookmarked(who.person(), who.name, Page(cursor=cursor), users=False)
    said = {"lead": "Other people do not see this list.", "empty": "Bookmark posts to find them again."}
    return feed(site, request, who, found, "/app/bookmarks", title="Bookmarks", **said)


@page.get("/tags/{tag}", access=USER)
async def tag_by_time(request: Request, site: Site, tag: str, feeds: Feeds, cursor: str | None = None) -> Response[str]:
    """Posts with a tag, newest first."""
    who = await site.visitors.of(request)
    found = await feeds.hashtag(who.person(), tag, Page(cursor=cursor), users=False)
    return _tag(site, request, who, found, tag, ranked=False)


@page.get("/tags/{tag}/ranked", access=USER)
async def tag_by_rank(request: Request, site: Site, tag: str, feeds: Feeds, cursor: str | None = None) -> Response[str]:
    """Posts with a tag, best first."""
    who = await site.visitors.of(request)
    found = await feeds.ranked(who.person(), tag, Page(cursor=cursor), users=False)
    return _tag(site, request, who, found, tag, ranked=True)


def _tag(
    site: Site, request: Request, who: Visitor, found: PageResult[FeedItem], tag: str, *, ranked: bool
) -> Response[str]:
    tag = require_tag(tag, "tag")
    new, best = tag_path(tag), f"{tag_path(tag)}/ranked"
    orders = tabs("Order", (("New", new), ("Best", best)), "Best" if ranked else "New")
    said = {"title": f"#{tag}", "tabs": orders, "empty": "Nobody has used this tag lately."}
    return feed(site, request, who, found, best if ranked else new, **said)
