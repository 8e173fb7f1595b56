"""Posts as HTML. A feed shows the same posts to many, so their pieces are kept: what a piece says is all that its key
holds, so a piece that is found is always right, and nothing has to be told of changes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from markupsafe import Markup

from plaza.social.model import FeedItem, Post
from plaza.social.tags import tags_in
from plaza.web.rendering import fragment
from plaza.web.text import ago, iso

# So that a page stays below 100 kB, whatever its posts say.
EXCERPT: Final = 700
# Tags that the text does not show itself; the rest are on the post's own page.
MOST_TAGS: Final = 5
KEPT: Final = 2_000


def card(post: Post, now_ms: int, *, whole: bool = False) -> Markup:
    """A post in a list, or alone."""
    head = _head(
        post.id,
        post.username,
        post.display_name,
        post.user_role,
        post.content,
        post.media_url,
        tuple(post.hashtags),
        len(post.content) if whole else EXCERPT,
    )
    edited = " · edited" if post.edited_at else ""
    when = f'<p class="when"><a href="/app/posts/{post.id}"><time datetime="{iso(post.created_at)}">'
    when += f"{ago(post.created_at, now_ms)}</time></a>{edited}</p>"
    return Markup(f"{head}{when}{acts(post)}</article>")  # noqa: S704 ids and numbers of ours between two templates


def cards(items: list[FeedItem], now_ms: int) -> list[Markup]:
    return [card(item.post, now_ms) for item in items]


def acts(post: Post) -> Markup:
    """What one can do with a post."""
    counts = post.likesCount, post.commentsCount, post.bookmarksCount
    return _acts(post.id, *counts, post.isLiked, post.isBookmarked)


@lru_cache(KEPT)
def _head(
    id: str, username: str, shown: str, role: str, content: str, media: str | None, tags: tuple[str, ...], most: int
) -> Markup:
    in_text = tags_in(content[:most])
    more = [tag for tag in tags if tag not in in_text][: MOST_TAGS if most == EXCERPT else None]
    about = {"id": id, "username": username, "display_name": shown, "user_role": role, "content": content}
    return fragment("card.html", post={**about, "media_url": media}, tags=more, most=most)


@lru_cache(KEPT)
def _acts(id: str, likes: int, comments: int, bookmarks: int, liked: bool, marked: bool) -> Markup:
    return fragment("acts.html", id=id, likes=likes, comments=comments, bookmarks=bookmarks, liked=liked, marked=marked)
