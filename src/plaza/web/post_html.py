"""Posts and comments as HTML. A feed shows the same ones to many, so their pieces are kept (`keeping.py`). Pieces are
bytes: one emoji in a page of text would make Python carry four bytes for each letter of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from markupsafe import Markup

from plaza.social.hashtags import tags_in
from plaza.social.model import Comment, FeedItem, Post
from plaza.web.fragment_cache import kept
from plaza.web.rendering import render
from plaza.web.text_html import ago
from plaza.web.visitors import Visitor

# How much of a post a list shows, in characters and in tags that its text does not show itself. If that is too many
# bytes, since every other character is a tag, a quotation mark or an emoji, it shows less.
EXCERPTS: Final = ((700, 5), (350, 2), (120, 0))
# Of a post in a list, so that twenty of them, with all around, stay below 100 kB whatever they say.
MOST_BYTES: Final = 3_000
# Whatever comes after this is not looked at for a list.
_LONGEST_EXCERPT: Final = EXCERPTS[0][0] + 1


def card(post: Post, now_ms: int, *, whole: bool = False) -> Markup:
    """A post, alone or to be put into a list."""
    return Markup(_card(post, now_ms, whole=whole).decode())  # noqa: S704


def cards(items: Iterable[FeedItem], now_ms: int) -> bytes:
    """The posts of a page."""
    return b"".join([_card(item.post, now_ms, whole=False) for item in items])


def acts(post: Post) -> Markup:
    """What one can do with a post."""
    return Markup(_acts_of(post).decode())  # noqa: S704


def comments(all_said: Iterable[Comment], post: Post, who: Visitor, now_ms: int) -> bytes:
    """What is said below a post, with a button to delete it for those who may."""
    return b"".join([_said(each, post, who, now_ms) for each in all_said])


def _card(post: Post, now_ms: int, *, whole: bool) -> bytes:
    """Pieces of templates, which have escaped what people wrote, with words of ours between them."""
    head, tail = _around_time[
        post.id,
        post.username,
        post.display_name,
        post.user_role,
        post.content if whole else post.content[:_LONGEST_EXCERPT],
        post.media_url,
        tuple(post.hashtags),
        post.created_at,
        post.edited_at is not None,
        whole,
    ]
    return b"".join([head, ago(post.created_at, now_ms).encode(), tail, _acts_of(post), b"</article>"])


def _acts_of(post: Post) -> bytes:
    return _acts[post.id, post.likesCount, post.commentsCount, post.bookmarksCount, post.isLiked, post.isBookmarked]


def _said(said: Comment, post: Post, who: Visitor, now_ms: int) -> bytes:
    may_delete = who.is_admin or who.name in (said.username, post.username)
    when = ago(said.created_at, now_ms)
    return _comment[said.id, said.post_id, said.username, said.content, said.created_at, when, may_delete]


@kept()
def _around_time(
    id: str,
    username: str,
    shown: str,
    role: str,
    content: str,
    media: str | None,
    tags: tuple[str, ...],
    created_at: int,
    edited: bool,
    whole: bool,
) -> tuple[bytes, bytes]:
    """A post's own part, before and after how long ago it was, which is another thing every minute."""
    in_text = tags_in(content)
    post = {
        "id": id,
        "username": username,
        "display_name": shown,
        "user_role": role,
        "content": content,
        "media_url": media,
        "created_at": created_at,
        "edited": edited,
    }
    more = [tag for tag in tags if tag not in in_text]
    made = ""
    for most, most_tags in ((len(content), len(more)),) if whole else EXCERPTS:
        made = render("card.html", post=post, tags=more[:most_tags], most=most, whole=whole)
        if len(made) <= MOST_BYTES and len(made.encode()) <= MOST_BYTES:
            break
    # A control character, which neither a post nor a template holds.
    head, _, tail = made.partition("\x00")
    return head.encode(), tail.encode()


@kept()
def _acts(id: str, likes: int, comments: int, bookmarks: int, liked: bool, marked: bool) -> bytes:
    return render(
        "acts.html", id=id, likes=likes, comments=comments, bookmarks=bookmarks, liked=liked, marked=marked
    ).encode()


@kept()
def _comment(id: str, post: str, username: str, content: str, created_at: int, when: str, may_delete: bool) -> bytes:
    said = {"id": id, "post_id": post, "username": username, "content": content, "created_at": created_at}
    return render("comment.html", comment=said, when=when, may_delete=may_delete).encode()
