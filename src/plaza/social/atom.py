"""Atom feeds of a user's posts and of a hashtag, as a guest sees them."""

from __future__ import annotations

from collections.abc import Sequence

from plaza.core.atom import ENTRIES, AtomEntry, atom_response
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.router import encode_segment
from plaza.core.paging import Page
from plaza.core.root_path import public_url
from plaza.core.settings import Settings
from plaza.social.feeds import Feeds
from plaza.social.hashtags import require_tag
from plaza.social.model import FeedItem
from plaza.social.users import Users


class PostAtomFeeds:
    """Feeds of posts. As a page of the same list costs."""

    def __init__(self, feeds: Feeds, users: Users, settings: Settings) -> None:
        self._feeds = feeds
        self._users = users
        self._settings = settings

    async def user(self, request: Request, username: str) -> Response[bytes]:
        """A user's posts, newest first."""
        user = await self._users.get(None, username)
        found = await self._feeds.user_posts(None, username, Page(limit=ENTRIES), users=False)
        name = encode_segment(username)
        title = f"{user.display_name or username} on Plaza"
        return self._response(request, f"/users/{name}.atom", f"/app/people/{name}", title, found.items)

    async def tag(self, request: Request, tag: str) -> Response[bytes]:
        """The posts with a hashtag, newest first."""
        tag = require_tag(tag, "tag")
        found = await self._feeds.hashtag(None, tag, Page(limit=ENTRIES), users=False)
        name = encode_segment(tag)
        return self._response(request, f"/tags/{name}.atom", f"/app/tags/{name}", f"#{tag} on Plaza", found.items)

    def _response(
        self, request: Request, path: str, page: str, title: str, items: Sequence[FeedItem]
    ) -> Response[bytes]:
        return atom_response(request, public_url(self._settings), path, page, title, [_entry(item) for item in items])


def _entry(item: FeedItem) -> AtomEntry:
    post = item.post
    return AtomEntry(
        id=f"urn:uuid:{post.id}",
        title=post.content,
        path=f"/app/posts/{post.id}",
        author=post.display_name or post.username,
        published_ms=post.created_at,
        updated_ms=post.edited_at or post.created_at,
        text=post.content,
    )
