"""Feeds: explore, following, hashtags by time and by rank, bookmarks."""

from __future__ import annotations

import asyncio
from typing import Any

from markupsafe import Markup

from plaza.core.http.access import PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.router import encode_segment
from plaza.core.paging import Page, PageResult
from plaza.social.feeds import Feeds
from plaza.social.hashtags import require_tag
from plaza.social.home_feed import HomeFeed
from plaza.social.model import FeedItem
from plaza.social.suggestions import SocialSuggestions
from plaza.web import post_html
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.rendering import tabs
from plaza.web.security import HOME
from plaza.web.sidebar import Sidebar
from plaza.web.text_html import next_page_link, tag_path
from plaza.web.visitors import Visitor

page = PageRoutes()

MAX_SUGGESTED = 5


async def feed_page(
    site: PageResponses, request: Request, visitor: Visitor, feed: PageResult[FeedItem], path: str, **context: Any
) -> Response[str]:
    """Return a page with a list of posts."""
    values = {
        "section": "",
        "lead": "",
        "has_form": False,
        "tabs": "",
        "empty": "No posts yet.",
        "watch": "",
        "suggested": (),
        **context,
    }
    cards = post_html.post_cards(feed.items, site.clock.now_ms())
    more = next_page_link(path, feed.pagination)
    response = site.page(request, visitor, "feed.html", rows=cards, more=more, **values)
    return await site.mentions.complete(response)


@page.get("", access=PUBLIC)
async def explore(
    request: Request, site: PageResponses, feeds: Feeds, sidebar: Sidebar, cursor: str | None = None
) -> Response[str]:
    """List all posts, newest first."""
    visitor = await site.visitors.from_request(request)
    feed = await feeds.explore(visitor.actor, Page(cursor=cursor), users=False)
    await sidebar.wait_until_loaded()
    is_first = cursor is None
    context = {
        "has_form": is_first,
        "empty": "No posts yet. Write the first one.",
        "watch": "explore" if is_first else "",
    }
    return await feed_page(site, request, visitor, feed, "/app", section="Explore", title="Explore", **context)


@page.get("/", access=PUBLIC)
async def explore_with_slash() -> Response[str]:
    """Redirect to the explore page."""
    return Response(status=308, headers=[("location", HOME)])


@page.get("/following", access=USER)
async def following(
    request: Request, site: PageResponses, home: HomeFeed, suggestions: SocialSuggestions, cursor: str | None = None
) -> Response[str]:
    """List the posts of followed users, newest first, and suggest more users."""
    visitor = await site.visitors.from_request(request)
    actor = visitor.require_user()
    context: dict[str, Any] = {"section": "Following", "title": "Following"}
    context["empty"] = Markup('Follow users to see their posts here. <a href="/app">Explore</a> has the posts of all.')
    reading = home.page(actor, Page(cursor=cursor), users=False)
    if cursor is None:
        context["watch"] = "following"
        feed, context["suggested"] = await asyncio.gather(reading, suggestions.users_to_follow(actor, MAX_SUGGESTED))
    else:
        feed = await reading
    return await feed_page(site, request, visitor, feed, "/app/following", **context)


@page.get("/bookmarks", access=USER)
async def bookmarks(request: Request, site: PageResponses, feeds: Feeds, cursor: str | None = None) -> Response[str]:
    """List your bookmarks, latest first."""
    visitor = await site.visitors.from_request(request)
    feed = await feeds.bookmarked(visitor.require_user(), visitor.name, Page(cursor=cursor), users=False)
    context = {"lead": "Only you can see this list.", "empty": "No bookmarks yet. Bookmark posts to find them here."}
    return await feed_page(
        site, request, visitor, feed, "/app/bookmarks", section="Bookmarks", title="Bookmarks", **context
    )


@page.get("/tags/{tag}", access=PUBLIC)
async def tag_by_time(
    request: Request, site: PageResponses, tag: str, feeds: Feeds, cursor: str | None = None
) -> Response[str]:
    """List the posts with a hashtag, newest first."""
    visitor = await site.visitors.from_request(request)
    feed = await feeds.hashtag(visitor.actor, tag, Page(cursor=cursor), users=False)
    return await _tag_page(site, request, visitor, feed, tag, ranked=False)


@page.get("/tags/{tag}/ranked", access=PUBLIC)
async def tag_by_rank(
    request: Request, site: PageResponses, tag: str, feeds: Feeds, cursor: str | None = None
) -> Response[str]:
    """List the posts with a hashtag, best first."""
    visitor = await site.visitors.from_request(request)
    feed = await feeds.ranked(visitor.actor, tag, Page(cursor=cursor), users=False)
    return await _tag_page(site, request, visitor, feed, tag, ranked=True)


async def _tag_page(
    site: PageResponses, request: Request, visitor: Visitor, feed: PageResult[FeedItem], tag: str, *, ranked: bool
) -> Response[str]:
    tag = require_tag(tag, "tag")
    new, best = tag_path(tag), f"{tag_path(tag)}/ranked"
    orders = tabs("Order", (("New", new), ("Best", best)), "Best" if ranked else "New")
    atom = f"/tags/{encode_segment(tag)}.atom"
    context = {"title": f"#{tag}", "tabs": orders, "empty": "No recent posts with this tag.", "atom": atom}
    return await feed_page(site, request, visitor, feed, best if ranked else new, **context)
