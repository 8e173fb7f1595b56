"""HTTP routes of feeds and of lists of posts and users."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from plaza.core import atom
from plaza.core.auth import Actor
from plaza.core.errors import NEVER_MISSING, Gone
from plaza.core.http.access import AUTHENTICATED, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import ParameterName, Routes
from plaza.core.paging import Page, encodable
from plaza.core.validation_messages import described_pattern
from plaza.social.atom import PostAtomFeeds
from plaza.social.feeds import Feeds
from plaza.social.home_feed import HomeFeed
from plaza.social.model import (
    FeedPage,
    TopModels,
    TopTags,
    Username,
    UserPage,
)
from plaza.social.routes_users import resolve_username
from plaza.social.users import Users

route = Routes("feeds", about="Feeds, hashtags and rankings.")

IncludeUser = Annotated[
    bool, ParameterName("includeUser"), Meta(description="Whether each item includes its author's public profile.")
]
# The router refuses other characters in any path.
_NO_CONTROL: Final = described_pattern("Must not contain control characters", r"^[^\x00-\x1f\x7f]*$(?!\n)")
TagName = Annotated[str, Meta(pattern=_NO_CONTROL, examples=["travel"]), NEVER_MISSING]
TagNames = Annotated[str, Meta(min_length=1, description="Separated by commas.", examples=["travel,food"])]
PerTag = Annotated[int, ParameterName("postsPerHashtag"), Meta(ge=1, le=20)]


@route.get("/users/{username}/posts", access=PUBLIC)
async def list_user_posts(
    actor: Actor | None, username: Username, page: Page, feeds: Feeds, include_user: IncludeUser = True
) -> FeedPage:
    """List a user's posts, newest first."""
    found = await feeds.user_posts(actor, resolve_username(actor, username), page, users=include_user)
    return FeedPage(encodable(found.items), found.pagination)


@route.get("/users/{username}/bookmarked", access=USER, example_parameters={"username": "me"})
async def list_bookmarked_posts(
    actor: Actor, username: Username, page: Page, feeds: Feeds, include_user: IncludeUser = True
) -> FeedPage:
    """List the caller's bookmarked posts, latest first."""
    found = await feeds.bookmarked(actor, resolve_username(actor, username), page, users=include_user)
    return FeedPage(encodable(found.items), found.pagination)


@route.get("/feed/explore", access=PUBLIC)
async def list_explore_feed(
    actor: Actor | None, page: Page, feeds: Feeds, include_user: IncludeUser = True
) -> FeedPage:
    """List all posts, newest first."""
    found = await feeds.explore(actor, page, users=include_user)
    return FeedPage(encodable(found.items), found.pagination)


@route.get("/feed/following", access=USER)
async def list_following_feed(actor: Actor, page: Page, home: HomeFeed, include_user: IncludeUser = True) -> FeedPage:
    """List the posts of the users that the caller follows, newest first."""
    found = await home.page(actor, page, users=include_user)
    return FeedPage(encodable(found.items), found.pagination)


@route.get("/feed/hashtag/{tag}", access=AUTHENTICATED)
async def list_hashtag_feed(
    actor: Actor, tag: TagName, page: Page, feeds: Feeds, include_user: IncludeUser = True
) -> FeedPage:
    """List the posts with a hashtag, newest first."""
    found = await feeds.hashtag(actor, tag, page, users=include_user)
    return FeedPage(encodable(found.items), found.pagination)


@route.get("/feed/hashtag/{tag}/ranked", access=AUTHENTICATED, raises=[Gone])
async def list_ranked_hashtag_feed(
    actor: Actor, tag: TagName, page: Page, feeds: Feeds, include_user: IncludeUser = True
) -> FeedPage:
    """List the posts with a hashtag, best first."""
    found = await feeds.ranked(actor, tag, page, users=include_user)
    return FeedPage(encodable(found.items), found.pagination)


@route.get("/search/users/newest", access=AUTHENTICATED)
async def list_newest_users(
    actor: Actor, page: Page, users: Users, role: Literal["user", "model"] = "user"
) -> UserPage:
    """List the newest users or models."""
    found = await users.newest(actor, role, page)
    return UserPage(found.items, found.pagination)


@route.get("/search/hashtags/top-posts", access=AUTHENTICATED, limit_first=True)
async def list_top_posts(
    actor: Actor, hashtags: TagNames, feeds: Feeds, per_tag: PerTag = 5, include_user: IncludeUser = True
) -> TopTags:
    """List the best posts of each hashtag in `hashtags=a,b`."""
    return TopTags(await feeds.top_posts(actor, hashtags, per_tag, users=include_user))


@route.get("/search/models/top", access=AUTHENTICATED, raises=[Gone])
async def list_top_models(actor: Actor, page: Page, feeds: Feeds) -> TopModels:
    """List the models by engagement."""
    found = await feeds.top_models(actor, page)
    return TopModels(encodable(found.items), found.pagination)


@route.get("/users/{username}.atom", access=PUBLIC, media_type=atom.MEDIA_TYPE, in_openapi=False)
async def get_user_atom(request: Request, username: Username, feeds: PostAtomFeeds) -> Response[bytes]:
    """Get a user's posts as an Atom feed, newest first. Supports `If-None-Match`."""
    return await feeds.user(request, username)


@route.get("/tags/{tag}.atom", access=PUBLIC, media_type=atom.MEDIA_TYPE, in_openapi=False)
async def get_tag_atom(request: Request, tag: TagName, feeds: PostAtomFeeds) -> Response[bytes]:
    """Get the posts with a hashtag as an Atom feed, newest first. Supports `If-None-Match`."""
    return await feeds.tag(request, tag)
