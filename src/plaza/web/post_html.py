"""Posts and comments as HTML. Many readers see the same ones, so their fragments are cached (`fragment_cache.py`).

Fragments are bytes: a single emoji would make Python use four bytes for every character of the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from markupsafe import Markup

from plaza.core.pictures import Picture, picture_in_address
from plaza.social.hashtags import tags_in
from plaza.social.model import Comment, FeedItem, Post
from plaza.web import comment_html
from plaza.web.fragment_cache import cached_fragment
from plaza.web.rendering import fragment, render
from plaza.web.text_html import format_age, truncate_text
from plaza.web.visitors import Visitor

# How much of a post a list shows: characters of the text, and tags that are not in the text. The first limits whose
# HTML fits in `MAX_EXCERPT_BYTES` apply; a text of links, quotation marks or emoji needs smaller ones.
EXCERPT_LIMITS: Final = ((700, 5), (350, 2), (120, 0))
# Keeps a page of twenty posts below 100 kB, whatever they contain.
MAX_EXCERPT_BYTES: Final = 2_850
# How much of a picture's description a list has.
MAX_ALT_CHARACTERS: Final = 200
# A list ignores the rest of the text.
_EXCERPT_CHARACTERS: Final = EXCERPT_LIMITS[0][0] + 1


class ShownPicture(NamedTuple):
    """A picture as a post shows it, at the size of its column."""

    id: str
    width: int
    height: int
    blurhash: str
    alt: str

    @classmethod
    def from_picture(cls, picture: Picture, is_complete: bool) -> ShownPicture:
        """A list shows the beginning of a long text."""
        variant = picture.variants["medium"]
        alt = picture.alt if is_complete else truncate_text(picture.alt, MAX_ALT_CHARACTERS)
        return cls(picture.id, variant.width, variant.height, picture.blurhash, alt)


def post_card(post: Post, now_ms: int, *, is_complete: bool = False) -> Markup:
    """One post; an excerpt unless `is_complete`."""
    return Markup(_card(post, now_ms, is_complete=is_complete).decode())  # noqa: S704


def post_cards(items: Iterable[FeedItem], now_ms: int) -> bytes:
    """The posts of a list, as excerpts."""
    return b"".join([_card(item.post, now_ms, is_complete=False) for item in items])


def post_actions(post: Post) -> Markup:
    """The buttons of a post: like, comment, bookmark."""
    return fragment(
        "post-actions.html",
        id=post.id,
        likes=post.likesCount,
        comments=post.commentsCount,
        bookmarks=post.bookmarksCount,
        liked=post.isLiked,
        bookmarked=post.isBookmarked,
    )


def comment_rows(comments: Iterable[Comment], post: Post, visitor: Visitor, now_ms: int) -> bytes:
    """The comments on a post. Users who may delete a comment get a button for it."""
    return b"".join([_comment_row(comment, post, visitor, now_ms) for comment in comments])


def comment_row(comment: Comment, post: Post, visitor: Visitor, now_ms: int) -> Markup:
    """One comment."""
    return Markup(_comment_row(comment, post, visitor, now_ms).decode())  # noqa: S704


def thread_path(post: str, comment: str | None) -> str:
    """The page of a comment and its replies; without a comment, of the post."""
    return f"/app/posts/{post}?thread={comment}" if comment else f"/app/posts/{post}"


def _card(post: Post, now_ms: int, *, is_complete: bool) -> bytes:
    return _cached_card[
        post.id,
        post.username,
        post.display_name,
        post.avatar,
        post.user_role,
        post.content if is_complete else post.content[:_EXCERPT_CHARACTERS],
        post.media_url,
        tuple(ShownPicture.from_picture(picture, is_complete) for picture in post.media),
        bool(post.banned),
        tuple(post.hashtags),
        is_complete,
        post.created_at,
        post.edited_at is not None,
        format_age(post.created_at, now_ms),
        post.likesCount,
        post.commentsCount,
        post.bookmarksCount,
        post.isLiked,
        post.isBookmarked,
    ]


@cached_fragment()
def _cached_card(
    id: str,
    username: str,
    display_name: str,
    avatar: str,
    role: str,
    content: str,
    media_url: str | None,
    pictures: tuple[ShownPicture, ...],
    is_banned: bool,
    tags: tuple[str, ...],
    is_complete: bool,
    created_at: int,
    edited: bool,
    when: str,
    likes: int,
    comments: int,
    bookmarks: int,
    liked: bool,
    bookmarked: bool,
) -> bytes:
    html = _cached_content[
        id, username, display_name, avatar, role, content, media_url, pictures, is_banned, tags, is_complete
    ]
    counts = {"likes": likes, "comments": comments, "bookmarks": bookmarks, "liked": liked, "bookmarked": bookmarked}
    post = {"id": id, "created_at": created_at, "edited": edited}
    return render("post-card.html", post=post, content=Markup(html.decode()), id=id, when=when, **counts).encode()  # noqa: S704


# The part that does not change with the time, the counters and the reader: links and excerpts are costly to build.
@cached_fragment()
def _cached_content(
    id: str,
    username: str,
    display_name: str,
    avatar: str,
    role: str,
    content: str,
    media_url: str | None,
    pictures: tuple[ShownPicture, ...],
    is_banned: bool,
    tags: tuple[str, ...],
    is_complete: bool,
) -> bytes:
    shows_media = picture_in_address(media_url) in {picture.id for picture in pictures}
    post = {
        "id": id,
        "username": username,
        "display_name": display_name,
        "avatar": avatar,
        "user_role": role,
        "content": content,
        "media_url": None if shows_media else media_url,
        "pictures": pictures,
        # A banned post's pictures are shown to admins only. The session cookie identifies them below /app.
        "media_prefix": "/app" if is_banned else "",
    }
    tags_in_text = tags_in(content)
    other_tags = [tag for tag in tags if tag not in tags_in_text]
    html = b""
    for max_characters, max_tags in ((len(content), len(other_tags)),) if is_complete else EXCERPT_LIMITS:
        limits = {"max_characters": max_characters, "tags": other_tags[:max_tags], "is_complete": is_complete}
        html = render("post-content.html", post=post, **limits).encode()
        if len(html) <= MAX_EXCERPT_BYTES:
            break
    return html


def _comment_row(comment: Comment, post: Post, visitor: Visitor, now_ms: int) -> bytes:
    return comment_html.row(
        comment,
        visitor,
        now_ms,
        edited=comment.edited_at is not None,
        can_delete=visitor.is_admin or visitor.name in (comment.username, post.username),
        can_edit=visitor.name == comment.username,
        thread_path=thread_path(comment.post_id, comment.id),
        path=f"/app/posts/{comment.post_id}/comments/{comment.id}",
    )
